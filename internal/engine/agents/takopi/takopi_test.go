package takopi

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
)

// TestView checks the view of a log that was written by hand: each turn is a run
// with a start and an end, and what takopi has no event for is left out. The
// tests of package agents show the logs of all agents.
func TestView(t *testing.T) {
	v := New(agent.Claude)
	event := func(turn spool.Seq, kind spool.Kind, data string) spool.Event {
		return spool.Event{Turn: turn, Kind: kind, Data: []byte(data)}
	}
	var got []string
	for _, e := range []spool.Event{
		event(1, spool.KindStarted, `{"agent":"claude","resume":"s1"}`),
		event(1, agent.KindReasoning, `{"text":"hm"}`),
		event(1, agent.KindMessage, `{"text":"hi"}`),
		event(1, spool.KindAsk, `{"kind":"approval"}`),
		event(1, spool.KindNotice, `{"level":"warning","code":"denied","text":"not allowed"}`),
		event(1, spool.KindDone, `{"outcome":"ok","answer":"hi"}`),
		event(1, spool.KindNotice, `{"level":"warning","text":"too late"}`),
		event(0, spool.KindNotice, `{"level":"warning","text":"between turns"}`),
		event(2, spool.KindDone, `{"outcome":"error","error":"no"}`),
	} {
		for _, shown := range v.Project(e) {
			text := shown.Type
			if shown.Action != nil {
				text += " " + shown.Action.Kind + " " + shown.Action.Title
			}
			got = append(got, text+shown.Error)
		}
	}
	want := "started, action note hm, action warning not allowed, completed, started, completedno"
	if text := strings.Join(got, ", "); text != want {
		t.Errorf("shown: %s\nwant:  %s", text, want)
	}
}

// FuzzView checks that any log can be shown.
func FuzzView(f *testing.F) {
	for _, name := range []string{agent.Codex, agent.Claude, agent.OpenCode, agent.Pi, agent.ACP} {
		f.Add(name, "action", []byte(`{"id":"a","kind":"command","phase":"completed","title":"ls","ok":true,"changes":[{"path":"x"}]}`))
		f.Add(name, "done", []byte(`{"outcome":"ok","answer":"x","usage":{"turn":{"input":1}}}`))
		f.Add(name, "started", []byte(`{"resume":"x","detail":{}}`))
		f.Add(name, "retry", []byte(`{"attempt":1}`))
	}
	f.Fuzz(func(t *testing.T, name, kind string, data []byte) {
		v := New(name)
		for i := range 3 {
			for _, e := range v.Project(spool.Event{Seq: spool.Seq(i + 2), Turn: 1, Kind: spool.Kind(kind), Data: data}) {
				if _, err := json.Marshal(e); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}
