package local

import (
	"context"

	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents"
	"github.com/spool-run/spool/internal/engine/agents/policy"
)

// Agents looks for every coding agent in PATH and asks it for its version.
// Agents that are not installed are in the list, too.
func Agents(ctx context.Context) []agent.Installed { return agents.List(ctx) }

// AgentCan says what can be done with the turns of an agent, such as showing it images, before
// it runs; see Capabilities of [agent.Started]. Some agents say more once they run.
func AgentCan(c agent.Config) []string { return agents.Capabilities(&c) }

// ReadPolicy reads a file in TOML with the rules of an [agent.Policy]. A key
// that it does not know is an error.
func ReadPolicy(file string) (*agent.Policy, error) { return policy.Read(file) }
