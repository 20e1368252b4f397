package doctor

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// dialAs connects to an address of this machine as another user. Only root can.
func dialAs(uid int, address netip.AddrPort) (net.Conn, error) {
	type result struct {
		fd  int
		err error
	}
	done := make(chan result)
	go func() {
		// The user of one thread changes. If it cannot be changed back, the
		// thread stays locked and ends with the goroutine.
		runtime.LockOSThread()
		own := os.Geteuid()
		fd, err := -1, become(uid)
		if err == nil {
			fd, err = connect(address)
		}
		if become(own) == nil {
			runtime.UnlockOSThread()
		}
		done <- result{fd, err}
	}()
	r := <-done
	if r.err != nil {
		return nil, r.err
	}
	f := os.NewFile(uintptr(r.fd), address.String())
	defer f.Close() // the connection has a copy
	return net.FileConn(f)
}

// become changes the effective user of this thread.
func become(uid int) error {
	const keep = ^uintptr(0)
	// The system call, unlike the function of that name, is for one thread.
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(uid), keep); errno != 0 {
		return fmt.Errorf("become user %d: %w", uid, errno)
	}
	return nil
}

// connect connects to an address.
func connect(address netip.AddrPort) (fd int, err error) {
	var to unix.Sockaddr = &unix.SockaddrInet6{Port: int(address.Port()), Addr: address.Addr().As16()}
	family := unix.AF_INET6
	if address.Addr().Is4() {
		to, family = &unix.SockaddrInet4{Port: int(address.Port()), Addr: address.Addr().As4()}, unix.AF_INET
	}
	if fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return -1, fmt.Errorf("make a socket: %w", err)
	}
	if err := unix.Connect(fd, to); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("connect to %s: %w", address, err)
	}
	return fd, nil
}
