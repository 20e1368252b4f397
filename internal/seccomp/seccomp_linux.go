//go:build amd64 || arm64

// Package seccomp assembles and installs filters of system calls.
//
// A filter is a program of the classic packet filter that the kernel runs at
// each system call. It first checks the architecture, so that a number means
// the call it names, then goes through its rules in order; the first rule that
// names the call decides.
package seccomp

import (
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Action is what the kernel does with a system call.
type Action uint32

// The actions, besides [Errno].
const (
	Allow Action = 0x7fff0000
	Kill  Action = 0x80000000 // the whole process
)

const actionErrno = 0x00050000

// Errno refuses a call with an error.
func Errno(e unix.Errno) Action { return actionErrno | Action(e) }

// Instructions of the filter, and the parts of a call that it can load.
const (
	load  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	equal = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	least = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
	anyOf = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
	ret   = unix.BPF_RET | unix.BPF_K

	offsetNumber = 0
	offsetArch   = 4
	offsetArgs   = 16
)

// x32Bit marks the numbers of the x32 calls, which amd64 kernels may offer too.
const x32Bit = 0x40000000

// Filter is a filter that is being assembled.
type Filter struct {
	program Program
}

// New returns a filter without rules.
func New() *Filter {
	f := &Filter{}
	f.add(load, offsetArch, 0, 0)
	f.add(equal, auditArch, 1, 0)
	f.ret(Kill)
	f.add(load, offsetNumber, 0, 0)
	if hasX32 {
		f.add(least, x32Bit, 0, 1)
		f.ret(Errno(unix.ENOSYS))
	}
	return f
}

func (f *Filter) add(code uint16, k uint32, yes, no uint8) {
	f.program = append(f.program, unix.SockFilter{Code: code, Jt: yes, Jf: no, K: k})
}

func (f *Filter) ret(a Action) { f.add(ret, uint32(a), 0, 0) }

// maxBlock is how many calls one block of a rule has: its jumps, which can skip 255
// instructions, stay inside of it.
const maxBlock = 100

// On adds the rule that the calls have the action. It finds a call by a search
// tree: at each install the kernel goes through the filter for every call that
// there is.
func (f *Filter) On(a Action, calls ...uint32) {
	for block := range slices.Chunk(slices.Sorted(slices.Values(calls)), maxBlock) {
		var found, missed []int // instructions that jump to the return, and over it
		f.search(block, &found, &missed)
		end := len(f.program)
		f.ret(a)
		for _, at := range found {
			f.program[at].Jt = uint8(end - at - 1)
		}
		for _, at := range missed {
			f.program[at].Jf = uint8(end - at)
		}
	}
}

// search adds instructions that look for the number among sorted ones.
func (f *Filter) search(calls []uint32, found, missed *[]int) {
	const few = 3
	if len(calls) > few {
		middle := len(calls) / 2
		split := len(f.program)
		f.add(least, calls[middle], 0, 0)
		f.search(calls[:middle], found, missed)
		f.program[split].Jt = uint8(len(f.program) - split - 1)
		f.search(calls[middle:], found, missed)
		return
	}
	for range calls {
		*found = append(*found, len(f.program))
		f.add(equal, calls[0], 0, 0)
		calls = calls[1:]
	}
	*missed = append(*missed, len(f.program)-1)
}

// Test is a condition on the lower 32 bits of an argument, and the action of a
// call that meets it.
type Test struct {
	code  uint16
	value uint32
	then  Action
}

// Equal is met by an argument with that value.
func Equal(value uint32, then Action) Test { return Test{equal, value, then} }

// AnyBit is met by an argument that has any of the bits.
func AnyBit(bits uint32, then Action) Test { return Test{anyOf, bits, then} }

// OnArg adds a rule for one call that looks at one of its arguments, counted
// from 0. The first test that the argument meets decides; if it meets none, the
// call has the action otherwise.
func (f *Filter) OnArg(call uint32, arg int, otherwise Action, tests ...Test) {
	f.add(equal, call, 0, uint8(2+2*len(tests)))
	f.add(load, uint32(offsetArgs+8*arg), 0, 0)
	for _, t := range tests {
		f.add(t.code, t.value, 0, 1)
		f.ret(t.then)
	}
	f.ret(otherwise)
}

// Program returns the filter, with the action of all calls that no rule names.
func (f *Filter) Program(otherwise Action) Program {
	f.ret(otherwise)
	return f.program
}

// Program is a complete filter, as the kernel takes it.
type Program []unix.SockFilter

// Install puts the filter on this thread, and so on the threads and processes
// that it starts. The caller has locked the goroutine to the thread and has set
// no_new_privs. It cannot be undone.
func (p Program) Install() error { return p.install(0) }

// InstallAll puts the filter on all threads of this process.
func (p Program) InstallAll() error { return p.install(unix.SECCOMP_FILTER_FLAG_TSYNC) }

func (p Program) install(flags uintptr) error {
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	thread, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(p)
	if errno != 0 {
		return fmt.Errorf("install seccomp filter: %w", errno)
	}
	if thread != 0 {
		return fmt.Errorf("install seccomp filter: thread %d has another", thread)
	}
	return nil
}

// Supported reports whether the kernel has filters that can refuse calls with
// an error.
func Supported() bool {
	action := uint32(actionErrno)
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
	return errno == 0
}
