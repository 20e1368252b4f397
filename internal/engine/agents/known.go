package agents

import (
	"github.com/spool-run/spool/internal/engine/agents/acp"
	"github.com/spool-run/spool/internal/engine/agents/claude"
	"github.com/spool-run/spool/internal/engine/agents/codex"
	"github.com/spool-run/spool/internal/engine/agents/opencode"
	"github.com/spool-run/spool/internal/engine/agents/pi"
	"github.com/spool-run/spool/internal/engine/agents/talk"
)

// known are the agents that a config can name.
var known = []func() *talk.Agent{codex.Agent, claude.Agent, opencode.Agent, pi.Agent, acp.Agent}

// byName returns the agents by name.
func byName() map[string]*talk.Agent {
	all := make(map[string]*talk.Agent)
	for _, make := range known {
		a := make()
		all[a.Name] = a
	}
	return all
}
