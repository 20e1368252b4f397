package agent

import (
	"testing"

	"github.com/spool-run/spool"
)

func TestClassify(t *testing.T) {
	for _, tt := range []struct {
		text   string
		status int
		want   string
	}{
		{"", 0, spool.ClassOther},
		{"something", 0, spool.ClassOther},
		{"", 401, spool.ClassAuth},
		{"unexpected status 401 Unauthorized: x", 0, spool.ClassAuth},
		{"No API key found for anthropic", 0, spool.ClassAuth},
		{"Invalid API key · Fix external API key", 0, spool.ClassAuth},
		{`404: {"code":"model_not_found","message":"model: no-such-model"}`, 0, spool.ClassModel},
		{"model: no-such-model", 0, spool.ClassModel},
		{"There's an issue with the selected model (x).", 404, spool.ClassModel},
		{"", 429, spool.ClassRateLimit},
		{"exceeded retry limit, last status: 429 Too Many Requests", 0, spool.ClassRateLimit},
		{"You've hit your usage limit.", 0, spool.ClassRateLimit},
		{"Overloaded", 529, spool.ClassOverloaded},
		{"We're currently experiencing high demand", 0, spool.ClassOverloaded},
		{"stream disconnected before completion: Transport error", 0, spool.ClassNetwork},
		{"terminated", 0, spool.ClassNetwork},
		{"prompt is too long: 300000 tokens", 0, spool.ClassContext},
		{"No conversation found with session ID: x", 0, spool.ClassSession},
		{"error: unexpected argument '--nope' found", 0, spool.ClassUsage},
		{"Claude requested permissions to use Bash", 0, spool.ClassPermission},
	} {
		if got := classify(tt.text, tt.status); got != tt.want {
			t.Errorf("classify(%q, %d) = %s, want %s", tt.text, tt.status, got, tt.want)
		}
	}
}
