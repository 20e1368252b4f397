package kernel

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestConfigIsStrict(t *testing.T) {
	for config, want := range map[string]string{
		`{"timout_ms":5}`:                       `unknown key "timout_ms" in kernel config; did you mean "start_timeout_ms"?`,
		`{"cellTimeoutMs":5}`:                   `unknown key "cellTimeoutMs" in kernel config; did you mean "cell_timeout_ms"?`,
		`{"Interpreter":"/bin/sh"}`:             `unknown key "Interpreter" in kernel config; did you mean "interpreter"?`,
		`{"fork":"a","fork":"b"}`:               `key "fork" is given twice in kernel config`,
		`{"memory_bytes":"1GB"}`:                `"memory_bytes" in kernel config must be a number of type int64, not a string`,
		`{"cpu_ms":-1}`:                         `cpu_ms is negative`,
		`{"interpreter":"/usr/bin/python3"} {}`: `decode kernel config: invalid character '{' after top-level value`,
	} {
		if _, err := parseConfig(json.RawMessage(config)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngot  %v\nwant %s", config, err, want)
		}
	}
	c, err := parseConfig(json.RawMessage(`{"cell_timeout_ms":5,"cpu_ms":1500}`))
	if err != nil || c.CellTimeoutMs != 5 || c.CPUMs != 1500 {
		t.Errorf("%+v, %v", c, err)
	}
}
