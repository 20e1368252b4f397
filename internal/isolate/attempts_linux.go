//go:build amd64 || arm64

package isolate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// targets are what an attempt is made on. All of it is real: without isolation
// the attempts succeed.
type targets struct {
	Workspace string `json:"workspace"` // may be written to, but for .git in it
	Outside   string `json:"outside"`   // a directory beside it, with two files
	Socket    string `json:"socket"`    // a unix socket with a file
	Abstract  string `json:"abstract"`  // one without
	TCP       string `json:"tcp"`
	Allowed   string `json:"allowed"` // another one, which a proxy allows
	Proxy     string `json:"proxy"`   // the only way out; empty without one
	UDP       string `json:"udp"`
	Victim    int    `json:"victim"` // a process of the same user
	Secret    string `json:"secret"` // in its environment
	Processes int    `json:"processes"`
	Kernel    string `json:"kernel"`                 // of the machine
	Whole     bool   `json:"whole,omitempty"`        // the attempts on memory and processor time are made elsewhere
	Memory    int64  `json:"memory_bytes,omitempty"` // more than the limit; zero if neither memory nor processor time are limited
}

// attemptTimeout bounds one connection.
const attemptTimeout = 10 * time.Second

// attemptMain makes every attempt and writes what came of it, then stays until it
// is killed, with a process that tries to outlive it.
func attemptMain(arg string) int {
	switch arg {
	case "wait":
		time.Sleep(time.Minute)
		return 0
	case "burn":
		burn()
		return 0
	case "exceed":
		go burn()
		_, _ = io.Copy(io.Discard, os.Stdin) // it ends when the tree was seen to wait
		return hog(2 * rigMemory)
	}
	if n, err := strconv.ParseInt(arg, 10, 64); err == nil {
		return hog(n)
	}
	var t targets
	if err := json.Unmarshal([]byte(arg), &t); err != nil {
		fmt.Fprintln(os.Stderr, "spool:", err)
		return 2
	}
	for _, a := range t.attempts() {
		err := a.try()
		r := Attempt{Name: a.name, Guarantee: a.guarantee, Escaped: err == nil}
		if err != nil {
			r.Errno = errnoName(err)
		}
		if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
			return 1
		}
	}
	// It has the pipe of this process open, so that its end can be seen.
	_, err := syscall.ForkExec(self, []string{"spool", Role, "attempt", "wait"}, &syscall.ProcAttr{
		Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true}})
	r := Attempt{Name: "daemon", Guarantee: Kills, Escaped: err == nil} // to be corrected by who kills it
	if err != nil {
		r.Errno = errnoName(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		return 1
	}
	time.Sleep(time.Minute)
	return 0
}

// errnoName returns the name of the errno in an error, or its text.
func errnoName(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return unix.ErrnoName(errno)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return "timeout"
	}
	return err.Error()
}

type attempt struct {
	name      string
	guarantee Guarantee
	try       func() error
}

func (t *targets) attempts() []attempt {
	file := filepath.Join(t.Outside, "file")
	list := []attempt{
		{"read-outside", Reads, func() error { return read(file) }},
		{"list-outside", Reads, func() error { _, err := os.ReadDir(t.Outside); return err }},
		{"read-through-link", Reads, func() error { return t.readThrough("readlink", file) }},
		{"read-through-root", Reads, func() error { return read("/proc/self/root" + file) }},
		{"create-outside", Writes, func() error { return create(filepath.Join(t.Outside, "new")) }},
		{"write-outside", Writes, func() error { return overwrite(file) }},
		{"truncate-outside", Writes, func() error { return unix.Truncate(file, 0) }},
		{"link-outside", Writes, func() error { return os.Link(file, filepath.Join(t.Outside, "link")) }},
		{"rename-outside", Writes, func() error { return os.Rename(file, file+"2") }},
		{"remove-outside", Writes, func() error { return os.Remove(filepath.Join(t.Outside, "second")) }},
		{"symlink-escape", Writes, t.throughSymlink},
		{"sysctl", Writes, sysctl},
		{"create-protected", Protects, func() error { return create(filepath.Join(t.Workspace, ".git", "new")) }},
		{"write-protected", Protects, func() error { return overwrite(filepath.Join(t.Workspace, ".git", "config")) }},
		{"rename-protected", Protects, func() error {
			return os.Rename(filepath.Join(t.Workspace, ".git"), filepath.Join(t.Workspace, "git"))
		}},
		{"make-protected", Protects, func() error { return create(filepath.Join(t.Workspace, ".missing", "x")) }},
		{"tcp", NoNetwork, func() error { return dial("tcp", t.TCP) }},
		{"udp", NoNetwork, t.udp},
		{"unix-socket", NoNetwork, func() error { return dial("unix", t.Socket) }},
		{"netlink", NoNetwork, func() error { return socket(unix.AF_NETLINK, unix.SOCK_RAW) }},
		{"vsock", NoNetwork, func() error { return socket(unix.AF_VSOCK, unix.SOCK_STREAM) }},
		{"packet", NoNetwork, func() error { return socket(unix.AF_PACKET, unix.SOCK_RAW) }},
		{"abstract-socket", Apart, func() error { return dial("unix", "@"+t.Abstract) }},
		{"signal", Apart, func() error { return t.signal() }},
		{"ptrace", Apart, func() error {
			_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(t.Victim), 0, 0, 0, 0)
			return errnoOrNil(errno)
		}},
		{"read-memory", Apart, t.readMemory},
		{"environ", Apart, t.environ},
		{"see", Apart, t.see},
		{"kernel", Narrow, t.sameKernel},
		{"rare-calls", Narrow, rareCalls},
	}
	if t.Proxy != "" {
		for i, a := range list {
			if a.guarantee == NoNetwork { // there is nothing but the proxy
				list[i].guarantee = Proxied
			}
		}
		list = append(list, attempt{"tcp-allowed", Proxied, func() error { return dial("tcp", t.Allowed) }},
			attempt{"proxy-refused", Proxied, func() error { return t.tunnel(t.TCP) }},
			attempt{"proxy-unusable", Proxied, t.proxyUnusable})
	}
	if t.Processes > 0 {
		list = append(list, attempt{"fork-bomb", Processes, func() error { return forkMany(4 * t.Processes) }})
	}
	if t.Memory > 0 {
		if !t.Whole {
			list = append(list, attempt{"exceed-memory", Memory, t.exceedMemory})
		}
	}
	return list
}

func errnoOrNil(errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

func create(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte("escaped"), 0o644)
}

func overwrite(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("escaped")
	return errors.Join(err, f.Close())
}

// throughSymlink writes through a link in the workspace that leads out of it.
func (t *targets) throughSymlink() error {
	link := filepath.Join(t.Workspace, "link")
	if err := os.Symlink(t.Outside, link); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return create(filepath.Join(link, "through"))
}

// sysctl writes a setting of the kernel that any value is fine for: the one it has.
func sysctl() error {
	const file = "/proc/sys/kernel/core_pattern"
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}

func dial(network, address string) error {
	c, err := net.DialTimeout(network, address, attemptTimeout)
	if err != nil {
		return err
	}
	return c.Close()
}

// tunnel connects to an address through the proxy.
func (t *targets) tunnel(address string) error {
	c, err := net.DialTimeout("tcp", t.Proxy, attemptTimeout)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(attemptTimeout)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", address, address); err != nil {
		return err
	}
	var version, text string
	var code int
	if _, err := fmt.Fscanf(c, "%s %d %s", &version, &code, &text); err != nil {
		return err
	}
	if code != 200 {
		return fmt.Errorf("%d %s", code, text)
	}
	return nil
}

// proxyUnusable succeeds if the proxy does not lead to the address that it allows: a
// run would then have no network at all.
func (t *targets) proxyUnusable() error {
	if err := t.tunnel(t.Allowed); err == nil {
		return errors.New("reached")
	}
	return nil
}

// udp sends a datagram and waits for the reply.
func (t *targets) udp() error {
	c, err := net.DialTimeout("udp", t.UDP, attemptTimeout)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(attemptTimeout)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("x")); err != nil {
		return err
	}
	_, err = c.Read(make([]byte, 1))
	return err
}

func socket(family, kind int) error {
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// isVictim reports whether the process with the number of the victim is the
// victim: in another PID namespace it is another one, or none.
func (t *targets) isVictim() error {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(t.Victim) + "/cmdline")
	if err != nil {
		return err
	}
	if !bytes.Contains(b, []byte(Role)) {
		return unix.ESRCH
	}
	return nil
}

func (t *targets) see() error { return t.isVictim() }

func (t *targets) signal() error {
	// Without /proc it cannot be known who is signalled; a signal that ends
	// no process will do.
	if _, err := os.Stat("/proc/self/task/" + strconv.Itoa(t.Victim)); err == nil {
		return unix.ESRCH // in another PID namespace this process has that number
	}
	return unix.Kill(t.Victim, unix.SIGWINCH)
}

func (t *targets) environ() error {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(t.Victim) + "/environ")
	if err != nil {
		return err
	}
	if !strings.Contains(string(b), t.Secret) {
		return unix.ESRCH
	}
	return nil
}

func (t *targets) readMemory() error {
	if err := t.isVictim(); err != nil {
		return err
	}
	f, err := os.OpenFile("/proc/"+strconv.Itoa(t.Victim)+"/mem", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// kernelName names the kernel that this process runs on.
func kernelName() (string, error) {
	var u unix.Utsname
	err := unix.Uname(&u)
	return unix.ByteSliceToString(u.Release[:]) + " " + unix.ByteSliceToString(u.Version[:]), err
}

// sameKernel succeeds if this process runs on the machine's own kernel.
func (t *targets) sameKernel() error {
	name, err := kernelName()
	if err == nil && name != t.Kernel {
		err = errors.New("another kernel")
	}
	return err
}

// rareCalls makes system calls that programs hardly need. An error of the call itself
// shows that it reached the code behind it, so only a kernel without it refuses.
func rareCalls() error {
	for _, call := range []uintptr{unix.SYS_FSOPEN, unix.SYS_LANDLOCK_CREATE_RULESET, unix.SYS_FUTEX_WAITV, unix.SYS_CACHESTAT} {
		if _, _, errno := unix.Syscall6(call, ^uintptr(0), 0, 0, 0, 0, 0); errno != unix.ENOSYS {
			return nil
		}
	}
	return unix.ENOSYS
}

// forkMany starts so many processes at once. It ends them all.
func forkMany(n int) (err error) {
	var pids []int
	for range n {
		pid, errno := forkPause()
		if errno != 0 {
			err = errno
			break
		}
		pids = append(pids, pid)
	}
	for _, pid := range pids {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	for _, pid := range pids {
		reap(pid)
	}
	return err
}

// forkPause forks a process that waits to be killed.
//
//go:norace
func forkPause() (int, syscall.Errno) {
	pid, _, errno := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno == 0 && pid == 0 {
		for {
			_, _, _ = syscall.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
		}
	}
	return int(pid), errno
}
