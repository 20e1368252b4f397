//go:build amd64 || arm64

package isolate

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// systemReadable is what a run can always read: the system's programs and libraries,
// and the settings without which programs do not start or do not know the machine.
// None of it is secret on any machine.
var systemReadable = []string{
	"/bin", "/sbin", "/usr", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store",
	"/dev/random", "/dev/urandom", "/sys/devices/system/cpu",
	"/etc/alternatives", "/etc/bash.bashrc", "/etc/ca-certificates", "/etc/default/locale", "/etc/environment", "/etc/fonts", "/etc/gai.conf",
	"/etc/group", "/etc/host.conf", "/etc/hostname", "/etc/hosts", "/etc/inputrc", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d",
	"/etc/locale.alias", "/etc/localtime", "/etc/magic", "/etc/mime.types", "/etc/nsswitch.conf", "/etc/os-release", "/etc/passwd", "/etc/pki/tls/certs",
	"/etc/profile", "/etc/profile.d", "/etc/protocols", "/etc/resolv.conf", "/etc/services", "/etc/shells", "/etc/ssl/certs", "/etc/ssl/openssl.cnf",
	"/etc/terminfo", "/etc/timezone",
}

// libraries is what programs are loaded with.
var libraries = []string{"/lib", "/lib32", "/lib64", "/libx32", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32", "/usr/local/lib", "/nix/store", "/etc/ld.so.cache"}

// reads returns all that a run with the policy can read beside what is writable, and
// more; nil means everything.
func (p *Policy) reads(more ...string) []string {
	if !p.Need.Has(Reads) {
		return nil
	}
	list := []string{} // not nil
	switch {
	case p.Only:
		list = append(append(list, self), libraries...)
	case !p.Bare:
		list = append(list, systemReadable...)
	}
	list = append(list, more...)
	return append(append(list, p.Readable...), p.Protected...)
}

func read(path string) error {
	_, err := os.ReadFile(path)
	return err
}

// readThrough reads through a link in the workspace.
func (t *targets) readThrough(name, to string) error {
	link := filepath.Join(t.Workspace, name)
	if err := os.Symlink(to, link); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return read(link)
}

// exceedMemory has a process use more than the limit of memory.
func (t *targets) exceedMemory() error {
	pid, err := syscall.ForkExec(self, []string{"spool", Role, "attempt", strconv.FormatInt(t.Memory, 10)}, &syscall.ProcAttr{Files: []uintptr{0, 1, 2}})
	if err != nil {
		return err
	}
	var status unix.WaitStatus
	for {
		if _, err := unix.Wait4(pid, &status, 0, nil); err != unix.EINTR {
			break
		}
	}
	if status.Exited() && status.ExitStatus() == 0 {
		return nil
	}
	return errors.New("killed")
}

// hog is the process of exceedMemory.
//
//go:norace
func hog(n int64) int {
	b, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return 1
	}
	for i := 0; i < len(b); i += os.Getpagesize() {
		b[i] = 1
	}
	return 0
}

// burn uses all processor time that this thread gets, for a minute.
func burn() {
	for began := time.Now(); time.Since(began) < time.Minute; {
	}
}

// The limit of processor time of the process that uses more, and how long it may take
// to reach it.
const (
	burnCPUs = 0.02
	burnTime = 10 * time.Second
)
