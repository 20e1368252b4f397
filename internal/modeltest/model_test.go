package modeltest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// post sends a request to a model and returns the status and the answer.
func post(t *testing.T, url, body string) (int, string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(answer), err
}

func ask(t *testing.T, m *Model, body string) int {
	t.Helper()
	status, _, _ := post(t, m.URL()+"/responses", body)
	return status
}

func newModel(t *testing.T, script Script) *Model {
	t.Helper()
	m, err := New(script)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func TestModelErr(t *testing.T) {
	tests := []struct {
		name   string
		script []Step
		bodies []string
		want   string // in the error; empty for none
	}{
		{"followed", []Step{Say("hi")}, []string{`{}`}, ""},
		{"left over", []Step{Say("hi"), Say("there")}, []string{`{}`}, "1 of 2 steps left"},
		{"beyond", []Step{Say("hi")}, []string{`{}`, `{}`}, "beyond the script"},
		{"malformed", nil, []string{`{`}, "decode request"},
		{"no such tool", []Step{Call("missing", nil)}, []string{`{}`}, "no tool missing"},
		{"no such custom tool", []Step{CallCustom("missing", "")}, []string{`{}`}, "no tool missing"},
		{"no shell", []Step{Shell("true")}, []string{`{}`}, "no tool that runs commands"},
		{"no writer", []Step{Write("a", "b")}, []string{`{}`}, "no tool that writes files"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newModel(t, InOrder(tt.script...))
			for _, body := range tt.bodies {
				ask(t, m, body)
			}
			err := m.Err()
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want %q", err, tt.want)
			}
		})
	}
}

func TestModelGate(t *testing.T) {
	gate := make(chan struct{})
	asked := make(chan struct{})
	m := newModel(t, InOrder(Say("hi").When(func(context.Context) error {
		close(asked)
		return nil
	}).After(gate)))
	status := make(chan int, 1)
	go func() { status <- ask(t, m, `{}`) }()
	<-asked
	select {
	case s := <-status:
		t.Fatalf("answered %d before the gate opened", s)
	default:
	}
	close(gate)
	if s := <-status; s != http.StatusOK {
		t.Errorf("status %d, want 200", s)
	}
}

func TestModelCloseEndsGate(t *testing.T) {
	asked := make(chan struct{})
	m := newModel(t, InOrder(Say("never").When(func(context.Context) error {
		close(asked)
		return nil
	}).After(nil)))
	done := make(chan struct{})
	go func() {
		defer close(done)
		resp, err := http.Post(m.URL()+"/responses", "application/json", strings.NewReader(`{}`))
		if err == nil {
			resp.Body.Close()
		}
	}()
	<-asked
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	<-done
	if err := m.Err(); err != nil {
		t.Errorf("closing violates the script: %v", err)
	}
}

func TestStepWhenFails(t *testing.T) {
	broken := errors.New("broken")
	m := newModel(t, InOrder(Say("hi").When(func(context.Context) error { return broken })))
	if s := ask(t, m, `{}`); s != http.StatusBadRequest {
		t.Errorf("status %d, want 400", s)
	}
	if err := m.Err(); !errors.Is(err, broken) {
		t.Errorf("got error %v, want %v", err, broken)
	}
}

// conversations holds the same conversation in each dialect: a prompt, a call
// beside a message, its output, and a tool.
var conversations = map[Dialect]string{
	Responses: `{"model":"m","stream":STREAM,"tools":[{"type":"function","name":"exec_command"}],"input":[
		{"type":"message","role":"user","content":[{"type":"input_text","text":"go"}]},
		{"type":"message","role":"assistant","content":[{"type":"output_text","text":"I will."}]},
		{"type":"function_call","call_id":"a","name":"exec_command","arguments":"{\"cmd\":\"ls\"}"},
		{"type":"function_call_output","call_id":"a","output":"file\n"}]}`,
	Chat: `{"model":"m","stream":STREAM,"tools":[{"type":"function","function":{"name":"bash","parameters":{}}}],"messages":[
		{"role":"user","content":"go"},
		{"role":"assistant","content":"I will.","tool_calls":[{"id":"a","type":"function","function":{"name":"exec_command","arguments":"{\"cmd\":\"ls\"}"}}]},
		{"role":"tool","tool_call_id":"a","content":"file\n"}]}`,
	Messages: `{"model":"m","stream":STREAM,"tools":[{"name":"Bash","input_schema":{}}],"messages":[
		{"role":"user","content":"go"},
		{"role":"assistant","content":[{"type":"text","text":"I will."},{"type":"tool_use","id":"a","name":"exec_command","input":{"cmd":"ls"}}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"file\n"}]}]}]}`,
}

func conversation(d Dialect, stream bool) string {
	flag := "false"
	if stream {
		flag = "true"
	}
	return strings.ReplaceAll(conversations[d], "STREAM", flag)
}

// TestOneConversationInEveryDialect checks that a script sees the same
// conversation in every dialect.
func TestOneConversationInEveryDialect(t *testing.T) {
	for _, d := range dialects {
		t.Run(string(d.name), func(t *testing.T) {
			m := newModel(t, InOrder(Say("hi")))
			if status, _, err := post(t, m.URL()+"/"+d.path, conversation(d.name, true)); status != http.StatusOK || err != nil {
				t.Fatalf("status %d, %v", status, err)
			}
			r := m.Requests()[0]
			if r.Dialect != d.name || r.Model != "m" || !r.Stream || len(r.Tools) != 1 {
				t.Errorf("got %+v", r)
			}
			if got := r.Prompt(); got != "go" {
				t.Errorf("prompt is %q", got)
			}
			if got := r.Answers(); got != 1 {
				t.Errorf("%d answers, want 1", got)
			}
			outs := r.Outputs()
			if len(outs) != 1 || outs[0].CallID != "a" || outs[0].Output.String() != "file\n" {
				t.Errorf("outputs are %+v", outs)
			}
		})
	}
}

// TestAnswerInEveryDialect checks that text and calls arrive complete, streamed
// or not.
func TestAnswerInEveryDialect(t *testing.T) {
	for _, d := range dialects {
		for _, stream := range []bool{false, true} {
			m := newModel(t, InOrder(Together(Say("Hello, world."), Shell("echo hi"))))
			status, answer, err := post(t, m.URL()+"/"+d.path, conversation(d.name, stream))
			if status != http.StatusOK || err != nil || m.Err() != nil {
				t.Fatalf("%s: status %d, %v, %v", d.name, status, err, m.Err())
			}
			for _, want := range []string{"Hello,", "world.", "echo hi", "call_1", "answer_1"} {
				if !strings.Contains(strings.ReplaceAll(answer, `\`, ""), want) && !stream {
					t.Errorf("%s, stream %v: %q is not in %s", d.name, stream, want, answer)
				}
			}
			if !stream {
				if !json.Valid([]byte(answer)) {
					t.Errorf("%s: not JSON: %s", d.name, answer)
				}
				continue
			}
			if text, call := joined(t, d.name, answer); text != "Hello, world." || !strings.Contains(call, "echo hi") {
				t.Errorf("%s: streamed %q and %q", d.name, text, call)
			}
		}
	}
}

// joined joins the deltas of a stream.
func joined(t *testing.T, d Dialect, stream string) (text, call string) {
	t.Helper()
	for line := range strings.Lines(stream) {
		data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		var e struct {
			Type  string          `json:"type"`
			Delta json.RawMessage `json:"delta"`
			Item  Item            `json:"item"`

			Choices []struct {
				Delta struct {
					Content   string `json:"content"`
					ToolCalls []struct {
						Function struct {
							Arguments string `json:"arguments"`
						} `json:"function"`
					} `json:"tool_calls"`
				} `json:"delta"`
			} `json:"choices"`
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		switch d {
		case Responses:
			var part string
			if e.Type == "response.output_text.delta" && json.Unmarshal(e.Delta, &part) == nil {
				text += part
			}
			call += e.Item.Arguments
		case Chat:
			for _, c := range e.Choices {
				text += c.Delta.Content
				for _, tc := range c.Delta.ToolCalls {
					call += tc.Function.Arguments
				}
			}
		case Messages:
			var part struct {
				Text string `json:"text"`
				JSON string `json:"partial_json"`
			}
			if len(e.Delta) > 0 {
				if err := json.Unmarshal(e.Delta, &part); err != nil {
					t.Fatal(err)
				}
			}
			text, call = text+part.Text, call+part.JSON
		}
	}
	return text, call
}

func TestFailureInEveryDialect(t *testing.T) {
	for _, d := range dialects {
		m := newModel(t, InOrder(RateLimited.Then(1, Say("hi"))))
		status, answer, _ := post(t, m.URL()+"/"+d.path, conversation(d.name, true))
		if status != http.StatusTooManyRequests || !strings.Contains(answer, "rate limit reached") {
			t.Errorf("%s: %d %s", d.name, status, answer)
		}
	}
}

func TestCutInEveryDialect(t *testing.T) {
	for _, d := range dialects {
		m := newModel(t, InOrder(Cut("I begin to")))
		_, answer, err := post(t, m.URL()+"/"+d.path, conversation(d.name, true))
		if err == nil || answer == "" {
			t.Errorf("%s: want a beginning and an error, got %q, %v", d.name, answer, err)
		}
		if m.Err() != nil {
			t.Errorf("%s: %v", d.name, m.Err())
		}
	}
}

func TestTokenLimitInEveryDialect(t *testing.T) {
	for d, want := range map[string]string{"responses": "max_output_tokens", "chat/completions": "length", "messages": "max_tokens"} {
		m := newModel(t, InOrder(TokenLimit("and so"), TokenLimit("and so")))
		for _, stream := range []bool{false, true} {
			body := `{"stream":true}`
			if !stream {
				body = `{}`
			}
			if _, answer, _ := post(t, m.URL()+"/"+d, body); !strings.Contains(answer, want) {
				t.Errorf("%s: %q is not in %s", d, want, answer)
			}
		}
	}
}

// TestByTurn checks that the step depends on the conversation, not on the
// number of requests.
func TestByTurn(t *testing.T) {
	m := newModel(t, ByTurn(Say("zero"), Overloaded.Then(1, Say("one"))))
	var got []int
	for _, body := range []string{
		conversation(Responses, false), // the first attempt fails
		conversation(Responses, false),
		`{"input":"a title, please"}`,
		`{"input":"go","tools":[{"type":"function","name":"exec_command"}]}`,
	} {
		status, answer, _ := post(t, m.URL()+"/responses", body)
		got = append(got, status)
		if len(got) == 4 && !strings.Contains(answer, "zero") {
			t.Errorf("the first turn got %s", answer)
		}
	}
	if diff := cmp.Diff([]int{529, 200, 200, 200}, got); diff != "" {
		t.Error(diff)
	}
}

func TestWrite(t *testing.T) {
	for want, tool := range map[string]string{
		`*** Add File: a.txt\n+one\n+two\n`: `{"type":"custom","name":"apply_patch"}`,
		`\"filePath\":\"a.txt\"`:            `{"type":"function","name":"write","parameters":{"properties":{"filePath":{}}}}`,
		`\"path\":\"a.txt\"`:                `{"type":"function","name":"write","parameters":{"properties":{"path":{}}}}`,
	} {
		m := newModel(t, InOrder(Write("a.txt", "one\ntwo\n")))
		if _, answer, _ := post(t, m.URL()+"/responses", `{"tools":[`+tool+`]}`); !strings.Contains(answer, want) {
			t.Errorf("%q is not in %s", want, answer)
		}
	}
}

func TestCountTokens(t *testing.T) {
	m := newModel(t, ByTurn())
	if status, answer, _ := post(t, m.Root()+"/v1/messages/count_tokens", `{}`); status != http.StatusOK || !strings.Contains(answer, "100") {
		t.Errorf("%d %s", status, answer)
	}
}
