package agents

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/talk/talktest"
)

// What a protocol cannot do is done the other way, unless that was excluded.
func TestAutoModeFindsTheWay(t *testing.T) {
	tests := []struct {
		config agent.Config
		duplex bool
		err    string
	}{
		{agent.Config{Agent: agent.Codex}, true, ""},
		{agent.Config{Agent: agent.Codex, Mode: agent.ModeExec}, false, ""},
		{agent.Config{Agent: agent.Codex, Profile: "p"}, false, ""},
		{agent.Config{Agent: agent.Codex, Profile: "p", Mode: agent.ModeDuplex}, true, "no profile"},
		{agent.Config{Agent: agent.OpenCode}, false, ""},
		{agent.Config{Agent: agent.OpenCode, Mode: agent.ModeDuplex}, false, "no duplex mode"},
		{agent.Config{Agent: agent.ACP, Command: []string{"x"}}, true, ""},
		{agent.Config{Agent: agent.ACP, Command: []string{"x"}, Mode: agent.ModeExec}, false, "no exec mode"},
		{agent.Config{Agent: agent.ACP}, true, "needs the command"},
	}
	for _, tt := range tests {
		b, err := json.Marshal(tt.config)
		if err != nil {
			t.Fatal(err)
		}
		s, err := prepare(&spool.Spec{Config: b, Cwd: "/w"}, &Options{}, new(talktest.Events))
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%+v: %v", tt.config, err)
			}
			continue
		}
		if err != nil || s.duplex != tt.duplex {
			t.Errorf("%s: duplex %v, %v", b, s != nil && s.duplex, err)
		}
	}
}
