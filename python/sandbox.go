package python

import (
	"net/netip"
	"strings"

	"github.com/spool-run/spool"
)

// SandboxConfig configures a sandbox: a run of [EngineSandbox], which
// is Python in WebAssembly that reaches nothing but what is configured here.
// The zero value is an empty sandbox.
//
// Of the spec around it a sandbox takes Env, which is all of the guest's
// environment; Cwd, a path of the guest; Argv, whose rest becomes
// sys.argv[1:]; Stdin; and Limits, which bound each turn. Of a limit that is set
// both there and here the smaller one holds.
type SandboxConfig struct {
	// Backend is [BackendAuto], [BackendEmbedded] or [BackendPyodide].
	// Empty means auto.
	Backend string `json:"backend,omitempty"`
	// Dist is the directory of a Pyodide distribution on the machine that
	// runs the sandbox, and Wheels one with wheels that it lacks.
	Dist   string `json:"dist,omitempty"`
	Wheels string `json:"wheels,omitempty"`
	// Node is the Node of the pyodide back end: a path on the machine that
	// runs the sandbox, or a name in its PATH. Empty means $SPOOL_NODE, or
	// node. Servers refuse it, because it executes outside of the sandbox.
	Node string `json:"node,omitempty"`
	// JSHeapBytes bounds JavaScript's own heap in the pyodide back end, in
	// which Python's memory is not; the default is 256 MiB.
	JSHeapBytes int64 `json:"js_heap_bytes,omitempty"`
	// Packages are loaded before the first script.
	Packages  []string  `json:"packages,omitempty"`
	Isolation Isolation `json:"isolation,omitempty"`

	// Fresh gives every turn a new interpreter. The files stay.
	Fresh bool `json:"fresh,omitempty"`
	// Once ends the run after its first turn, with that turn's exit code.
	Once bool `json:"once,omitempty"`
	// Script runs cells as scripts: the value of a last expression is no
	// result.
	Script bool `json:"script,omitempty"`
	// File is the guest's path of the script, for tracebacks, __file__ and
	// sys.argv[0]. A cell without code runs the file at that path.
	File string `json:"file,omitempty"`

	// Mounts are directories of this machine that the guest sees.
	Mounts []Mount `json:"mounts,omitempty"`
	// Files are put into the guest's tree, which is in memory.
	Files []File `json:"files,omitempty"`

	// Offer are the kinds of ask that the program which started the run
	// answers: "fs.read", "fs.*", "http.request", "dns.lookup",
	// "subprocess.run", or any other name. All else is denied. With "input",
	// input() asks as it does in a kernel; else it reads standard input.
	Offer []string `json:"offer,omitempty"`
	// Hosts are the only ones that http.request and dns.lookup may name;
	// empty means any. "*.example.org" stands for all below it.
	Hosts []string `json:"hosts,omitempty"`

	Limits SandboxLimits `json:"limits,omitzero"`
	// Metrics asks for notices that say what preparation and starts took.
	Metrics bool `json:"metrics,omitempty"`
}

// Spec returns a spec that starts a sandbox with this configuration. The
// caller may fill in the rest of it.
func (c SandboxConfig) Spec() spool.Spec { return spec(EngineSandbox, c) }

// AllowsHost reports whether Hosts names a host, with or without a port:
// itself, or below a name that begins with "*.". Addresses match only
// themselves.
func (c *SandboxConfig) AllowsHost(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	for _, h := range c.Hosts {
		h = strings.ToLower(h)
		if h == host {
			return true
		}
		if domain, ok := strings.CutPrefix(h, "*"); ok && strings.HasPrefix(domain, ".") {
			if _, err := netip.ParseAddr(host); err != nil && strings.HasSuffix(host, domain) {
				return true
			}
		}
	}
	return false
}

// SandboxCwd is the working directory of a guest whose spec names none.
const SandboxCwd = "/workspace"

// The asks of a guest for the network, which a program answers that offers
// them.
const (
	AskHTTP = "http.request"
	AskDNS  = "dns.lookup"
)

// NoticePrepare is the code of notices that say how the preparation of a back
// end gets on, before the first turn.
const NoticePrepare = "prepare"

// NoticeTurnBegan is the code of the notice with which a turn begins that had to
// wait for another. A turn that did not wait began with its input.
const NoticeTurnBegan = "turn_began"

// The back ends a [SandboxConfig] can name.
const (
	BackendAuto     = "auto"     // embedded, unless packages or a distribution are asked for
	BackendEmbedded = "embedded" // CPython in WebAssembly, within Spool
	BackendPyodide  = "pyodide"  // Pyodide in Node, from a directory
)

// Isolation says which protections of the operating system have to surround
// the interpreter.
type Isolation string

// The isolations.
const (
	// IsolateBest takes every protection that the machine offers.
	IsolateBest Isolation = ""
	// IsolateStrict fails if any protection of the back end is missing.
	IsolateStrict Isolation = "strict"
	// IsolateNone relies on the interpreter alone.
	IsolateNone Isolation = "none"
)

// Mount is a directory of the machine that runs the sandbox, which the sandboxed
// code, the guest, sees. Host is an existing directory, Guest an absolute path
// other than "/". An empty Mode means read-only.
type Mount struct {
	Host  string    `json:"host"`
	Guest string    `json:"guest"`
	Mode  MountMode `json:"mode,omitempty"`
}

// MountMode says what a guest may do with a mount.
type MountMode string

// The modes of a mount.
const (
	MountReadOnly  MountMode = "ro"
	MountReadWrite MountMode = "rw"
	// MountOverlay lets the guest change what it sees and leaves the
	// directory as it is. A notice at the end of the run holds the changes.
	MountOverlay MountMode = "overlay"
)

// File is a file or a symbolic link in the guest's tree.
type File struct {
	Path    string `json:"path"`
	Text    string `json:"text,omitempty"`
	Base64  []byte `json:"base64,omitempty"` // instead of Text
	Mode    uint32 `json:"mode,omitempty"`   // zero means 0644
	Symlink string `json:"symlink,omitempty"`
}

// SandboxLimits bound each turn of a sandbox, and its files. Zero means the
// default; a negative wall or idle limit means none.
type SandboxLimits struct {
	WallMs      int64 `json:"wall_ms,omitempty"`      // default 5 minutes
	IdleMs      int64 `json:"idle_ms,omitempty"`      // without output, input or an ask; no default
	Fuel        int64 `json:"fuel,omitempty"`         // instructions, in the embedded back end; no default
	MemoryBytes int64 `json:"memory_bytes,omitempty"` // default 256 MiB
	OutputBytes int64 `json:"output_bytes,omitempty"` // of each stream; default 1 MiB
	OutputStop  bool  `json:"output_stop,omitempty"`  // stop the turn at OutputBytes instead of dropping the rest
	FSBytes     int64 `json:"fs_bytes,omitempty"`     // of all files; default 64 MiB
	FSFiles     int64 `json:"fs_files,omitempty"`     // default 16384
	OpenFiles   int   `json:"open_files,omitempty"`
	AskMs       int64 `json:"ask_ms,omitempty"` // how long the guest waits for an answer; default 30 seconds
}
