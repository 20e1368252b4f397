package lateinit

import (
	"slices"
	"testing"
	"unsafe"
)

// laidOut is a package as the linker writes it, with two functions.
type laidOut struct {
	Package
	functions [2]uintptr // addresses of code
}

// code returns the address of the code of a function that captures nothing.
func code(f func()) uintptr { return **(**uintptr)(unsafe.Pointer(&f)) }

var called []string

func TestRun(t *testing.T) {
	first := laidOut{Package{count: 2}, [2]uintptr{
		code(func() { called = append(called, "first 1") }),
		code(func() { called = append(called, "first 2") }),
	}}
	second := laidOut{Package{count: 1}, [2]uintptr{code(func() { called = append(called, "second") })}}
	before := laidOut{Package{state: done, count: 1}, [2]uintptr{code(func() { called = append(called, "it was initialised before") })}}

	held := Hold(&first.Package, &before.Package, &second.Package)
	if want := []*Package{&first.Package, &second.Package}; !slices.Equal(held, want) {
		t.Fatalf("held %v, want %v", held, want)
	}
	if first.state != done || second.state != done {
		t.Errorf("the states are %d and %d: the packages would be initialised at the start", first.state, second.state)
	}
	if len(called) > 0 {
		t.Errorf("%v ran before its time", called)
	}
	Run(held)
	if want := []string{"first 1", "first 2", "second"}; !slices.Equal(called, want) {
		t.Errorf("ran %v, want %v", called, want)
	}
}
