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
	"github.com/spool-run/spool/internal/limits"
	"github.com/spool-run/spool/internal/strict"
	"github.com/spool-run/spool/python"
)

// What a run gets when neither its spec nor [Options] say otherwise.
const (
	DefaultStartTimeout = time.Minute         // a busy machine may need most of it
	DefaultGrace        = limits.DefaultGrace // between asking to end and the kill
	DefaultAgain        = 2 * time.Second     // from an interrupt to the next
	DefaultTerminate    = 4 * time.Second     // to SIGTERM
	DefaultKill         = 5 * time.Second     // to SIGKILL
)

// Bounds.
const (
	// MaxQueued is how many cells may wait for the one that runs.
	MaxQueued = 1024
	// InlineBytes is the longest text that is kept in a display event
	// itself; longer ones, and all images, become blobs.
	InlineBytes = 32 << 10
	// MaxZygotes is how many are kept; the least lately used goes first.
	MaxZygotes = 4
	// ZygoteIdle is how long an unused zygote is kept.
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
	NoticeProtocol    = "protocol"  // an unknown or malformed message from the interpreter
)

// The values of [spool.Done.ErrorClass] for a turn that crashed.
const (
	ClassSegfault = "segfault"
	ClassOOM      = "oom"    // the system ended it to get memory back
	ClassExit     = "exit"   // it called os._exit, or C code did
	ClassSignal   = "signal" // some other signal
	ClassStart    = "start"  // no fresh interpreter could be started
)

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
	// those of package limits apply. Idle is the time without a
	// turn, and OutputBytes are those of one turn.
	Limits spool.Limits
}

// parseConfig reads and checks the configuration of a spec.
func parseConfig(raw json.RawMessage) (python.KernelConfig, error) {
	var c python.KernelConfig
	if len(raw) > 0 {
		if err := strict.Unmarshal(raw, &c, "kernel config"); err != nil {
			return c, err
		}
	}
	c.Zygote = cmp.Or(c.Zygote, python.ZygoteAuto)
	c.Input = cmp.Or(c.Input, python.InputFail)
	switch c.Zygote {
	case python.ZygoteAuto, python.ZygoteOff, python.ZygoteWait:
	default:
		return c, fmt.Errorf("unknown zygote mode %q", c.Zygote)
	}
	switch c.Input {
	case python.InputFail, python.InputAsk:
	default:
		return c, fmt.Errorf("unknown input policy %q", c.Input)
	}
	for name, v := range map[string]int64{
		"start_timeout_ms": c.StartTimeoutMs, "cell_timeout_ms": c.CellTimeoutMs, "again_ms": c.AgainMs,
		"terminate_ms": c.TerminateMs, "kill_ms": c.KillMs, "memory_bytes": c.MemoryBytes, "cpu_ms": c.CPUMs,
	} {
		if v < 0 {
			return c, fmt.Errorf("%s is negative", name)
		}
	}
	if 0 < c.MemoryBytes && c.MemoryBytes < limits.MinMemory {
		return c, fmt.Errorf("memory_bytes: %d is too small; the smallest limit is %s", c.MemoryBytes, limits.Size(limits.MinMemory))
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

// effective returns a configuration with the defaults filled in.
func effective(c python.KernelConfig) python.KernelConfig {
	steps := scheduleOf(&c)
	c.StartTimeoutMs = millisOr(c.StartTimeoutMs, DefaultStartTimeout).Milliseconds()
	c.AgainMs, c.TerminateMs, c.KillMs = steps.secondInterrupt.Milliseconds(), steps.terminate.Milliseconds(), steps.kill.Milliseconds()
	return c
}

func millisOr(ms int64, or time.Duration) time.Duration {
	if ms == 0 {
		return or
	}
	return limits.Milliseconds(ms)
}

// schedule says when stronger means follow an interrupt that did not help.
type schedule struct {
	secondInterrupt, terminate, kill time.Duration
}

// scheduleOf reads the schedule of a configuration.
func scheduleOf(c *python.KernelConfig) schedule {
	s := schedule{millisOr(c.AgainMs, DefaultAgain), millisOr(c.TerminateMs, DefaultTerminate), millisOr(c.KillMs, DefaultKill)}
	s.terminate = max(s.terminate, s.secondInterrupt)
	s.kill = max(s.kill, s.terminate)
	return s
}

// withGrace returns the schedule with SIGTERM after the grace.
func (s schedule) withGrace(grace time.Duration) schedule {
	if grace <= 0 {
		return s
	}
	return schedule{grace / 2, grace, grace + min(grace, s.kill-s.terminate)}
}
