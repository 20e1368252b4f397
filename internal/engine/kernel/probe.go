package kernel

// Probed is an interpreter that a kernel may use, and what came of trying it.
type Probed struct {
	Path    string
	From    string // where it was found, such as VIRTUAL_ENV or PATH
	Version string // of Python; empty if it does not work
	OK      bool   // a kernel can run in it
	Text    string // why not

	Executable string // what it turned out to be, if not Path
}
