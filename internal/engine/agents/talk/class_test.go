package talk

import (
	"testing"

	"github.com/spool-run/spool/agent"
)

func TestClassify(t *testing.T) {
	for _, tt := range []struct {
		text   string
		status int
		want   string
	}{
		{"", 0, agent.ClassOther},
		{"something", 0, agent.ClassOther},
		{"", 401, agent.ClassAuth},
		{"unexpected status 401 Unauthorized: x", 0, agent.ClassAuth},
		{"No API key found for anthropic", 0, agent.ClassAuth},
		{"Invalid API key · Fix external API key", 0, agent.ClassAuth},
		{`404: {"code":"model_not_found","message":"model: no-such-model"}`, 0, agent.ClassModel},
		{"model: no-such-model", 0, agent.ClassModel},
		{"There's an issue with the selected model (x).", 404, agent.ClassModel},
		{"", 429, agent.ClassRateLimit},
		{"exceeded retry limit, last status: 429 Too Many Requests", 0, agent.ClassRateLimit},
		{"You've hit your usage limit.", 0, agent.ClassRateLimit},
		{"Overloaded", 529, agent.ClassOverloaded},
		{"We're currently experiencing high demand", 0, agent.ClassOverloaded},
		{"stream disconnected before completion: Transport error", 0, agent.ClassNetwork},
		{"terminated", 0, agent.ClassNetwork},
		{"prompt is too long: 300000 tokens", 0, agent.ClassContext},
		{"No conversation found with session ID: x", 0, agent.ClassSession},
		{"error: unexpected argument '--nope' found", 0, agent.ClassUsage},
		{"Claude requested permissions to use Bash", 0, agent.ClassPermission},
	} {
		if got := Classify(tt.text, tt.status); got != tt.want {
			t.Errorf("classify(%q, %d) = %s, want %s", tt.text, tt.status, got, tt.want)
		}
	}
}
