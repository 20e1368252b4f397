package enginetest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
)

// HostRun is a run that requests URLs through the proxy of its isolation.
type HostRun struct {
	Session engine.Session
	Log     *Log
	// Get has the run begin to request a URL by HTTP, as one turn if it has
	// turns. It returns what waits for the end, and returns the status.
	Get func(t testing.TB, url string) (status func() string)
	// Turns is whether the run has turns, of which the asks then are.
	Turns bool
}

// asks returns the asks about a host and port.
func (r *HostRun) asks(t testing.TB, name string) (list []spool.Event) {
	t.Helper()
	for _, e := range r.Log.All(t) {
		if e.Kind == spool.KindAsk && Data[spool.Ask](t, e).Name == name {
			list = append(list, e)
		}
	}
	return list
}

// asked waits for an ask about a host and port.
func (r *HostRun) asked(t testing.TB, name string) spool.Event {
	t.Helper()
	return r.Log.Until(t, "an ask about "+name, func(e spool.Event) bool {
		return e.Kind == spool.KindAsk && Data[spool.Ask](t, e).Name == name
	})
}

// answer answers an ask, as a host does.
func (r *HostRun) answer(t testing.TB, a spool.Answer) {
	t.Helper()
	data, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	in := spool.Input{Kind: spool.InputAnswer, Data: data}
	if err := r.Session.Takes(in); err != nil {
		t.Errorf("takes an answer: %v", err)
	}
	said, err := json.Marshal(spool.Said{Kind: in.Kind, Data: data})
	if err != nil {
		t.Fatal(err)
	}
	if in.Seq, err = r.Log.Append(spool.Event{Kind: spool.KindInput, Data: said}); err != nil {
		t.Fatal(err)
	}
	if err := r.Session.Send(t.Context(), in); err != nil {
		t.Errorf("send an answer: %v", err)
	}
}

// open returns the asks that are open at the end of a log.
func (r *HostRun) open(t testing.TB) []spool.Seq {
	t.Helper()
	turns := make(map[spool.Seq]spool.Seq)
	for _, e := range r.Log.All(t) {
		if e.OpensAsk() {
			turns[e.Seq] = e.Turn
		}
		for ask, turn := range turns {
			if e.ClosesAsk(ask, turn) {
				delete(turns, ask)
			}
		}
	}
	var list []spool.Seq
	for ask := range turns {
		list = append(list, ask)
	}
	return list
}

// AskHosts checks how a run asks about hosts that no rule names. The run has the
// profile net-allow with that isolation.
func AskHosts(t *testing.T, start func(t *testing.T, i spool.Isolation) *HostRun) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, spool.Isolation{Profile: "net-allow", AskHosts: true, Hosts: []string{"127.0.0.1"}, DeniedHosts: []string{"denied.example"}})
	if has := r.Session.(engine.Isolated).Isolation(); has == nil || !has.AskHosts {
		t.Errorf("isolation %+v", has)
	}
	want := func(host, status string, asks int) {
		t.Helper()
		if got := r.Get(t, "http://"+host+"/")(); got != status {
			t.Errorf("%s: status %q, want %s\n%s", host, got, status, r.Log.Dump(t))
		}
		name := host
		if !strings.Contains(host, ":") {
			name += ":80"
		}
		if got := len(r.asks(t, name)); got != asks {
			t.Errorf("%s: %d asks, want %d", host, got, asks)
		}
	}
	want("127.0.0.1:"+u.Port(), "200", 0)
	want("denied.example", "403", 0)

	// An answer holds for the rest of the run.
	for _, step := range []struct {
		host, name string
		answer     spool.Answer
		status     string
	}{
		{"localhost:" + u.Port(), "localhost:" + u.Port(), spool.Answer{Data: json.RawMessage(`"allow"`)}, "200"},
		{"no.example", "no.example:80", spool.Answer{Data: json.RawMessage(`{"choice":"deny"}`)}, "403"},
		{"odd.example", "odd.example:80", spool.Answer{Data: json.RawMessage(`["allow"]`)}, "403"},
		{"error.example", "error.example:80", spool.Answer{Error: &spool.AnswerError{Message: "not today"}}, "403"},
	} {
		status := r.Get(t, "http://"+step.host+"/")
		e := r.asked(t, step.name)
		a := Data[spool.Ask](t, e)
		if a.Kind != "network" || len(a.Options) != 2 || a.Options[0].ID != "allow" || a.Options[1].ID != "deny" || a.Deadline.IsZero() ||
			!strings.Contains(string(a.Data), `"port":`) || (e.Turn != 0) != r.Turns {
			t.Errorf("ask of turn %d: %+v", e.Turn, a)
		}
		step.answer.Ask = e.Seq
		r.answer(t, step.answer)
		if got := status(); got != step.status {
			t.Errorf("%s: status %q, want %s\n%s", step.host, got, step.status, r.Log.Dump(t))
		}
		want(step.host, step.status, 1)
	}

	// The end of the run ends what it asks.
	r.Get(t, "http://last.example/")
	e := r.asked(t, "last.example:80")
	if err := r.Session.Control(t.Context(), spool.Control{Op: spool.ControlKill}); err != nil {
		t.Fatal(err)
	}
	Wait(t, r.Session)
	if open := r.open(t); len(open) > 0 {
		t.Errorf("asks %d are open, the last is %d\n%s", open, e.Seq, r.Log.Dump(t))
	}
}
