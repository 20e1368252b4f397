// Package lateinit delays the initialisation of packages until they are used.
//
// Go initialises all packages of a program before its main function. The server of NATS
// and the client for S3 compile many regular expressions there and fill large tables. That
// took a sixth of the time in which any command begins, and few commands use them.
//
// For every package that has something to initialise, the linker writes down whether that
// is done, and which functions do it; see doInit1 of package runtime. The runtime passes
// over a package that is marked as done, and its functions can be called later.
//
// The marks are set by a package that is initialised before those that it marks, so it
// imports nothing but this one, which imports nothing but unsafe. It declares a variable
// for each of them and names it by go:linkname.
//
// Go does not promise what its linker writes. A build constraint restricts the declarations
// to versions of Go whose linker was looked at; built with any other, a program initialises
// all packages at its start, as usual.
package lateinit

import "unsafe"

// Package is what the linker writes for a package, as the variable PATH..inittask.
type Package struct {
	state uint32
	count uint32
	// The functions follow.
}

// done is the state of a package that is initialised.
const done = 2

// Hold keeps packages from being initialised at the start, and returns those that had not
// been initialised. A package comes after those that it imports. What imports one of them and has
// something to initialise must be held, too.
func Hold(packages ...*Package) []*Package {
	var held []*Package
	for _, p := range packages {
		if p.state == 0 {
			p.state = done
			held = append(held, p)
		}
	}
	return held
}

// Run initialises packages that [Hold] returned, in this order.
func Run(held []*Package) {
	for _, p := range held {
		functions := unsafe.Add(unsafe.Pointer(p), unsafe.Sizeof(*p))
		for i := range uintptr(p.count) {
			function := unsafe.Add(functions, i*unsafe.Sizeof(functions))
			(*(*func())(unsafe.Pointer(&function)))() // a function value points to the address of its code
		}
	}
}
