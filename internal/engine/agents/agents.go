// Package agents is the engine that runs coding agents: a conversation is a run,
// a prompt is a turn, and every agent gives the same events.
//
// Each command line tool or protocol has a package of its own: codex, claude,
// opencode, pi and acp. It knows the arguments of the tool and translates its
// output into [agent.Started], [agent.Message], [agent.Action] and so on, with
// the means of package talk. A line that it does not know becomes a notice with
// the line kept, never an error. Package policy decides permission requests,
// package sessions keeps two runs out of one session, and package takopi shows a
// log in another form.
//
// This package holds the engine, the registry of agents, and the loop of a
// session. One goroutine owns a session: it starts the agent's processes, reads
// their lines, gives them prompts and answers, watches the clock, and stops
// turns. So the order of events is the order of the agent's output. The states
// of a session and every transition between them are in the table of states.go;
// the life of its turns and asks is in internal/engine/turns.
//
// There are two ways to talk to an agent. In exec mode each prompt is a process
// of its own, which resumes the session of the one before. In duplex mode one
// process takes prompt after prompt, and can ask, be interrupted and be steered.
// Both are a [talk.Conversation] to the loop.
//
// The outcome of a turn comes from the result that the agent reports, then from
// the exit status, and then from whether Spool stopped the turn; never from the
// exit status alone, which misleads in both directions for the agents of today.
package agents

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/limits"
	"github.com/spool-run/spool/internal/strict"
)

// The defaults of [agent.Config] and [spool.Limits].
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
	// MaxLine is the longest line that is read. A longer one is skipped,
	// with a notice.
	MaxLine = 64 << 20
	// MaxImages is how many images a prompt may have.
	MaxImages = 20
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
	if c.ImageBytes > agent.MaxImageBytes {
		return nil, fmt.Errorf("image_bytes is %d, and a prompt holds %d", c.ImageBytes, agent.MaxImageBytes)
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
	return limits.Milliseconds(ms)
}
