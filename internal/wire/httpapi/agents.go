package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
)

// AgentList is the coding agents that can be asked on the machine of the server.
type AgentList struct {
	Agents []agent.Installed `json:"agents"`
}

// agentsFor is how long it is believed which agents there are: to find out takes a
// process for each.
const agentsFor = time.Minute

// agents remembers which coding agents there are.
type agents struct {
	find func(context.Context) []agent.Installed

	mu    sync.Mutex
	known []agent.Installed
	at    time.Time
}

// list returns the agents.
func (a *agents) list(ctx context.Context) ([]agent.Installed, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known != nil && time.Since(a.at) < agentsFor {
		return a.known, nil
	}
	found := append([]agent.Installed{}, a.find(ctx)...)
	if err := context.Cause(ctx); err != nil { // what was found may not be all
		return nil, err
	}
	a.known, a.at = found, time.Now()
	return found, nil
}

func (c *call) listAgents() error {
	if c.server.agents.find == nil {
		return fmt.Errorf("list the agents: %w by this server", spool.ErrUnsupported)
	}
	list, err := c.server.agents.list(c.ctx)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, AgentList{list})
}
