package mcpapi_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/wire/mcpapi"
)

// asking are the options of a client whose user answers forms.
func asking(answer func(*mcp.ElicitParams) (*mcp.ElicitResult, error)) *mcp.ClientOptions {
	return &mcp.ClientOptions{ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) { return answer(r.Params) }}
}

// TestQuestions has a cell ask: the user of a client that can ask answers, and the call
// goes on.
func TestQuestions(t *testing.T) {
	for _, version := range versions {
		var heard *mcp.ElicitParams
		b := openHost(t)
		c := connect(t, mcpapi.Options{Backend: b}, version, asking(func(p *mcp.ElicitParams) (*mcp.ElicitResult, error) {
			heard = p
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"answer": "blue"}}, nil
		}))
		v, _ := c.call("python", args{"code": "x = input('Which colour? ')\nprint('so', x)", "wait_ms": 50_000})
		if v.Done == nil || v.Done.Outcome != spool.TurnOK || !strings.Contains(v.Text, "so blue") {
			t.Errorf("%s: the cell returned %+v", version, v)
		}
		if heard == nil || !strings.Contains(heard.Message, "Which colour?") || heard.Mode != "form" {
			t.Errorf("%s: the user was asked %+v", version, heard)
		}
		by := ""
		for e, err := range spool.Attach(b, v.Run).Events(t.Context(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			var said spool.Said
			var a spool.Answer
			if e.Kind == spool.KindInput && json.Unmarshal(e.Data, &said) == nil && said.Kind == spool.InputAnswer && json.Unmarshal(said.Data, &a) == nil {
				by = a.By
			}
			if e.Seq >= v.Next {
				break
			}
		}
		if by != "mcp:test" {
			t.Errorf("%s: the answer is by %q", version, by)
		}
	}
}

// TestQuestionWithoutAUser has a client that cannot ask get the question at once, and a
// model with the tool for it answer.
func TestQuestionWithoutAUser(t *testing.T) {
	c := connect(t, mcpapi.Options{Backend: openHost(t), AllowAnswer: true}, versions[0], nil)
	v, text := c.call("python", args{"code": "print('so', input('Which? '))", "wait_ms": 50_000})
	if v.Why != "ask" || len(v.Asks) != 1 || v.Asks[0].Kind != spool.AskInput || !strings.Contains(text, "[waits for you: ask ") || !strings.Contains(text, "Which? ") {
		t.Fatalf("the cell returned %q", text)
	}
	c.call("answer", args{"run": v.Run, "ask": v.Asks[0].Ask, "choice": "red"})
	if v, _ = c.call("read_run", args{"run": v.Run, "after": v.Next, "until": "turn", "wait_ms": 50_000}); !strings.Contains(v.Text, "so red") {
		t.Errorf("after the answer there is %+v", v)
	}
	if text := c.fails("answer", args{"run": v.Run, "ask": 3, "choice": "red"}); text == "" {
		t.Error("no reason")
	}
}

// TestQuestionIsNotAnswered has users who do not answer, or too late.
func TestQuestionIsNotAnswered(t *testing.T) {
	const code = "print('so', input('Which? '))"
	b := openHost(t)
	c := connect(t, mcpapi.Options{Backend: b}, versions[0], asking(func(*mcp.ElicitParams) (*mcp.ElicitResult, error) {
		return &mcp.ElicitResult{Action: "decline"}, nil
	}))
	v, text := c.call("python", args{"code": code, "wait_ms": 50_000})
	if len(v.Asks) != 1 || !strings.Contains(text, "the question stays open") {
		t.Errorf("after the user declined: %q", text)
	}
	late := connect(t, mcpapi.Options{Backend: b}, versions[0], asking(func(*mcp.ElicitParams) (*mcp.ElicitResult, error) {
		err := spool.Attach(b, v.Run).Answer(t.Context(), spool.Answer{Ask: v.Asks[0].Ask, Data: json.RawMessage(`"green"`), By: "somebody"}, false)
		if err != nil {
			t.Error(err)
		}
		return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"answer": "red"}}, nil
	}))
	if _, text = late.call("read_run", args{"run": v.Run, "until": "turn", "wait_ms": 50_000}); !strings.Contains(text, "somebody") {
		t.Errorf("after somebody else answered: %q", text)
	}
	// A subject that may not answer is not asked.
	reader := &access.Subject{Name: "r", Scopes: access.Scopes{access.Admin}}
	reader.Scopes = access.Scopes{access.Start, access.Input, access.Read}
	c = connect(t, mcpapi.Options{Backend: b, Subject: reader}, versions[0], asking(func(*mcp.ElicitParams) (*mcp.ElicitResult, error) {
		t.Error("the user was asked")
		return &mcp.ElicitResult{Action: "decline"}, nil
	}))
	if v, _ = c.call("python", args{"code": code, "session": "other", "wait_ms": 50_000}); len(v.Asks) != 1 {
		t.Errorf("the cell returned %+v", v)
	}
}

// TestRequestState changes what a client keeps: it is refused, and nothing is answered.
func TestRequestState(t *testing.T) {
	b := openHost(t)
	options := &mcp.ClientOptions{ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) { return nil, nil }}
	options.MultiRoundTrip = &mcp.MultiRoundTripOptions{Disabled: true}
	key := []byte(strings.Repeat("k", 32))
	alice := &access.Subject{Name: "alice", Scopes: access.DefaultScopes()}
	c := connect(t, mcpapi.Options{Backend: b, Subject: alice, Key: key}, versions[0], options)
	params := &mcp.CallToolParams{Name: "python", Arguments: args{"code": "print('so', input('Which? '))", "wait_ms": 50_000}}
	asked, err := c.CallTool(t.Context(), params)
	if err != nil || !asked.NeedsInput() || asked.RequestState == "" {
		t.Fatalf("the cell returned %+v, %v", asked, err)
	}
	params.InputResponses = mcp.InputResponseMap{"ask": &mcp.ElicitResult{Action: "accept", Content: map[string]any{"answer": "red"}}}
	changed := []byte(asked.RequestState)
	changed[20] ^= 1
	bob := connect(t, mcpapi.Options{Backend: b, Subject: &access.Subject{Name: "bob", Scopes: access.DefaultScopes()}, Key: key}, versions[0], options)
	other := connect(t, mcpapi.Options{Backend: b, Subject: alice}, versions[0], options)
	for what, try := range map[string]struct {
		client *client
		state  string
		tool   string
	}{
		"changed":        {c, string(changed), "python"},
		"short":          {c, "AA", "python"},
		"no base64":      {c, "?", "python"},
		"another tool":   {c, asked.RequestState, "run_command"},
		"another person": {bob, asked.RequestState, "python"},
		"another key":    {other, asked.RequestState, "python"},
	} {
		p := *params
		p.RequestState, p.Name = try.state, try.tool
		got, err := try.client.CallTool(t.Context(), &p)
		if err != nil || !got.IsError || !strings.Contains(textOf(got), "request state") {
			t.Errorf("%s: %q, %v", what, textOf(got), err)
		}
	}
	params.RequestState = asked.RequestState
	got, err := c.CallTool(t.Context(), params)
	if err != nil || !strings.Contains(textOf(got), "so red") {
		t.Errorf("the answer gave %q, %v", textOf(got), err)
	}
}
