package acpapi_test

import (
	"context"
	"encoding/json"
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

// TestSession has an agent do all it can in a session, and another client load it: it gets
// what the first one saw, and the prompt.
func TestSession(t *testing.T) {
	b := openHost(t)
	p := connect(t, server(b), nil)
	session := p.open()
	if reason := p.prompt(session, "work\nwell"); reason != "end_turn" {
		t.Errorf("the prompt stopped with %s", reason)
	}
	live := p.told(session)
	want := []string{
		"session_info_update work",
		"agent_thought_chunk Let me ",
		"agent_thought_chunk think.",
		`plan [{"content":"look","priority":"medium","status":"completed"},{"content":"change","priority":"medium","status":"in_progress"}]`,
		"tool_call c1 in_progress cat notes",
		`tool_call_update c1 completed cat notes [{"type":"content","content":{"type":"text","text":"` + "````" + `\none ` + "```" + ` two\n` + "````" + `"}}]`,
		`tool_call c2 in_progress edit notes [{"type":"diff","path":"/srv/notes","oldText":"a\nb\nc\n","newText":"a\nB\nc\n"}]`,
		`tool_call_update c2 failed edit notes [{"type":"diff","path":"/srv/notes","oldText":"a\nb\nc\n","newText":"a\nB\nc\n"}]`,
		"agent_message_chunk All ",
		"agent_message_chunk done.",
		"usage_update ",
	}
	if !slices.Equal(live, want) {
		t.Errorf("the client was told\n%s\nwant\n%s", strings.Join(live, "\n"), strings.Join(want, "\n"))
	}
	for range 2 { // a client may load again
		other := connect(t, server(b), nil)
		other.call("session/load", object{"sessionId": session, "cwd": "/", "mcpServers": []any{}})
		if got := other.told(session); !slices.Equal(got, slices.Insert(slices.Clone(live), 0, "user_message_chunk work\nwell")) {
			t.Errorf("the session was loaded as\n%s", strings.Join(got, "\n"))
		}
		before := len(other.told(session))
		other.call("session/load", object{"sessionId": session, "cwd": "/", "mcpServers": []any{}})
		if got := other.told(session)[before:]; len(got) != before {
			t.Errorf("the session was loaded again as\n%s", strings.Join(got, "\n"))
		}
	}
}

// TestSeveralClients has two clients in a session: each sees the prompts of the other, both
// are asked, and the first answer counts.
func TestSeveralClients(t *testing.T) {
	b := openHost(t)
	s := server(b)
	one := connect(t, s, nil)
	session := one.open()
	two := connect(t, server(b), nil)
	two.call("session/load", object{"sessionId": session, "cwd": "/", "mcpServers": []any{}})
	id := one.send("session/prompt", params(session, "ask me"))
	mine, theirs := one.asked("session/request_permission", 0), two.asked("session/request_permission", 0)
	// One that comes while the question is open is asked, too: after what was before.
	late := connect(t, s, nil)
	late.call("session/load", object{"sessionId": session, "cwd": "/", "mcpServers": []any{}})
	lates := late.asked("session/request_permission", 0)
	if mine.raw != theirs.raw || mine.raw != lates.raw {
		t.Errorf("the clients were asked\n%s%s%s", mine.raw, theirs.raw, lates.raw)
	}
	for _, part := range []string{`"toolCallId":"c9"`, `"kind":"execute"`, `"status":"pending"`, `"optionId":"no"`, `"rawInput":{"command":"rm -r build"}`} {
		if !strings.Contains(mine.raw, part) {
			t.Errorf("the question has no %s: %s", part, mine.raw)
		}
	}
	two.reply(theirs, object{"outcome": object{"outcome": "selected", "optionId": "no"}})
	if m := one.answerTo(id); !strings.Contains(string(m.Result), `"end_turn"`) {
		t.Errorf("the prompt ended with %s", m.raw)
	}
	for _, p := range []*peer{one, late} {
		p.await("cancellation", func(m *message) bool { return m.Method == "$/cancel_request" && string(m.Params.RequestID) == "1" })
		p.await("news of the answer", func(m *message) bool { return strings.Contains(m.raw, "Answered by acp:peer: no.") })
		p.reply(mine, object{"outcome": object{"outcome": "cancelled"}}) // too late, and ignored
	}
	said := func(m *message) bool {
		return strings.Contains(m.raw, `You said {\"outcome\"`) && strings.Contains(m.raw, `\"no\"`)
	}
	for _, p := range []*peer{one, two, late} {
		p.await("answer of the agent", said)
	}
	if two.prompt(session, "and now") != "end_turn" {
		t.Error("the second client cannot prompt")
	}
	one.await("prompt of the other", func(m *message) bool {
		return strings.Contains(m.raw, "user_message_chunk") && strings.Contains(m.raw, "and now")
	})
	for _, text := range two.told(session) {
		if strings.HasPrefix(text, "user_message_chunk") && strings.Contains(text, "and now") {
			t.Error("the second client was told its own prompt")
		}
		if strings.Contains(text, "Answered by") {
			t.Error("the second client was told its own answer")
		}
	}
}

// TestCancel cancels prompts: those of the client, those of others, and those that wait for
// an answer.
func TestCancel(t *testing.T) {
	b := openHost(t)
	one, two := connect(t, server(b), nil), connect(t, server(b), nil)
	session := one.open()
	two.call("session/load", object{"sessionId": session, "cwd": "/", "mcpServers": []any{}})
	hanging := func(p *peer, n int) {
		p.await("message", func(*message) bool { return strings.Count(p.String(), `"hanging"`) >= n })
	}
	stopped := func(id string) {
		t.Helper()
		if m := one.answerTo(id); !strings.Contains(string(m.Result), `"cancelled"`) {
			t.Errorf("the prompt ended with %s", m.raw)
		}
	}
	id := one.send("session/prompt", params(session, "hang"))
	hanging(one, 1)
	one.notify("session/cancel", object{"sessionId": session})
	stopped(id)

	id = one.send("session/prompt", params(session, "hang"))
	one.notify("session/cancel", object{"sessionId": session}) // before the agent has it, maybe
	stopped(id)

	before := strings.Count(one.String(), `"hanging"`) // the last prompt may have come so far
	id = one.send("session/prompt", params(session, "hang"))
	hanging(two, before+1)
	two.notify("session/cancel", object{"sessionId": session})
	stopped(id)

	id = one.send("session/prompt", params(session, "ask"))
	asked := one.asked("session/request_permission", 0)
	one.notify("$/cancel_request", object{"requestId": json.RawMessage(id)})
	one.reply(asked, object{"outcome": object{"outcome": "cancelled"}})
	stopped(id)
}

// TestGoesOn ends the run of a session: the next prompt goes on in another run, with the
// session of the agent, and all clients follow it there. Load tells all runs in order.
func TestGoesOn(t *testing.T) {
	b := openHost(t)
	one, two := connect(t, server(b), nil), connect(t, server(b), nil)
	session := one.open()
	two.call("session/load", object{"sessionId": session, "cwd": "/", "mcpServers": []any{}})
	one.prompt(session, "first")
	run := spool.Attach(b, spool.RunID(session))
	if err := run.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := run.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if reason := one.prompt(session, "second"); reason != "end_turn" {
		t.Errorf("the prompt stopped with %s", reason)
	}
	if reason := two.prompt(session, "third"); reason != "end_turn" {
		t.Errorf("the prompt stopped with %s", reason)
	}
	one.await("third prompt", func(m *message) bool { return strings.Contains(m.raw, "2: third") })
	three := connect(t, server(b), nil)
	three.call("session/load", object{"sessionId": session, "cwd": "/", "mcpServers": []any{}})
	want := []string{"user_message_chunk first", "session_info_update first", "agent_message_chunk 1: first", "user_message_chunk second", "agent_message_chunk resumed s1",
		"agent_message_chunk 1: second", "user_message_chunk third", "agent_message_chunk 2: third"}
	if got := three.told(session); !slices.Equal(got, want) {
		t.Errorf("the session was loaded as\n%s", strings.Join(got, "\n"))
	}
	list := three.call("session/list", object{})
	text, _ := json.Marshal(list["sessions"])
	if n := len(list["sessions"].([]any)); n != 1 || !strings.Contains(string(text), `"sessionId":"`+session+`"`) || !strings.Contains(string(text), `"title":"third"`) {
		t.Errorf("the list has %s", text)
	}
	if list := three.call("session/list", object{"cwd": "/elsewhere"}); len(list["sessions"].([]any)) != 0 {
		t.Errorf("the list has %v", list)
	}
	// One prompt of each at once: one run more.
	three.call("session/close", object{"sessionId": session})
	ids := []string{one.send("session/prompt", params(session, "fourth")), two.send("session/prompt", params(session, "fifth"))}
	for i, p := range []*peer{one, two} {
		if m := p.answerTo(ids[i]); !strings.Contains(string(m.Result), "end_turn") {
			t.Errorf("the prompt ended with %s", m.raw)
		}
	}
	if code, _ := three.fails("session/prompt", params(session, "closed")); code != -32002 {
		t.Errorf("a prompt in a closed session: %d", code)
	}
	three.call("session/delete", object{"sessionId": session})
	if code, _ := three.fails("session/load", object{"sessionId": session, "cwd": "/", "mcpServers": []any{}}); code != -32002 {
		t.Errorf("a load of a deleted session: %d", code)
	}
	for info, err := range b.List(t.Context(), spool.Filter{}) {
		t.Errorf("the host still has run %s, %v", info.ID, err)
	}
}

// TestResume comes back to a session: without a place nothing is told again, with one what
// came after it.
func TestResume(t *testing.T) {
	b := openHost(t)
	p := connect(t, server(b), nil)
	session := p.open()
	p.prompt(session, "first")
	result := p.call("session/prompt", params(session, "second"))
	place := result["_meta"].(object)["spool"].(object)
	p.prompt(session, "third")

	other := connect(t, server(b), nil)
	other.call("session/resume", object{"sessionId": session, "cwd": "/"})
	if got := other.told(session); len(got) != 0 {
		t.Errorf("a resumed session told %q", got)
	}
	if other.prompt(session, "fourth") != "end_turn" {
		t.Error("a resumed session takes no prompt")
	}
	again := connect(t, server(b), nil)
	again.call("session/resume", object{"sessionId": session, "cwd": "/", "_meta": object{"spool": place}})
	want := []string{"user_message_chunk third", "agent_message_chunk 3: third", "user_message_chunk fourth", "agent_message_chunk 4: fourth"}
	if got := again.told(session); !slices.Equal(got, want) {
		t.Errorf("the session was resumed as %q, want %q", got, want)
	}
}

// TestQuestion has an agent ask something that only a person knows.
func TestQuestion(t *testing.T) {
	b := openHost(t)
	p := connect(t, server(b), object{"elicitation": object{"form": object{}}})
	session := p.open()
	id := p.send("session/prompt", params(session, "form"))
	asked := p.asked("elicitation/create", 0)
	if !strings.Contains(asked.raw, "Which colour?") {
		t.Errorf("the client was asked %s", asked.raw)
	}
	p.reply(asked, object{"action": "accept", "content": object{"answer": "blue"}})
	if m := p.answerTo(id); m.Error != nil || !strings.Contains(p.String(), `\"answer\":\"blue\"`) {
		t.Errorf("the agent got no answer:\n%s", p)
	}
	// A client without forms is told how to answer.
	plain := connect(t, server(b), nil)
	plain.call("session/resume", object{"sessionId": session, "cwd": "/"})
	id = plain.send("session/prompt", params(session, "form"))
	plain.await("hint", func(m *message) bool {
		return strings.Contains(m.raw, "spool answer --ask") && strings.Contains(m.raw, session+" ANSWER")
	})
	p.reply(p.asked("elicitation/create", 1), object{"action": "decline"})
	if m := plain.answerTo(id); m.Error != nil {
		t.Errorf("the prompt ended with %s", m.raw)
	}
}

// TestDangerous has a user allow what a policy calls dangerous: with forms, the user types
// it again; without, the dialog of the client has to do.
func TestDangerous(t *testing.T) {
	b := openHost(t)
	s := acpapi.New(acpapi.Options{Backend: b, Version: "1", Config: agent.Config{Agent: agent.ACP, Command: []string{os.Args[0], actorRole},
		Policy: &agent.Policy{Rules: []agent.Rule{{Verdict: agent.VerdictAsk, Commands: []string{"rm"}, Retype: true}}}}})
	yes := object{"outcome": object{"outcome": "selected", "optionId": "yes"}}
	p := connect(t, s, object{"elicitation": object{"form": object{}}})
	session := p.open()
	id := p.send("session/prompt", params(session, "ask me"))
	p.reply(p.asked("session/request_permission", 0), yes)
	typing := p.asked("elicitation/create", 0)
	if !strings.Contains(typing.raw, "type it again: rm -r build") {
		t.Errorf("the client was asked %s", typing.raw)
	}
	p.reply(typing, object{"action": "accept", "content": object{"answer": "rm -r build"}})
	if m := p.answerTo(id); m.Error != nil || !strings.Contains(p.String(), `\"optionId\":\"yes\"`) {
		t.Errorf("the agent got no answer:\n%s", p)
	}
	plain := connect(t, s, nil)
	session = plain.open()
	id = plain.send("session/prompt", params(session, "ask me"))
	plain.reply(plain.asked("session/request_permission", 0), yes)
	if m := plain.answerTo(id); m.Error != nil || !strings.Contains(plain.String(), `\"optionId\":\"yes\"`) {
		t.Errorf("the agent got no answer:\n%s", plain)
	}
}

// TestEnds has turns end in other ways.
func TestEnds(t *testing.T) {
	b := openHost(t)
	p := connect(t, server(b), object{"session": object{"notices": object{}}})
	session := p.open()
	if reason := p.prompt(session, "refuse"); reason != "refusal" {
		t.Errorf("the prompt stopped with %s", reason)
	}
	m := p.answerTo(p.send("session/prompt", params(session, "fail")))
	if m.Error == nil || m.Error.Code != -32603 || !strings.Contains(m.Error.Message, "on fire") || m.Error.Data["outcome"] != "error" || m.Error.Data["run"] != session {
		t.Errorf("the prompt ended with %s", m.raw)
	}
	// The run is killed under a prompt.
	id := p.send("session/prompt", params(session, "hang"))
	p.await("message", func(m *message) bool { return strings.Contains(m.raw, `"hanging"`) })
	if err := spool.Attach(b, spool.RunID(session)).Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if m := p.answerTo(id); !strings.Contains(string(m.Result), "cancelled") {
		t.Errorf("the prompt ended with %s", m.raw)
	}
}

// TestBadInput sends what makes no sense: it is refused, and nothing else is disturbed.
func TestBadInput(t *testing.T) {
	b := openHost(t)
	p := connect(t, server(b), nil)
	session := p.open()
	for _, tt := range []struct {
		method string
		params object
		code   int
		text   string
	}{
		{"session/new", object{"cwd": "here", "mcpServers": []any{}}, -32602, "absolute"},
		{"session/new", object{"cwd": "/nowhere/at/all", "mcpServers": []any{}}, -32603, "/nowhere/at/all"},
		{"session/new", object{"cwd": 7}, -32602, "cwd"},
		{"session/load", object{"sessionId": "nothing", "cwd": "/"}, -32002, "not found"},
		{"session/load", object{"sessionId": "../../etc", "cwd": "/"}, -32002, "not found"},
		{"session/resume", object{"sessionId": "", "cwd": "/"}, -32002, "not found"},
		{"session/prompt", params("nothing", "x"), -32002, "not open"},
		{"session/prompt", params(session, " \n"), -32602, "empty"},
		{"session/prompt", object{"sessionId": session, "prompt": []any{}}, -32602, "empty"},
		{"session/prompt", object{"sessionId": session, "prompt": []object{{"type": "image", "data": "", "mimeType": "image/png"}}}, -32602, "no bytes"},
		{"session/prompt", object{"sessionId": session, "prompt": []object{{"type": "image", "data": "AAAA", "mimeType": "image/png"}}}, -32602, "no image/png"},
		{"session/prompt", object{"sessionId": session, "prompt": []object{{"type": "audio", "data": "", "mimeType": "audio/wav"}}}, -32602, `"audio"`},
		{"session/set_mode", object{"sessionId": session, "modeId": "x"}, -32602, "keeps its mode"},
		{"session/set_config_option", object{"sessionId": session, "configId": "model", "value": "x"}, -32602, "keeps its model"},
		{"session/list", object{"cursor": "?"}, -32602, "cursor"},
		{"session/delete", object{"sessionId": "nothing"}, -32002, "not found"},
		{"authenticate", object{"methodId": "x"}, -32602, "log in"},
		{"session/fork", object{}, -32601, "session/fork"},
	} {
		if code, text := p.fails(tt.method, tt.params); code != tt.code || !strings.Contains(text, tt.text) {
			t.Errorf("%s %v: %d %s, want %d and %q", tt.method, tt.params, code, text, tt.code, tt.text)
		}
	}
	for _, line := range []string{"hello", "[]", `{"jsonrpc":"2.0","id":77,"result":{}}`, `{"jsonrpc":"2.0","method":"session/cancel","params":7}`, `{"jsonrpc":"2.0","method":"what"}`} {
		if _, err := p.in.Write([]byte(line + "\n")); err != nil {
			t.Fatal(err)
		}
	}
	if reason := p.prompt(session, "still here"); reason != "end_turn" {
		t.Errorf("the prompt stopped with %s", reason)
	}
}

// TestPromptContent gives an agent what an editor embeds in a prompt.
func TestPromptContent(t *testing.T) {
	p := connect(t, server(openHost(t)), nil)
	session := p.open()
	p.call("session/prompt", object{"sessionId": session, "prompt": []object{
		{"type": "text", "text": "Look at "},
		{"type": "resource_link", "name": "main.go", "uri": "file:///srv/main.go"},
		{"type": "resource", "resource": object{"uri": "file:///srv/a.md", "text": "has ``` in it\n"}},
		{"type": "resource", "resource": object{"uri": "file:///srv/a.png", "blob": "AAAA"}},
	}})
	want := "agent_message_chunk 1: Look at [main.go](file:///srv/main.go)\n[file:///srv/a.md](file:///srv/a.md)\n````\nhas ``` in it\n````\n[file:///srv/a.png](file:///srv/a.png)"
	if told := p.told(session); !slices.Contains(told, want) {
		t.Errorf("the agent got %q", told)
	}
}

// TestListPages lists more sessions than a page has.
func TestListPages(t *testing.T) {
	b := openHost(t)
	p := connect(t, server(b), nil)
	ids := make(map[string]bool)
	for range acpapi.PageSessions + 1 {
		ids[p.open()] = true
	}
	cursor := object{}
	for _, want := range []int{acpapi.PageSessions, 1} {
		page := p.call("session/list", cursor)
		sessions := page["sessions"].([]any)
		if len(sessions) != want {
			t.Errorf("a page has %d sessions, want %d", len(sessions), want)
		}
		for _, s := range sessions {
			delete(ids, s.(object)["sessionId"].(string))
		}
		cursor = object{"cursor": page["nextCursor"]}
	}
	if len(ids) != 0 || cursor["cursor"] != nil {
		t.Errorf("the list lacks %v, and goes on at %v", ids, cursor)
	}
}

// lossy is a backend whose server is away when it is first followed.
type lossy struct {
	spool.Backend
	follows atomic.Int32
}

func (l *lossy) Follow(ctx context.Context, run spool.RunID, after spool.Seq) iter.Seq2[spool.Event, error] {
	if l.follows.Add(1) > 1 {
		return l.Backend.Follow(ctx, run, after)
	}
	return func(yield func(spool.Event, error) bool) {
		yield(spool.Outcome{Kind: spool.Unknown, Reason: "the server is away"}.Event(), nil)
	}
}

// TestServerAway has the server away for longer than its client waits. That is not the
// end of the run.
func TestServerAway(t *testing.T) {
	p := connect(t, server(&lossy{Backend: openHost(t)}), nil)
	if reason := p.prompt(p.open(), "still here"); reason != "end_turn" {
		t.Errorf("the prompt stopped with %s", reason)
	}
	if !strings.Contains(p.String(), "the server is away") {
		t.Errorf("the user is not told:\n%s", p)
	}
}
