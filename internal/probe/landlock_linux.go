package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The first versions of Landlock's interface that restrict more than files.
const (
	abiTCP     = 4
	abiSignals = 6
)

// TryLandlock restricts a child to one directory and has it reach beyond: read
// a file elsewhere, create one, connect to a socket of this process, signal this
// process. All succeed before the restriction and must fail after it.
func TryLandlock(ctx context.Context) (Landlocked, error) {
	dir, err := os.MkdirTemp("", "spool-probe-")
	if err != nil {
		return Landlocked{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for _, name := range []string{"inside", "outside"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			return Landlocked{}, err
		}
		if err := os.WriteFile(filepath.Join(dir, name, "file"), []byte(name), 0o600); err != nil {
			return Landlocked{}, err
		}
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return Landlocked{}, fmt.Errorf("listen for the child: %w", err)
	}
	defer l.Close() // the kernel accepts connections without an Accept
	var found Landlocked
	err = ask(command(ctx, "landlock", dir, l.Addr().String(), strconv.Itoa(os.Getpid())), &found)
	return found, err
}

// reach is what a restricted child tries.
type reach struct {
	dir, address string
	parent       int
}

func (r reach) read() error {
	_, err := os.ReadFile(filepath.Join(r.dir, "outside", "file"))
	return err
}

func (r reach) write() error {
	name := filepath.Join(r.dir, "inside", "new")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		return err
	}
	return os.Remove(name)
}

func (r reach) connect() error {
	c, err := net.Dial("tcp4", r.address)
	if err != nil {
		return err
	}
	return c.Close()
}

func (r reach) signal() error { return unix.Kill(r.parent, 0) }

func landlockTask(args []string) (any, error) {
	if len(args) != 3 {
		return nil, errors.New("usage: landlock directory address pid")
	}
	r := reach{dir: args[0], address: args[1]}
	var err error
	if r.parent, err = strconv.Atoi(args[2]); err != nil {
		return nil, err
	}
	for what, try := range map[string]func() error{"read": r.read, "write": r.write, "connect": r.connect, "signal": r.signal} {
		if err := try(); err != nil {
			return nil, failed(err, "%s before the restriction", what)
		}
	}
	runtime.LockOSThread() // Landlock restricts a thread; this one ends with the process
	abi, err := restrict(filepath.Join(r.dir, "inside"))
	if err != nil {
		return nil, err
	}
	if _, err := os.ReadFile(filepath.Join(r.dir, "inside", "file")); err != nil {
		return nil, failed(err, "read what is allowed")
	}
	found := Landlocked{ABI: abi, Reads: denied(r.read()), Writes: denied(r.write())}
	found.TCP = abi >= abiTCP && denied(r.connect())
	found.Signals = abi >= abiSignals && denied(r.signal())
	switch {
	case !found.Reads:
		err = failed(errNoEffect, "read of a file outside after landlock_restrict_self")
	case !found.Writes:
		err = failed(errNoEffect, "write after landlock_restrict_self")
	case abi >= abiTCP && !found.TCP:
		err = failed(errNoEffect, "connect after landlock_restrict_self")
	case abi >= abiSignals && !found.Signals:
		err = failed(errNoEffect, "kill after landlock_restrict_self")
	}
	return found, err
}

func denied(err error) bool { return errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) }

// restrict lets this thread only read below a directory, and neither connect nor
// signal others, as far as the kernel's version of Landlock goes.
func restrict(dir string) (abi int, err error) {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0, failed(errno, "landlock_create_ruleset")
	}
	abi = int(version)
	const read = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	attr := unix.LandlockRulesetAttr{Handled_access_fs: read | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE}
	if abi >= abiTCP {
		attr.Handled_access_net = unix.LANDLOCK_ACCESS_NET_CONNECT_TCP | unix.LANDLOCK_ACCESS_NET_BIND_TCP
	}
	if abi >= abiSignals {
		attr.Scoped = unix.LANDLOCK_SCOPE_SIGNAL | unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
	}
	rules, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return abi, failed(errno, "landlock_create_ruleset")
	}
	defer unix.Close(int(rules))
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return abi, err
	}
	defer unix.Close(fd)
	beneath := unix.LandlockPathBeneathAttr{Allowed_access: read, Parent_fd: int32(fd)}
	if _, _, errno = unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, rules, unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&beneath)), 0, 0, 0); errno != 0 {
		return abi, failed(errno, "landlock_add_rule")
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return abi, failed(err, "prctl(PR_SET_NO_NEW_PRIVS)")
	}
	if _, _, errno = unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, rules, 0, 0); errno != 0 {
		return abi, failed(errno, "landlock_restrict_self")
	}
	return abi, nil
}
