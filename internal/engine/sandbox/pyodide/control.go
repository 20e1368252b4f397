package pyodide

// The host and the process that holds its interpreters talk over a socket that
// keeps messages apart: JSON, with a descriptor beside it where one is needed.

// maxControl bounds one such message.
const maxControl = 64 << 10

// order is a request of the host.
type order struct {
	Do string `json:"do"`
	ID uint64 `json:"id"`
	// Memory is the most that the process may have, in bytes, beyond what
	// it begins with.
	Memory int64 `json:"memory,omitempty"`
}

// The orders.
const (
	doFork      = "fork"      // a new interpreter on the descriptor that comes along
	doStart     = "start"     // a new process on the descriptor that comes along
	doKill      = "kill"      // end an interpreter
	doInterrupt = "interrupt" // raise KeyboardInterrupt in it
	doSeal      = "seal"      // take from a process what it only needed to start
	doMeasure   = "measure"   // say what an interpreter has for itself
)

// report is a message to the host.
type report struct {
	What string `json:"what"`
	ID   uint64 `json:"id,omitempty"`
	Text string `json:"text,omitempty"`
	Do   string `json:"do,omitempty"` // the order that was refused

	Signal int    `json:"signal,omitempty"`  // that ended the process
	Code   int    `json:"code,omitempty"`    // it exited with
	MaxRSS int64  `json:"max_rss,omitempty"` // bytes it had at most
	User   int64  `json:"user,omitempty"`    // processor time in microseconds
	System int64  `json:"system,omitempty"`  // of the kernel, for it
	Said   string `json:"said,omitempty"`    // on standard error, before that

	Private int64 `json:"private,omitempty"` // bytes of private memory

	RSS         int64      `json:"rss,omitempty"` // bytes that an interpreter begins with
	Ready       *readyInfo `json:"ready,omitempty"`
	Protections []string   `json:"protections,omitempty"`
	Forks       bool       `json:"forks,omitempty"`
}

// The reports.
const (
	isUp       = "up"       // the protections are set up
	isReady    = "ready"    // there is something to fork from
	isFailed   = "failed"   // there is not, and why
	isRefused  = "refused"  // an order could not be carried out
	isExited   = "exited"   // an interpreter is gone
	isMeasured = "measured" // the answer to doMeasure
	isAlarmed  = "alarmed"  // the answer to doInterrupt
)

// readyInfo is what a process says when it has loaded its distribution.
type readyInfo struct {
	Kind       string  `json:"kind"` // kindPyodide or kindPlain
	Version    string  `json:"version"`
	Python     string  `json:"python"`
	LoadMs     float64 `json:"load_ms"`
	PackagesMs float64 `json:"packages_ms"`
	Packages   int     `json:"packages"`
}

// What a distribution turns out to be.
const (
	kindPyodide = "pyodide" // the real one
	kindPlain   = "plain"   // something with its loadPyodide and runPythonAsync
)

// plan describes the processes that run interpreters.
type plan struct {
	Node     string   `json:"node"`     // the executable
	Libs     []string `json:"-"`        // files that it needs to run
	Dist     string   `json:"dist"`     // the distribution's directory
	Packages string   `json:"packages"` // directory of checked wheels; may be empty
	Snapshot string   `json:"snapshot"` // "", snapshotRead or snapshotWrite: descriptor 4
	Fork     bool     `json:"fork"`     // make a process to fork from
	Mark     byte     `json:"mark"`     // where to find the byte that interrupts
	Config   []byte   `json:"config"`   // what the runner is told, but for its mode
	HeapMB   int      `json:"heap_mb"`  // JavaScript's own heap
	Wall     string   `json:"wall"`     // the mechanism of the cell
}

// The uses of a snapshot.
const (
	snapshotRead  = "read"
	snapshotWrite = "write"
)

// Where a distribution and its packages are for a process that has no root of
// its own: they are open, and have no other name.
const (
	bareDist     = "/proc/self/fd/5/"
	barePackages = "/proc/self/fd/6/"
)

// Where things are for an interpreter's process.
const (
	guestNode     = "/node"
	guestDist     = "/pyodide/"
	guestPackages = "/packages/"
)
