package acpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/wire/acpapi"
)

// server2 is a server in front of the actor, for version 2.
func server2(b spool.Backend) *acpapi.Server {
	return acpapi.New(acpapi.Options{Backend: b, Version: "1", Version2: true, Config: agent.Config{Agent: agent.ACP, Command: []string{os.Args[0], actorRole}}})
}

// connect2 connects a client of version 2.
func connect2(t *testing.T, s *acpapi.Server) *peer {
	t.Helper()
	p, done := dial(t, s)
	t.Cleanup(done)
	v := p.call("initialize", object{"protocolVersion": 2, "info": object{"name": "peer", "version": "1"}, "capabilities": object{"elicitation": object{"form": object{}}}})
	if v["protocolVersion"] != 2.0 {
		t.Fatalf("initialize answers %v", v)
	}
	return p
}

// states are the states that a client was told.
func (p *peer) states() []string {
	all, _ := p.messages()
	var out []string
	for _, m := range all {
		var u struct{ SessionUpdate, State, StopReason string }
		if m.Method == "session/update" && json.Unmarshal(m.Params.Update, &u) == nil && u.SessionUpdate == "state_update" {
			out = append(out, strings.TrimSpace(u.State+" "+u.StopReason))
		}
	}
	return out
}

// turn2 gives the agent a prompt and waits for its end. Meanwhile do is called.
func (p *peer) turn2(session, text string, do func()) {
	p.t.Helper()
	before := len(p.states())
	if id, _ := p.call("session/prompt", params(session, text))["messageId"].(string); id == "" {
		p.t.Errorf("the prompt %q has no message", text)
	}
	if do != nil {
		do()
	}
	p.await("end of "+text, func(*message) bool {
		s := p.states()
		return len(s) > before && strings.HasPrefix(s[len(s)-1], "idle")
	})
}

// TestVersion2 has a client speak version 2: a prompt is answered at once, updates tell the
// rest, and a client that comes later is told the same.
func TestVersion2(t *testing.T) {
	b := openHost(t)
	p := connect2(t, server2(b))
	session := p.open()
	p.turn2(session, "work", nil)
	p.turn2(session, "ask me", func() {
		m := p.asked("session/request_permission", 0)
		if !strings.Contains(m.raw, `"subject":{"toolCall":`) || !strings.Contains(m.raw, `"title":"rm -r build"`) {
			t.Errorf("the question is %s", m.raw)
		}
		p.reply(m, object{"outcome": object{"outcome": "selected", "optionId": "yes"}})
	})
	p.turn2(session, "form please", func() {
		p.reply(p.asked("elicitation/create", 0), object{"action": "accept", "content": object{"answer": "blue"}})
	})
	p.turn2(session, "fail now", nil)
	p.turn2(session, "hang on", func() {
		p.await("word of the agent", func(m *message) bool { return strings.Contains(m.raw, "hanging") })
		p.notify("session/cancel", object{"sessionId": session})
	})
	want := []string{"running", "idle end_turn", "running", "requires_action", "running", "idle end_turn", "running", "requires_action", "running", "idle end_turn",
		"running", "idle error", "running", "idle cancelled"}
	if got := p.states(); !slices.Equal(got, want) {
		t.Errorf("the states are %q", got)
	}
	for _, part := range []string{`"sessionUpdate":"user_message"`, `"sessionUpdate":"plan_update"`, `"git_patch"`, `"operation":"modify"`, "the model is on fire"} {
		if !strings.Contains(p.String(), part) {
			t.Errorf("nothing says %s", part)
		}
	}
	if strings.Contains(p.String(), `"sessionUpdate":"tool_call"`) {
		t.Error("a tool call is no update")
	}
	late := connect2(t, server2(b))
	if code, _ := late.fails("session/load", object{"sessionId": session, "cwd": "/"}); code != -32601 {
		t.Errorf("session/load fails with %d", code)
	}
	if code, _ := late.fails("session/resume", object{"sessionId": session, "cwd": "/", "replayFrom": object{"type": "noon"}}); code != -32602 {
		t.Errorf("an unknown place fails with %d", code)
	}
	late.call("session/resume", object{"sessionId": session, "cwd": "/", "replayFrom": object{"type": "start"}})
	if got := late.told(session); !slices.Equal(got, p.told(session)) {
		t.Errorf("the session is told as\n%s\nand was\n%s", strings.Join(got, "\n"), strings.Join(p.told(session), "\n"))
	}
	if got := late.states(); !slices.Equal(got, want) {
		t.Errorf("the states are told as %q", got)
	}
	// Who does not ask for it, or may not have it, gets version 1.
	for version, s := range map[int]*acpapi.Server{2: server(b), 1: server2(b)} {
		old, done := dial(t, s)
		if v := old.call("initialize", object{"protocolVersion": version}); v["protocolVersion"] != 1.0 {
			t.Errorf("initialize of version %d answers %v", version, v)
		}
		done()
	}
}

// restless is a backend whose watches end, and whose lists fail, until it is back.
type restless struct {
	spool.Backend
	away    atomic.Bool
	watched chan struct{}
}

func (r *restless) Watch(ctx context.Context, f spool.Filter) iter.Seq2[spool.Info, error] {
	select {
	case r.watched <- struct{}{}:
	default:
	}
	if !r.away.Load() {
		return r.Backend.(spool.Watcher).Watch(ctx, f)
	}
	return func(yield func(spool.Info, error) bool) { yield(spool.Info{}, errors.New("the server is away")) }
}

func (r *restless) List(ctx context.Context, f spool.Filter) iter.Seq2[spool.Info, error] {
	if !r.away.Load() {
		return r.Backend.List(ctx, f)
	}
	return func(yield func(spool.Info, error) bool) { yield(spool.Info{}, errors.New("the server is away")) }
}

// TestWatchesAgain has the server away while a client waits for the next run of its session,
// which another client starts: it hears of it when the server is back.
func TestWatchesAgain(t *testing.T) {
	b := openHost(t)
	r := &restless{Backend: b, watched: make(chan struct{}, 1)}
	one, two := connect(t, server(b), nil), connect(t, server(r), nil)
	session := one.open()
	one.prompt(session, "first")
	two.call("session/load", object{"sessionId": session, "cwd": "/", "mcpServers": []any{}})
	r.away.Store(true)
	run := spool.Attach(b, spool.RunID(session))
	if err := run.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-r.watched // in vain
	one.prompt(session, "second")
	r.away.Store(false)
	two.await("second prompt", func(m *message) bool { return strings.Contains(m.raw, "1: second") })
}
