//go:build amd64 || arm64

// Package seccomp assembles and installs filters of system calls.
//
// A filter is a program of the classic packet filter that the kernel runs at
// each system call. It first checks the architecture, so that a number means
// the call it names, then finds the rule of the call by a search tree. At each
// install the kernel runs the filter for every call that there is and translates
// it, so a program that is short, and short for most calls, is cheap to install.
package seccomp

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
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
	skip  = unix.BPF_JMP | unix.BPF_JA
	ret   = unix.BPF_RET | unix.BPF_K
	xor   = unix.BPF_ALU | unix.BPF_XOR | unix.BPF_K
	orX   = unix.BPF_ALU | unix.BPF_OR | unix.BPF_X
	keep  = unix.BPF_MISC | unix.BPF_TAX

	offsetNumber = 0
	offsetArch   = 4
	offsetArgs   = 16
)

// x32Bit marks the numbers of the x32 calls, which amd64 kernels may offer too.
const x32Bit = 0x40000000

// Filter is a filter that is being assembled. The first rule that names a call
// decides.
type Filter struct {
	rules map[uint32]*rule // by the number of the call
}

// rule is what becomes of a call: an action, or tests of an argument and the action
// of a call that meets none of them, or a key and the action of a call without it.
type rule struct {
	action Action
	arg    int
	tests  []Test
	key    *Key
}

// simple reports whether the rule is one action.
func (r *rule) simple() bool { return len(r.tests) == 0 && r.key == nil }

// New returns a filter without rules.
func New() *Filter { return &Filter{rules: make(map[uint32]*rule)} }

func (f *Filter) add(call uint32, r *rule) {
	if f.rules[call] == nil {
		f.rules[call] = r
	}
}

// On adds the rule that the calls have the action.
func (f *Filter) On(a Action, calls ...uint32) {
	for _, call := range calls {
		f.add(call, &rule{action: a})
	}
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
	f.add(call, &rule{action: otherwise, arg: arg, tests: tests})
}

// Key is a secret that opens a filter for single calls.
type Key [16]byte

// NewKey returns a new key.
func NewKey() *Key {
	k := new(Key)
	_, _ = rand.Read(k[:]) // it never fails
	return k
}

// Args returns the key as the last two of the six arguments of a call.
func (k *Key) Args() [2]uintptr {
	return [2]uintptr{uintptr(binary.LittleEndian.Uint64(k[:8])), uintptr(binary.LittleEndian.Uint64(k[8:]))}
}

// OnKey adds the rule that calls have the action unless they come with the key. They
// must be calls that take no more than four arguments. A process that has the filter
// from its parent can so be made what it is to be, and has nothing of the key once it
// has executed a program.
func (f *Filter) OnKey(k *Key, otherwise Action, calls ...uint32) {
	for _, call := range calls {
		f.add(call, &rule{action: otherwise, key: k})
	}
}

// Program returns the filter, with the action of all calls that no rule names.
func (f *Filter) Program(otherwise Action) Program {
	a := &assembler{returns: make(map[Action]label)}
	a.load(offsetNumber, a.find(f.ranges(&rule{action: otherwise}), math.MaxUint32))
	calls := a.last()
	other := a.ret(Kill)
	a.load(offsetArch, a.jump(equal, auditArch, calls, other))
	slices.Reverse(a.program)
	return a.program
}

// span is consecutive calls with one rule. It ends where the next one begins.
type span struct {
	first uint32
	rule  *rule
}

// from returns how far the span begins from a call.
func (s span) from(call int) int { return apart(min(int(s.first), allCalls), call) }

func apart(a, b int) int { return max(a-b, b-a) }

// same reports whether two rules are one.
func same(a, b *rule) bool {
	return a == b || a.simple() && b.simple() && a.action == b.action
}

// ranges returns the rules of all numbers, in order.
func (f *Filter) ranges(otherwise *rule) []span {
	var list []span
	from := func(first uint32, r *rule) {
		if n := len(list); n > 0 && list[n-1].first == first {
			list = list[:n-1]
		}
		if n := len(list); n == 0 || !same(list[n-1].rule, r) {
			list = append(list, span{first, r})
		}
	}
	from(0, otherwise)
	for _, call := range slices.Sorted(maps.Keys(f.rules)) {
		from(call, f.rules[call])
		from(call+1, otherwise)
	}
	if hasX32 {
		from(x32Bit, &rule{action: Errno(unix.ENOSYS)})
	}
	return list
}

// assembler puts a program together from its end to its beginning: jumps only lead
// forward, so the instruction that they lead to is there already.
type assembler struct {
	program Program // the last instruction first
	returns map[Action]label
}

// label is the number of an instruction, counted from the end of the program.
type label int

// maxJump is how many instructions a conditional jump can skip.
const maxJump = math.MaxUint8

func (a *assembler) last() label { return label(len(a.program) - 1) }

func (a *assembler) add(i unix.SockFilter) label {
	a.program = append(a.program, i)
	return a.last()
}

// ret returns the label of an instruction that returns an action.
func (a *assembler) ret(action Action) label {
	at, ok := a.returns[action]
	if !ok || a.distance(at) > maxJump/2 { // so that a jump will reach it
		at = a.add(unix.SockFilter{Code: ret, K: uint32(action)})
		a.returns[action] = at
	}
	return at
}

// distance is how many instructions are between the next one and another.
func (a *assembler) distance(to label) int { return int(a.last() - to) }

// load adds an instruction that loads a part of the call, before those at next.
func (a *assembler) load(offset uint32, next label) label {
	if next != a.last() {
		a.skip(next)
	}
	return a.add(unix.SockFilter{Code: load, K: offset})
}

// jump adds a conditional jump.
func (a *assembler) jump(code uint16, k uint32, yes, no label) label {
	if a.distance(yes) >= maxJump { // one more may come between
		yes = a.skip(yes)
	}
	if a.distance(no) > maxJump {
		no = a.skip(no)
	}
	return a.add(unix.SockFilter{Code: code, K: k, Jt: uint8(a.distance(yes)), Jf: uint8(a.distance(no))})
}

// skip adds a jump of any length.
func (a *assembler) skip(to label) label {
	return a.add(unix.SockFilter{Code: skip, K: uint32(a.distance(to))})
}

// apply returns the label of instructions that apply a rule.
func (a *assembler) apply(r *rule) label {
	at := a.ret(r.action)
	if r.key != nil {
		return a.unlock(r.key, at)
	}
	if len(r.tests) == 0 {
		return at
	}
	for _, t := range slices.Backward(r.tests) {
		at = a.jump(t.code, t.value, a.ret(t.then), at)
	}
	return a.load(uint32(offsetArgs+8*r.arg), at)
}

// unlock returns the label of instructions that allow a call with the key. They take
// as long for every other key, so that no part of it can be guessed alone.
func (a *assembler) unlock(k *Key, locked label) label {
	at := a.jump(equal, 0, a.ret(Allow), locked)
	for part := 3; part >= 0; part-- { // any bit that differs stays in the accumulator
		if part < 3 {
			a.add(unix.SockFilter{Code: keep})
		}
		if part > 0 {
			a.add(unix.SockFilter{Code: orX})
		}
		at = a.add(unix.SockFilter{Code: xor, K: binary.LittleEndian.Uint32(k[4*part:])})
		at = a.load(uint32(offsetArgs+8*4+4*part), at)
	}
	return at
}

// allCalls is more than the number of any call today. The kernel tries the filter with
// the numbers below.
const allCalls = 512

// find returns the label of instructions that find the rule of the number that was
// loaded, which is below end.
func (a *assembler) find(list []span, end uint32) label {
	if len(list) == 1 {
		return a.apply(list[0].rule)
	}
	if len(list) == 3 && list[1].first+1 == list[2].first && same(list[0].rule, list[2].rule) { // one call among others
		others := a.apply(list[0].rule)
		return a.jump(equal, list[1].first, a.apply(list[1].rule), others)
	}
	// Half of the calls on each side, or else half of the rules.
	half := (min(int(list[0].first), allCalls) + min(int(end), allCalls)) / 2
	middle := 1
	for i := range list {
		if i > 0 && cmp.Or(cmp.Compare(list[i].from(half), list[middle].from(half)), cmp.Compare(apart(i, len(list)/2), apart(middle, len(list)/2))) < 0 {
			middle = i
		}
	}
	above := a.find(list[middle:], end)
	below := a.find(list[:middle], list[middle].first)
	return a.jump(least, list[middle].first, above, below)
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
