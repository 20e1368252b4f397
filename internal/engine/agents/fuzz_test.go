package agents

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
)

// FuzzReadLines checks that the output of an agent is divided into its lines:
// none is invented or lost, and of one that is too long only its size remains.
func FuzzReadLines(f *testing.F) {
	f.Add([]byte("{\"type\":\"a\"}\r\n\n \n{\"type\":\"b\"}"), uint16(20))
	f.Add(append(bytes.Repeat([]byte("x"), 70_000), "\ny\n"...), uint16(60_000))
	f.Fuzz(func(t *testing.T, output []byte, most uint16) {
		lines := make(chan chunk)
		go readLines(bytes.NewReader(output), int(most), lines)
		var got []chunk
		for l := range lines {
			got = append(got, l)
		}
		for line := range bytes.Lines(output) {
			long := len(line) > int(most)
			if !long && len(bytes.TrimSpace(line)) == 0 {
				continue
			}
			if len(got) == 0 {
				t.Fatalf("line %q is lost", line)
			}
			l := got[0]
			got = got[1:]
			switch {
			case long && (l.skipped != int64(len(line)) || !bytes.HasPrefix(line, l.line) || len(l.line) > MaxStderrLine):
				t.Fatalf("a line of %d bytes became %d bytes, and %d were skipped", len(line), len(l.line), l.skipped)
			case !long && (l.skipped != 0 || !bytes.Equal(l.line, bytes.TrimRight(line, "\r\n"))):
				t.Fatalf("line %q became %q", line, l.line)
			}
		}
		if len(got) > 0 {
			t.Fatalf("%d lines too many: %q", len(got), got[0].line)
		}
	})
}

// FuzzConfig checks that the configuration of an agent is complete once it is
// accepted, and that its times are never negative.
func FuzzConfig(f *testing.F) {
	f.Add([]byte(`{"agent":"codex","mode":"duplex","model":"m","resume":"s","fork":true,"follow_up":"steer","idle_ms":-1}`), int64(5))
	f.Add([]byte(`{"agent":"claude","policy":{"default":"deny","rules":[{"verdict":"allow","commands":["ls"]}]}}`), int64(1)<<62)
	f.Add([]byte(`{"agent":"pi","mode":"auto","tool_ms":9223372036854775807}`), int64(-1)<<63)
	f.Fuzz(func(t *testing.T, b []byte, ms int64) {
		if d := duration(ms, time.Minute); d < 0 || ms > 0 && d < time.Millisecond {
			t.Errorf("%d ms are %v", ms, d)
		}
		c, err := parseConfig(&spool.Spec{Config: b})
		if err != nil {
			return
		}
		switch {
		case c.FollowUp == "" || c.Mode == "auto" || c.Fork && c.Resume == "":
			t.Errorf("%s: %+v", b, c)
		}
		if again, err := json.Marshal(c); err != nil {
			t.Error(err)
		} else if _, err := parseConfig(&spool.Spec{Config: again}); err != nil {
			t.Errorf("%s became %s: %v", b, again, err)
		}
	})
}

// FuzzPrompt checks that a prompt is refused or has a text within its limit.
func FuzzPrompt(f *testing.F) {
	f.Add([]byte(`{"text":"Please do the task.","timeout_ms":1000}`))
	f.Add([]byte(`{"text":""}`))
	f.Add([]byte(`{"text":"x","timeout_ms":9223372036854775807}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := decodePrompt(spool.Input{Kind: spool.InputPrompt, Data: b}, 0)
		if err != nil {
			return
		}
		if p.Text == "" && len(p.Images) == 0 || len(p.Text) > agent.MaxPrompt {
			t.Errorf("a prompt of %d bytes", len(p.Text))
		}
		if d := turnTime(new(agent.Config), p); d < 0 {
			t.Errorf("a time of %v", d)
		}
	})
}
