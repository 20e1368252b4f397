package sandbox

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine/sandbox/guest"
)

// Config is the configuration of a run, in [spool.Spec.Config]. Its zero value
// is an empty box. Of the spec itself the sandbox takes Env, which is all of
// the guest's environment; Cwd, a path of the guest; Argv, whose rest becomes
// sys.argv[1:]; Stdin; and Limits, which hold for each turn where Limits here
// say nothing or more.
type Config struct {
	// Backend is auto, embedded or pyodide. Empty means auto.
	Backend string `json:"backend,omitempty"`
	// Dist is the directory of a Pyodide distribution on this machine, and
	// Wheels one with wheels that it lacks.
	Dist   string `json:"dist,omitempty"`
	Wheels string `json:"wheels,omitempty"`
	// Packages are loaded before the first script.
	Packages  []string        `json:"packages,omitempty"`
	Isolation guest.Isolation `json:"isolation,omitempty"`

	// Fresh gives every turn a new interpreter. The files stay.
	Fresh bool `json:"fresh,omitempty"`
	// Once ends the run with its first turn, and as that did.
	Once bool `json:"once,omitempty"`
	// Script runs cells as scripts: the value of a last expression is no
	// result.
	Script bool `json:"script,omitempty"`
	// File is the guest's path of the script, for tracebacks, __file__ and
	// sys.argv[0]. A cell without code runs what is there.
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

	Limits Limits `json:"limits,omitzero"`
	// Metrics asks for notices that say what preparation and starts took.
	Metrics bool `json:"metrics,omitempty"`
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

// Mount is a directory of this machine that the guest sees. An empty Mode
// means read-only.
type Mount struct {
	Host  string    `json:"host"`
	Guest string    `json:"guest"`
	Mode  MountMode `json:"mode,omitempty"`
}

// File is one that the guest finds in its tree.
type File struct {
	Path    string `json:"path"`
	Text    string `json:"text,omitempty"`
	Base64  []byte `json:"base64,omitempty"` // instead of Text
	Mode    uint32 `json:"mode,omitempty"`   // zero means 0644
	Symlink string `json:"symlink,omitempty"`
}

// Limits bound each turn of a run, and its files. Zero means the default;
// a negative wall or idle limit, none.
type Limits struct {
	WallMs     int64 `json:"wall_ms,omitempty"`
	IdleMs     int64 `json:"idle_ms,omitempty"` // without output, input or an ask; no default
	Fuel       int64 `json:"fuel,omitempty"`    // of the embedded back end; no default
	Memory     int64 `json:"memory,omitempty"`
	Output     int64 `json:"output,omitempty"` // bytes of each stream
	OutputStop bool  `json:"output_stop,omitempty"`
	FSBytes    int64 `json:"fs_bytes,omitempty"`
	FSFiles    int64 `json:"fs_files,omitempty"`
	OpenFiles  int   `json:"open_files,omitempty"`
	AskMs      int64 `json:"ask_ms,omitempty"`
}

// decode reads the configuration of a spec and checks it.
func decode(spec *spool.Spec) (*Config, error) {
	c := &Config{}
	if len(spec.Config) > 0 {
		dec := json.NewDecoder(bytes.NewReader(spec.Config))
		dec.DisallowUnknownFields()
		if err := dec.Decode(c); err != nil {
			return nil, fmt.Errorf("decode the sandbox's configuration: %w", err)
		}
		if _, err := dec.Token(); !errors.Is(err, io.EOF) {
			return nil, errors.New("decode the sandbox's configuration: more than one value")
		}
	}
	return c, c.complete(spec)
}

// complete checks the configuration and fills in what it leaves open.
func (c *Config) complete(spec *spool.Spec) error {
	switch c.Backend {
	case "", BackendAuto:
		c.Backend = BackendEmbedded
		if len(c.Packages) > 0 || c.Dist != "" || c.Wheels != "" {
			c.Backend = BackendPyodide
		}
	case BackendEmbedded:
		if len(c.Packages) > 0 || c.Dist != "" || c.Wheels != "" {
			return errors.New("the embedded back end takes no packages and no distribution; the pyodide one does")
		}
	case BackendPyodide:
	default:
		return fmt.Errorf("no back end is called %q: there are auto, embedded and pyodide", c.Backend)
	}
	switch c.Isolation {
	case guest.IsolateBest, guest.IsolateStrict, guest.IsolateNone:
	default:
		return fmt.Errorf("no isolation is called %q: there are strict and none, and without a name the best of the machine", c.Isolation)
	}
	if spec.TTY != nil {
		return errors.New("a sandbox has no terminal")
	}
	if p := spec.EnvPolicy; p != nil && (p.Inherit != spool.InheritNone || len(p.Set) > 0) {
		return errors.New("a sandbox inherits no environment: give its own with env")
	}
	for name := range spec.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(spec.Env[name], "\x00") {
			return fmt.Errorf("environment variable %q cannot be set", name)
		}
	}
	for i, m := range c.Mounts {
		switch m.Mode {
		case "":
			c.Mounts[i].Mode = MountReadOnly
		case MountReadOnly, MountReadWrite, MountOverlay:
		default:
			return fmt.Errorf("mount %q: no mode is called %q: there are ro, rw and overlay", m.Guest, m.Mode)
		}
		if !path.IsAbs(m.Guest) || path.Clean(m.Guest) == "/" {
			return fmt.Errorf("mount %q: the guest's path must be absolute, and not the root", m.Guest)
		}
	}
	for _, o := range c.Offer {
		if o == "" || strings.Contains(strings.TrimSuffix(o, "*"), "*") {
			return fmt.Errorf("offer %q: give the name of an ask, or a beginning and *", o)
		}
	}
	return c.Limits.complete(&spec.Limits)
}

func (l *Limits) complete(run *spool.Limits) error {
	for name, n := range map[string]int64{
		"fuel": l.Fuel, "memory": l.Memory, "output": l.Output, "open_files": int64(l.OpenFiles), "ask_ms": l.AskMs,
	} {
		if n < 0 {
			return fmt.Errorf("limit %s: %d is negative", name, n)
		}
	}
	l.WallMs = least(l.WallMs, run.Wall.Milliseconds())
	l.IdleMs = least(l.IdleMs, run.Idle.Milliseconds())
	l.Output = least(l.Output, run.OutputBytes)
	l.WallMs = cmp.Or(l.WallMs, DefaultWall.Milliseconds())
	l.Output = cmp.Or(l.Output, DefaultOutputBytes)
	l.AskMs = cmp.Or(l.AskMs, DefaultAskTimeout.Milliseconds())
	l.Memory = cmp.Or(l.Memory, DefaultMemory)
	l.OpenFiles = cmp.Or(l.OpenFiles, DefaultOpenFiles)
	if run.OutputPolicy == spool.StopOutput {
		l.OutputStop = true
	}
	if run.OutputPolicy == spool.BlockOutput {
		return errors.New("a sandbox cannot hold back output: its policies are truncate and stop")
	}
	return nil
}

// least is the smaller of two limits of which zero is none.
func least(a, b int64) int64 {
	switch {
	case a == 0:
		return b
	case b == 0:
		return a
	case a < 0:
		return b
	}
	return min(a, b)
}

// wall is the limit of a turn with an own one, zero if there is none.
func (l *Limits) wall(own int64) time.Duration {
	ms := l.WallMs
	if own > 0 {
		ms = least(ms, own)
	}
	return time.Duration(max(0, ms)) * time.Millisecond
}

// offers reports whether the host program answers such asks.
func (c *Config) offers(kind string) bool {
	return slices.ContainsFunc(c.Offer, func(o string) bool {
		prefix, wild := strings.CutSuffix(o, "*")
		return o == kind || wild && strings.HasPrefix(kind, prefix)
	})
}
