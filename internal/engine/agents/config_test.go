package agents

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/spool-run/spool"
)

func TestConfigIsStrict(t *testing.T) {
	for config, want := range map[string]string{
		`{"agent":"codex","turnTimeoutMs":5}`:           `unknown key "turnTimeoutMs" in agent config; did you mean "turn_timeout_ms"?`,
		`{"agent":"codex","budget":{"token":1}}`:        `unknown key "budget.token" in agent config; did you mean "budget.tokens"?`,
		`{"agent":"codex","stall":{"idle":1}}`:          `unknown key "stall.idle" in agent config; did you mean "stall.idle_ms"?`,
		`{"agent":"codex","policy":{"defalt":"deny"}}`:  `unknown key "policy.defalt" in agent config; did you mean "policy.default"?`,
		`{"agent":"codex","policy":{"deadline":"10m"}}`: `unknown key "policy.deadline" in agent config; did you mean "policy.deadline_ms"?`,
		`{"Agent":"codex"}`:                             `unknown key "Agent" in agent config; did you mean "agent"?`,
		`{"agent":"codex","agent":"claude"}`:            `key "agent" is given twice in agent config`,
		`{"agent":"codex","retries":"many"}`:            `"retries" in agent config must be a number of type int, not a string`,
	} {
		if _, err := parseConfig(&spool.Spec{Config: json.RawMessage(config)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngot  %v\nwant %s", config, err, want)
		}
	}
}
