package peers

import (
	"errors"
	"strings"
	"testing"
)

func TestReason(t *testing.T) {
	for text, want := range map[string]string{
		"no network": "no network",
		"pip install x: exit status 1\nCollecting x\nERROR: No matching distribution found for y\n":     "ERROR: No matching distribution found for y",
		"go mod download: exit status 1\ngo: m@v: reading https://proxy: 403 Forbidden\n\tserver: no\n": "go: m@v: reading https://proxy: 403 Forbidden",
		"one\n\ttwo": "one two",
	} {
		if got := Reason(errors.New(text)); got != want {
			t.Errorf("the reason of %q is %q, want %q", text, got, want)
		}
	}
	if got := Reason(errors.New(strings.Repeat("x", 1000))); len(got) > 310 {
		t.Errorf("a reason of %d bytes", len(got))
	}
}

func TestQuote(t *testing.T) {
	if got := quote([]string{"sh", "-c", "echo 'a b'"}); got != `'sh' '-c' 'echo '\''a b'\''' ` {
		t.Errorf("quoted as %s", got)
	}
}

func TestPueueExit(t *testing.T) {
	for result, want := range map[string]Exit{
		`"Success"`: {Known: true}, `{"Failed":3}`: {true, 3}, `"Killed"`: {}, `{"Errored":{}}`: {}, ``: {},
	} {
		if got := pueueExit([]byte(result)); got != want {
			t.Errorf("%s is %+v, want %+v", result, got, want)
		}
	}
}
