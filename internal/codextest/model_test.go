package codextest

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// ask sends a request to a model and returns its status code.
func ask(t *testing.T, m *Model, body string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", m.URL()+"/responses", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

func newModel(t *testing.T, script ...Step) *Model {
	t.Helper()
	m, err := NewModel(script...)
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
		{"no such tool", []Step{Run(Command{Cmd: "true"})}, []string{`{}`}, "no tool exec_command"},
		{"no session", []Step{WriteStdin("x", 0)}, []string{`{}`}, "no command is running"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newModel(t, tt.script...)
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
	m := newModel(t, Say("hi").When(func(context.Context) error {
		close(asked)
		return nil
	}).After(gate))
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
	m := newModel(t, Say("never").When(func(context.Context) error {
		close(asked)
		return nil
	}).After(nil))
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
		t.Errorf("closing is not against the script: %v", err)
	}
}

func TestRequestOutputs(t *testing.T) {
	m := newModel(t, Say("hi"))
	ask(t, m, `{"input":[
		{"type":"message","role":"user","content":[{"type":"input_text","text":"go"}]},
		{"type":"function_call_output","call_id":"a","output":"Chunk ID: 1\nWall time: 0.1 seconds\nProcess exited with code 3\nOriginal token count: 4\nOutput:\nhi\nOutput:\n"},
		{"type":"function_call_output","call_id":"b","output":[{"type":"input_text","text":"Chunk ID: 2\nProcess running with session ID 77\nOutput:\n"}]},
		{"type":"custom_tool_call_output","call_id":"c","output":"Exit code: 0\nWall time: 0 seconds\nOutput:\nSuccess.\n"},
		{"type":"function_call_output","call_id":"d","output":"it failed"}]}`)
	got := m.Outputs()
	for i := range got {
		got[i].Raw = ""
	}
	want := []Output{
		{CallID: "a", Text: "hi\nOutput:\n", Exited: true, ExitCode: 3},
		{CallID: "b", Session: 77},
		{CallID: "c", Text: "Success.\n", Exited: true},
		{CallID: "d", Text: "it failed"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("outputs (-want +got):\n%s", diff)
	}
}

func TestStepWhenFails(t *testing.T) {
	broken := errors.New("broken")
	m := newModel(t, Say("hi").When(func(context.Context) error { return broken }))
	if s := ask(t, m, `{}`); s != http.StatusBadRequest {
		t.Errorf("status %d, want 400", s)
	}
	if err := m.Err(); !errors.Is(err, broken) {
		t.Errorf("got error %v, want %v", err, broken)
	}
}
