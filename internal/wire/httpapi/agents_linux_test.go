package httpapi_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/wire/httpapi"
)

// TestAgents checks that a server looks for agents once for many requests, and that one
// without any says so.
func TestAgents(t *testing.T) {
	h := openHost(t)
	looked := 0
	b := serve(t, httpapi.Options{Backend: h, Agents: func(context.Context) []agent.Installed {
		looked++
		return []agent.Installed{{Agent: agent.Codex, Path: "/bin/codex", Version: "1.0", Modes: []agent.Mode{agent.ModeExec}}}
	}})
	for range 3 {
		var list httpapi.AgentList
		if err := b.call(t.Context(), "GET", "/v1/agents", nil, nil, &list); err != nil || len(list.Agents) != 1 || list.Agents[0].Version != "1.0" {
			t.Errorf("%+v, %v", list, err)
		}
	}
	if looked != 1 {
		t.Errorf("it looked %d times", looked)
	}
	if resp := serve(t, httpapi.Options{Backend: h}).get(t, "/v1/agents"); resp.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("without agents: %s", resp.Status)
	}
}
