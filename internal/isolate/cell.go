package isolate

// CellProof is what the wall of a cell was seen to give on this machine.
type CellProof struct {
	Mechanism string               `json:"mechanism"` // Namespaces, Landlock or Filter
	Has       Set                  `json:"has"`
	Why       map[Guarantee]string `json:"why,omitempty"`    // of what it does not give
	Attempts  []Attempt            `json:"attempts"`         // by a process that has given up what it does not need
	Causes    []Cause              `json:"causes,omitempty"` // why it is not of a better mechanism
}

// Filter is the mechanism of a cell whose processes are kept by nothing but the filter
// of system calls that they give themselves.
const Filter = "seccomp"

// CellOptions describe a cell.
type CellOptions struct {
	// Name says what is in the cell, for the proof that is kept; empty keeps none.
	Name string
	// Readable is all that its processes can read of this machine, and their
	// program.
	Readable []string
	// Places are all that there is in the tree of a cell whose processes are started
	// by its first one; see [Cell.Start]. Nil is another kind of cell.
	Places []Place
	// Attempt returns the program that calls [TryCell] with the argument, and its
	// arguments.
	Attempt func(arg string) (path string, argv []string)
	// Without are mechanisms that are not used, for tests.
	Without []string
}

// Place is a file or directory of this machine in the tree of a cell.
type Place struct {
	From string // its path on this machine
	To   string // its path in the tree, if the cell has one of its own
}

// leader is the program of a first process that does more than wait.
type leader struct {
	path  string
	argv  []string
	env   []string
	stdio [3]uintptr
	files []uintptr // its descriptors from FirstFile on
}
