package acpapi_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/spool-run/spool"
)

// TestLongTranscript compares a session of more than 300 events as it was told live with
// the same session loaded, in both versions.
func TestLongTranscript(t *testing.T) {
	b := openHost(t)
	one, two, recent := connect(t, server(b), nil), connect(t, server(b), nil), connect2(t, server2(b))
	session := one.open()
	two.call("session/load", object{"sessionId": session, "cwd": "/", "mcpServers": []any{}})
	recent.call("session/resume", object{"sessionId": session, "cwd": "/"})
	for _, p := range []*peer{one, two, recent} {
		p.many = true
	}
	const turns = 28
	for range turns {
		one.prompt(session, "work")
	}
	if info, err := b.Stat(t.Context(), spool.RunID(session)); err != nil || info.Last < 300 {
		t.Fatalf("the log has %d events, %v", info.Last, err)
	}
	one.prompt(session, "the last")
	for _, p := range []*peer{two, recent} {
		p.await("last word", func(m *message) bool { return strings.Contains(m.raw, "29: the last") })
	}
	recent.await("last state", func(*message) bool { s := recent.states(); return len(s) == 2*(turns+1) })
	late := connect(t, server(b), nil)
	late.many = true
	late.call("session/load", object{"sessionId": session, "cwd": "/", "mcpServers": []any{}})
	if got, want := late.told(session), two.told(session); !slices.Equal(got, want) {
		t.Errorf("loaded with %d updates, live were %d", len(got), len(want))
	}
	late2 := connect2(t, server2(b))
	late2.many = true
	late2.call("session/resume", object{"sessionId": session, "cwd": "/", "replayFrom": object{"type": "start"}})
	if got, want := late2.told(session), recent.told(session); !slices.Equal(got, want) {
		t.Errorf("version 2 was loaded with %d updates, live were %d", len(got), len(want))
	}
}
