// Package kernel is the engine that runs persistent Python interpreters: a run
// is a live interpreter, a cell is a turn, and what a cell leaves behind is
// there for the next one.
//
// The interpreter runs one embedded file, runner.py. Control goes over a
// private socket; descriptors 1 and 2 are plain pipes that the engine reads
// itself, so that output of threads, child processes and C code is seen, in
// order, and attributed to the turn that runs. One goroutine owns an
// interpreter's streams, its control channel and its exit, so the order of
// events in the log is right by construction: everything a cell wrote precedes
// its done.
//
// Interpreters are forked from a zygote, a process per interpreter and
// environment that has imported what cells need, and become children of this
// process all the same. Until there is one, or where there cannot be one, an
// interpreter is started plainly and behaves the same.
//
// An interpreter that dies does not end the run: its cells end at once, none
// is ever repeated, and the next one gets a fresh interpreter and a notice
// that says so. A run ends when it is stopped, killed, or idle for too long.
// Should this process die, the system kills its interpreters with it.
package kernel

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/launch"
)

// What a run gets when neither its spec nor [Options] say otherwise.
const (
	DefaultStartTimeout = 10 * time.Second
	DefaultGrace        = 5 * time.Second // between asking to end and the kill
	DefaultAgain        = 2 * time.Second // from an interrupt to the next
	DefaultTerminate    = 4 * time.Second // to SIGTERM
	DefaultKill         = 5 * time.Second // to SIGKILL
	DefaultPids         = 4096            // processes and threads at once
	DefaultOutputBytes  = 2 << 30         // logged bytes of one turn
)

// Bounds.
const (
	// MaxQueued is how many cells may wait for the one that runs.
	MaxQueued = 1024
	// InlineBytes is the longest text that is kept in a display event
	// itself; longer ones, and all images, become blobs.
	InlineBytes = 32 << 10
	// MaxTail bounds what [spool.TruncateOutput] keeps of the end of a
	// turn's output: half of the limit, but no more than this.
	MaxTail = 1 << 20
	// MaxZygotes is how many are kept; the least lately used goes first.
	MaxZygotes = 4
	// ZygoteIdle is how long one that nobody uses is kept.
	ZygoteIdle = 10 * time.Minute
	// maxFrame bounds one message of an interpreter.
	maxFrame = 64 << 20
)

// The codes of the notices this engine writes.
const (
	NoticeRestarted   = "kernel_restarted" // a fresh interpreter: the state before it is gone
	NoticeCrashed     = "kernel_crashed"   // an interpreter died by itself
	NoticeIdleTimeout = "idle_timeout"     // nothing was asked of it for too long
	NoticeTimeout     = "timeout"          // the wall time limit was reached
	NoticeOutputLimit = "output_limit"
	NoticeEscalated   = "escalated" // a cell did not end when it was asked to
	NoticeShutdown    = "shutdown"  // how the interpreter was ended
	NoticeOversize    = "oversize"  // a display was too large to be taken
	NoticeProtocol    = "protocol"  // the interpreter said what nobody understands
)

// The values of [spool.Done.ErrorClass] for a turn that crashed.
const (
	ClassSegfault = "segfault"
	ClassOOM      = "oom"    // the system ended it to get memory back
	ClassExit     = "exit"   // it called os._exit, or C code did
	ClassSignal   = "signal" // some other signal
	ClassStart    = "start"  // no fresh interpreter could be started
)

// InputPolicy says what input() does.
type InputPolicy string

// The input policies.
const (
	InputFail InputPolicy = "fail" // raise EOFError at once
	InputAsk  InputPolicy = "ask"  // ask whoever reads the log, and wait
)

// ZygoteMode says how interpreters are started.
type ZygoteMode string

// The zygote modes.
const (
	ZygoteAuto ZygoteMode = "auto" // from a zygote if one is ready; have one made otherwise
	ZygoteOff  ZygoteMode = "off"  // plainly, always
	ZygoteWait ZygoteMode = "wait" // wait until there is one
)

// Config is what a spec for this engine has in its Config. The zero value is
// usable.
type Config struct {
	// Interpreter is the Python to run. Empty means the first that works
	// of VIRTUAL_ENV, CONDA_PREFIX, .venv and venv in the working
	// directory, and python3 and python in PATH.
	Interpreter string     `json:"interpreter,omitempty"`
	Zygote      ZygoteMode `json:"zygote,omitempty"`
	// Preload are modules that the zygote imports, such as numpy.
	Preload []string `json:"preload,omitempty"`
	// Fork begins with a copy of the state of another run of this engine,
	// which must be between two cells.
	Fork spool.RunID `json:"fork,omitempty"`
	// Tools are the names of host functions that cells may call.
	Tools []string    `json:"tools,omitempty"`
	Input InputPolicy `json:"input,omitempty"`
	// EnvAllow are patterns of names that are inherited besides those that
	// always are. Names that look like secrets need to be matched here, too.
	EnvAllow []string `json:"env_allow,omitempty"`

	StartTimeoutMs int64 `json:"start_timeout_ms,omitempty"`
	// CellTimeoutMs ends a cell that names no timeout. Zero means none.
	CellTimeoutMs int64 `json:"cell_timeout_ms,omitempty"`
	// From an interrupt that does not help to the next means.
	AgainMs     int64 `json:"again_ms,omitempty"`
	TerminateMs int64 `json:"terminate_ms,omitempty"`
	KillMs      int64 `json:"kill_ms,omitempty"`

	// MemoryBytes bounds the memory of the interpreter: beyond it Python
	// raises MemoryError. Where there are control groups for memory, the
	// whole tree is bounded as well, and ended when it takes more.
	MemoryBytes int64 `json:"memory_bytes,omitempty"`
	// CPUSeconds bounds the processor time of the interpreter in all.
	CPUSeconds int64 `json:"cpu_seconds,omitempty"`
}

// Options configure an engine. The zero value is usable.
type Options struct {
	// Owner names this engine's process trees for [launch.SweepOwner];
	// empty lets the engine choose.
	Owner string
	// Tree says how process trees are held.
	Tree launch.TreeMode
	// Environ is what runs inherit from; nil means the environment of
	// this process.
	Environ []string
	// Limits are the defaults of a run's limits; where they are zero too,
	// the constants of this package apply. Idle is the time without a
	// turn, and OutputBytes are those of one turn.
	Limits spool.Limits
}

// parseConfig reads the configuration of a spec. Unknown members are ignored.
func parseConfig(raw json.RawMessage) (Config, error) {
	var c Config
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &c); err != nil {
			return c, fmt.Errorf("decode kernel config: %w", err)
		}
	}
	c.Zygote = cmp.Or(c.Zygote, ZygoteAuto)
	c.Input = cmp.Or(c.Input, InputFail)
	switch c.Zygote {
	case ZygoteAuto, ZygoteOff, ZygoteWait:
	default:
		return c, fmt.Errorf("unknown zygote mode %q", c.Zygote)
	}
	switch c.Input {
	case InputFail, InputAsk:
	default:
		return c, fmt.Errorf("unknown input policy %q", c.Input)
	}
	for name, v := range map[string]int64{
		"start_timeout_ms": c.StartTimeoutMs, "cell_timeout_ms": c.CellTimeoutMs, "again_ms": c.AgainMs,
		"terminate_ms": c.TerminateMs, "kill_ms": c.KillMs, "memory_bytes": c.MemoryBytes, "cpu_seconds": c.CPUSeconds,
	} {
		if v < 0 {
			return c, fmt.Errorf("%s is negative", name)
		}
	}
	for _, list := range [][]string{c.Tools, c.Preload} {
		for _, name := range list {
			if name == "" || strings.ContainsAny(name, ", \x00") {
				return c, fmt.Errorf("invalid name %q", name)
			}
		}
	}
	return c, nil
}

func millis(ms int64, or time.Duration) time.Duration {
	if ms == 0 {
		return or
	}
	return time.Duration(ms) * time.Millisecond
}

// schedule says when stronger means follow an interrupt that did not help.
type schedule struct {
	again, terminate, kill time.Duration
}

func (c *Config) schedule() schedule {
	s := schedule{millis(c.AgainMs, DefaultAgain), millis(c.TerminateMs, DefaultTerminate), millis(c.KillMs, DefaultKill)}
	s.terminate = max(s.terminate, s.again)
	s.kill = max(s.kill, s.terminate)
	return s
}

// within returns the schedule with SIGTERM after the grace.
func (s schedule) within(grace time.Duration) schedule {
	if grace <= 0 {
		return s
	}
	return schedule{grace / 2, grace, grace + min(grace, s.kill-s.terminate)}
}

// limits fills in what the spec left open.
func (o *Options) limits(l spool.Limits) (spool.Limits, bool, error) {
	if l.Wall < 0 || l.Idle < 0 || l.Grace < 0 || l.OutputBytes < 0 || l.Pids < 0 {
		return l, false, fmt.Errorf("a limit is negative")
	}
	switch l.OutputPolicy {
	case "", spool.TruncateOutput, spool.BlockOutput, spool.StopOutput:
	default:
		return l, false, fmt.Errorf("unknown output policy %q", l.OutputPolicy)
	}
	explicit := l.Pids > 0
	l.Wall = cmp.Or(l.Wall, o.Limits.Wall)
	l.Idle = cmp.Or(l.Idle, o.Limits.Idle)
	l.Grace = cmp.Or(l.Grace, o.Limits.Grace, DefaultGrace)
	l.OutputBytes = cmp.Or(l.OutputBytes, o.Limits.OutputBytes, DefaultOutputBytes)
	l.OutputPolicy = cmp.Or(l.OutputPolicy, o.Limits.OutputPolicy, spool.TruncateOutput)
	l.Pids = cmp.Or(l.Pids, o.Limits.Pids, DefaultPids)
	return l, explicit, nil
}
