//go:build amd64 || arm64

package seccomp

import (
	"errors"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/skiptest"
)

// run executes a program as the kernel does.
func run(t *testing.T, p Program, arch, number uint32, args ...uint64) Action {
	t.Helper()
	var acc uint32
	for pc := 0; pc < len(p); pc++ {
		i := p[pc]
		jump := func(met bool) {
			if met {
				pc += int(i.Jt)
			} else {
				pc += int(i.Jf)
			}
		}
		switch i.Code {
		case load:
			switch i.K {
			case offsetNumber:
				acc = number
			case offsetArch:
				acc = arch
			default:
				acc = uint32(args[(i.K-offsetArgs)/8])
			}
		case equal:
			jump(acc == i.K)
		case least:
			jump(acc >= i.K)
		case anyOf:
			jump(acc&i.K != 0)
		case ret:
			return Action(i.K)
		default:
			t.Fatalf("unknown instruction %#x", i.Code)
		}
	}
	t.Fatal("the program has no end")
	return 0
}

func TestRules(t *testing.T) {
	deny := Errno(unix.EPERM)
	f := New()
	f.OnArg(unix.SYS_CLONE, 0, deny,
		AnyBit(unix.CLONE_NEWUSER|unix.CLONE_NEWNET, Errno(unix.EACCES)),
		AnyBit(unix.CLONE_THREAD, Allow),
		Equal(uint32(unix.SIGCHLD), Allow))
	f.On(Errno(unix.ENOSYS), unix.SYS_CLONE3)
	f.OnArg(unix.SYS_MMAP, 2, Allow, AnyBit(unix.PROT_EXEC, deny))
	f.On(Allow, unix.SYS_READ, unix.SYS_WRITE)
	p := f.Program(Kill)
	for _, tt := range []struct {
		name   string
		number uint32
		args   []uint64
		want   Action
	}{
		{"first call of a rule", unix.SYS_READ, nil, Allow},
		{"last call of a rule", unix.SYS_WRITE, nil, Allow},
		{"no rule", unix.SYS_OPENAT, nil, Kill},
		{"an error", unix.SYS_CLONE3, nil, Errno(unix.ENOSYS)},
		{"first test", unix.SYS_CLONE, []uint64{unix.CLONE_NEWUSER | unix.CLONE_THREAD}, Errno(unix.EACCES)},
		{"second test", unix.SYS_CLONE, []uint64{unix.CLONE_THREAD | unix.CLONE_VM}, Allow},
		{"equal", unix.SYS_CLONE, []uint64{uint64(unix.SIGCHLD)}, Allow},
		{"almost equal", unix.SYS_CLONE, []uint64{uint64(unix.SIGCHLD) | unix.CLONE_PARENT}, deny},
		{"another argument", unix.SYS_MMAP, []uint64{unix.PROT_EXEC, unix.PROT_EXEC, unix.PROT_READ}, Allow},
		{"its bit", unix.SYS_MMAP, []uint64{0, 0, unix.PROT_READ | unix.PROT_EXEC}, deny},
	} {
		if got := run(t, p, auditArch, tt.number, tt.args...); got != tt.want {
			t.Errorf("%s: action %#x, want %#x", tt.name, got, tt.want)
		}
	}
	if got := run(t, p, auditArch+1, unix.SYS_READ); got != Kill {
		t.Errorf("another architecture: action %#x, want Kill", got)
	}
	if got := run(t, p, auditArch, x32Bit|unix.SYS_READ); hasX32 && got != Errno(unix.ENOSYS) {
		t.Errorf("an x32 call: action %#x, want ENOSYS", got)
	}
}

// TestManyCalls checks rules for more calls than one jump can skip.
func TestManyCalls(t *testing.T) {
	const count = 600
	var calls []uint32
	for n := range uint32(count) {
		calls = append(calls, 1000+n)
	}
	f := New()
	f.On(Errno(unix.EPERM), calls...)
	p := f.Program(Allow)
	for n := range uint32(count + 2) {
		want := Errno(unix.EPERM)
		if n == 0 || n == count+1 {
			want = Allow
		}
		if got := run(t, p, auditArch, 999+n); got != want {
			t.Errorf("call %d: action %#x, want %#x", 999+n, got, want)
		}
	}
}

func TestInstall(t *testing.T) {
	if !Supported() {
		skiptest.Missing(t, "this kernel has no filters")
	}
	errs := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread ends with the goroutine
		errs <- func() error {
			if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
				return err
			}
			f := New()
			f.On(Errno(unix.EDOM), unix.SYS_PERSONALITY)
			if err := f.Program(Allow).Install(); err != nil {
				return err
			}
			if _, _, errno := unix.RawSyscall(unix.SYS_PERSONALITY, 0xffffffff, 0, 0); errno != unix.EDOM {
				return errors.Join(errors.New("the filter has no effect"), errno)
			}
			return nil
		}()
	}()
	if err := <-errs; err != nil {
		t.Fatal(err)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_PERSONALITY, 0xffffffff, 0, 0); errno != 0 {
		t.Errorf("another thread is filtered: %v", errno)
	}
}
