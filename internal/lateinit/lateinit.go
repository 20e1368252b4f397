// Package lateinit leaves the initialisation of packages to the moment in which they are
// needed.
//
// Go initialises all packages of a program before its main function. The server of NATS
// and the client for S3 compile many regular expressions there and fill large tables,
// which took a third of the time in which any command began, and few commands use them.
//
// The linker writes down for every package that has something to initialise whether that
// is done, and which functions do it; see doInit1 of package runtime. A package that is
// marked as done before its turn is passed over, and its functions can be called later.
// Who does so declares a variable for each of the packages, named by go:linkname, in a
// package of its own: it must be initialised before them, so it imports nothing but this
// package, which imports nothing but unsafe.
//
// What the linker writes is no promise of Go's. Such declarations are for the versions of Go
// whose linker was looked at, by a build constraint; built with any other, a program
// initialises all packages at its start, as usual.
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

// Hold keeps packages from being initialised, and returns those whose turn had not come.
// They come in the order of their dependencies. All packages must be held that import one
// of them and have something to initialise themselves.
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

// Run initialises packages that were held, in this order.
func Run(held []*Package) {
	for _, p := range held {
		functions := unsafe.Add(unsafe.Pointer(p), unsafe.Sizeof(*p))
		for i := range uintptr(p.count) {
			function := unsafe.Add(functions, i*unsafe.Sizeof(functions))
			(*(*func())(unsafe.Pointer(&function)))() // a function value points to the address of its code
		}
	}
}
