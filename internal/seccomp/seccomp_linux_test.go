//go:build amd64 || arm64

package seccomp

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/skiptest"
)

// run executes a program as the kernel does.
func run(t *testing.T, p Program, arch, number uint32, args ...uint64) Action {
	t.Helper()
	action, _ := trace(t, p, arch, number, args...)
	return action
}

// trace executes a program and counts its instructions.
func trace(t *testing.T, p Program, arch, number uint32, args ...uint64) (_ Action, steps int) {
	t.Helper()
	var acc, index uint32
	for pc := 0; pc < len(p); pc++ {
		steps++
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
				acc = uint32(args[(i.K-offsetArgs)/8] >> (i.K % 8 * 8))
			}
		case xor:
			acc ^= i.K
		case orX:
			acc |= index
		case keep:
			index = acc
		case equal:
			jump(acc == i.K)
		case least:
			jump(acc >= i.K)
		case anyOf:
			jump(acc&i.K != 0)
		case skip:
			pc += int(i.K)
		case ret:
			return Action(i.K), steps
		default:
			t.Fatalf("unknown instruction %#x", i.Code)
		}
	}
	t.Fatal("the program has no end")
	return 0, 0
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

// TestKey makes a call with its key, and with each bit of the key wrong.
func TestKey(t *testing.T) {
	deny := Errno(unix.EPERM)
	key := NewKey()
	f := New()
	f.OnKey(key, deny, unix.SYS_SETNS)
	f.On(deny, unix.SYS_SETNS, unix.SYS_SETNS-1, unix.SYS_SETNS+1)
	p := f.Program(Allow)
	args := key.Args()
	with := func(a, b uintptr) []uint64 { return []uint64{1, 2, 3, 4, uint64(a), uint64(b)} }
	if got := run(t, p, auditArch, unix.SYS_SETNS, with(args[0], args[1])...); got != Allow {
		t.Errorf("with the key: action %#x, want Allow", got)
	}
	_, steps := trace(t, p, auditArch, unix.SYS_SETNS, with(0, 0)...)
	for bit := range 128 {
		wrong := args
		wrong[bit/64] ^= 1 << (bit % 64)
		got, n := trace(t, p, auditArch, unix.SYS_SETNS, with(wrong[0], wrong[1])...)
		if got != deny {
			t.Errorf("bit %d is wrong: action %#x, want EPERM", bit, got)
		}
		if n != steps {
			t.Errorf("bit %d is wrong: %d instructions, others take %d", bit, n, steps)
		}
	}
	for _, call := range []uint32{unix.SYS_SETNS - 1, unix.SYS_SETNS + 1} {
		if got := run(t, p, auditArch, call, with(args[0], args[1])...); got != deny {
			t.Errorf("call %d with the key: action %#x, want EPERM", call, got)
		}
	}
	if other := NewKey(); *other == *key {
		t.Error("two keys are equal")
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

// TestRandomRules compares programs with the rules they were made of, for all numbers
// near those of a rule.
func TestRandomRules(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	actions := []Action{Allow, Kill, Errno(unix.EPERM), Errno(unix.ENOSYS)}
	for range 300 {
		f := New()
		want := make(map[uint32]Action) // of an argument 1
		first := uint32(random.IntN(2) * random.IntN(2000))
		for range random.IntN(40) {
			call := first + uint32(random.IntN(600))
			action, other := actions[random.IntN(len(actions))], actions[random.IntN(len(actions))]
			switch random.IntN(4) {
			case 3:
				f.OnKey(NewKey(), action, call)
			case 0:
				f.OnArg(call, random.IntN(6), other, Equal(2, Kill), AnyBit(5, action))
			case 1: // the tests of another argument
				f.OnArg(call, random.IntN(6), action, Equal(2, other), AnyBit(4, other), Equal(0, other))
			default:
				calls := []uint32{call, call + 1, call + uint32(random.IntN(300))}
				f.On(action, calls...)
				for _, c := range calls[1:] {
					if _, ok := want[c]; !ok {
						want[c] = action
					}
				}
			}
			if _, ok := want[call]; !ok {
				want[call] = action
			}
		}
		otherwise := actions[random.IntN(len(actions))]
		p := f.Program(otherwise)
		for number := max(first, 2) - 2; number < first+1000; number++ {
			action, ok := want[number]
			if !ok {
				action = otherwise
			}
			if got := run(t, p, auditArch, number, 1, 1, 1, 1, 1, 1); got != action {
				t.Fatalf("call %d: action %#x, want %#x", number, got, action)
			}
		}
	}
}

// TestShortPaths bounds the work of an install, where the kernel runs the program for
// every call.
func TestShortPaths(t *testing.T) {
	var calls []uint32
	for n := range uint32(60) {
		calls = append(calls, 7*n)
	}
	f := New()
	f.On(Errno(unix.EPERM), calls...)
	p := f.Program(Allow)
	const all = 460
	sum := 0
	for n := range uint32(all) {
		_, steps := trace(t, p, auditArch, n)
		sum += steps
	}
	if mean := float64(sum) / all; mean > 12 {
		t.Errorf("%.1f instructions for a call, want 12 or fewer", mean)
	}
	if len(p) > 2*len(calls)+10 {
		t.Errorf("%d instructions for %d rules", len(p), len(calls))
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
			key := NewKey()
			f.OnKey(key, Errno(unix.EDOM), unix.SYS_PERSONALITY)
			if err := f.Program(Allow).Install(); err != nil {
				return err
			}
			if _, _, errno := unix.RawSyscall(unix.SYS_PERSONALITY, 0xffffffff, 0, 0); errno != unix.EDOM {
				return errors.Join(errors.New("the filter has no effect"), errno)
			}
			if _, _, errno := unix.RawSyscall6(unix.SYS_PERSONALITY, 0xffffffff, 0, 0, 0, key.Args()[0], key.Args()[1]); errno != 0 {
				return errors.Join(errors.New("the key has no effect"), errno)
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
