package cli

import (
	"testing"
	"time"
)

func TestParseSpan(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0s": 0, "90s": 90 * time.Second, "1h30m": 90 * time.Minute, "7d": 168 * time.Hour, "1.5d": 36 * time.Hour, "2w3d": 17 * day, "1d12h": 36 * time.Hour,
	} {
		if got, err := parseSpan(text); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "5", "-5s", "d", "xd", "1x", "5 d", "-1d", "NaNd", "1e300d", "now"} {
		if got, err := parseSpan(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func TestWidth(t *testing.T) {
	for text, want := range map[string]int{"": 0, "abc": 3, "名前": 4, "e\u0301": 1, "🙂!": 3, "ｆ": 2} {
		if got := textWidth(text); got != want {
			t.Errorf("%q has %d columns, want %d", text, got, want)
		}
	}
	for _, tt := range []struct {
		text string
		n    int
		want string
	}{{"abcdef", 6, "abcdef"}, {"abcdef", 4, "abc…"}, {"名前名前", 5, "名前…"}, {"名前名前", 4, "名…"}} {
		if got := cut(tt.text, tt.n); got != tt.want {
			t.Errorf("cut %q to %d columns: %q, want %q", tt.text, tt.n, got, tt.want)
		}
	}
}

func TestNearest(t *testing.T) {
	words := []string{"run", "rm", "logs", "ps", "prune", "kill", "exec-server"}
	for word, want := range map[string]string{"rnu": "run", "lgos": "logs", "log": "logs", "kil": "kill", "xyzzy": "", "exec-servr": "exec-server"} {
		if got := nearest(word, words); got != want {
			t.Errorf("%s: %q, want %q", word, got, want)
		}
	}
}
