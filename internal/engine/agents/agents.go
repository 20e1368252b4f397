// Package agents is the engine that runs coding agents: a conversation is a
// run, a prompt is a turn, and every agent gives the same events.
//
// Each command line tool has a file of its own, which knows its arguments and
// translates what it prints: [agent.Started], [agent.Message],
// [agent.Action] and so on. What a translator does not know becomes a notice
// with the line kept, never an error. One goroutine owns a run: it starts the
// agent's processes, reads their lines, passes prompts and answers on, watches
// the clock, and ends what has to be ended. So the order of events is that of
// the agent's output.
//
// There are two ways to talk to an agent. In exec mode each prompt is a
// process of its own, which resumes the session of the one before. In duplex
// mode one process takes prompt after prompt and can ask, be interrupted and
// be steered. Both are a conversation to this package; so is the Agent Client
// Protocol, which any number of other agents speak.
//
// How a turn ended is told by the agent's last word first, then by its exit
// status, and then by whether we asked it to stop; never by the exit status
// alone, which is wrong in both directions for today's agents.
package agents

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/strict"
)

// What a run gets when its [Config] and [spool.Limits] do not say.
const (
	DefaultIdle        = 5 * time.Minute
	DefaultTool        = 30 * time.Minute
	DefaultHuman       = 24 * time.Hour
	DefaultAskTimeout  = 10 * time.Minute
	DefaultGrace       = 10 * time.Second // between SIGTERM and the kill: enough to save a transcript
	DefaultCancelGrace = 5 * time.Second
	DefaultExitGrace   = 10 * time.Second
)

// Bounds of a run.
const (
	// MaxLine is the longest line that is read; what is longer is passed
	// over with a notice.
	MaxLine = 64 << 20
	// MaxQueued is how many prompts may wait.
	MaxQueued = 64
	// MaxHeld bounds the events that wait for the lock of a session.
	MaxHeld = 64 << 20
	// StderrHead and StderrTail are the lines kept of standard error.
	StderrHead = 20
	StderrTail = 50
	// MaxStderrLine is the most of one such line that is kept.
	MaxStderrLine = 4 << 10
)

// parseConfig decodes and checks the engine's part of a spec.
func parseConfig(spec *spool.Spec) (*agent.Config, error) {
	if len(spec.Config) == 0 {
		return nil, fmt.Errorf("the spec of an agent run needs a config that names the agent")
	}
	c := new(agent.Config)
	if err := strict.Unmarshal(spec.Config, c, "agent config"); err != nil {
		return nil, err
	}
	switch c.Mode {
	case "auto":
		c.Mode = agent.ModeAuto
	case agent.ModeAuto, agent.ModeExec, agent.ModeDuplex:
	default:
		return nil, fmt.Errorf("unknown mode %q", c.Mode)
	}
	switch c.FollowUp = cmp.Or(c.FollowUp, agent.FollowQueue); c.FollowUp {
	case agent.FollowQueue, agent.FollowSteer, agent.FollowInterrupt, agent.FollowReject:
	default:
		return nil, fmt.Errorf("unknown follow-up policy %q", c.FollowUp)
	}
	if c.Fork && c.Resume == "" {
		return nil, fmt.Errorf("a fork needs a session to resume")
	}
	return c, nil
}

// duration reads milliseconds of a config: zero means the default, less than
// zero none.
func duration(ms int64, def time.Duration) time.Duration {
	switch {
	case ms == 0:
		return def
	case ms < 0:
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}
