package agents

import (
	"github.com/spool-run/spool/internal/engine/agents/acp"
	"github.com/spool-run/spool/internal/engine/agents/claude"
	"github.com/spool-run/spool/internal/engine/agents/codex"
	"github.com/spool-run/spool/internal/engine/agents/opencode"
	"github.com/spool-run/spool/internal/engine/agents/pi"
	"github.com/spool-run/spool/internal/engine/agents/talk"
)

// known are the agents there are.
var known = []func() *talk.Agent{codex.Agent, claude.Agent, opencode.Agent, pi.Agent, acp.Agent}

// runners are the agents by name.
func runners() map[string]*talk.Agent {
	all := make(map[string]*talk.Agent)
	for _, r := range known {
		r := r()
		all[r.Name] = r
	}
	return all
}
