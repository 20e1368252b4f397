package codextest

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool/internal/modeltest"
)

func newModel(t *testing.T, script ...modeltest.Step) *modeltest.Model {
	t.Helper()
	m, err := modeltest.New(modeltest.InOrder(script...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// ask sends a request to a model.
func ask(t *testing.T, m *modeltest.Model, body string) {
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
}

func TestStepErr(t *testing.T) {
	for want, step := range map[string]modeltest.Step{
		"no tool exec_command":  Run(Command{Cmd: "true"}),
		"no command is running": WriteStdin("x", 0),
	} {
		m := newModel(t, step)
		ask(t, m, `{}`)
		if err := m.Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q", err, want)
		}
	}
}

func TestOutputs(t *testing.T) {
	m := newModel(t, modeltest.Say("hi"))
	ask(t, m, `{"input":[
		{"type":"message","role":"user","content":[{"type":"input_text","text":"go"}]},
		{"type":"function_call_output","call_id":"a","output":"Chunk ID: 1\nWall time: 0.1 seconds\nProcess exited with code 3\nOriginal token count: 4\nOutput:\nhi\nOutput:\n"},
		{"type":"function_call_output","call_id":"b","output":[{"type":"input_text","text":"Chunk ID: 2\nProcess running with session ID 77\nOutput:\n"}]},
		{"type":"custom_tool_call_output","call_id":"c","output":"Exit code: 0\nWall time: 0 seconds\nOutput:\nSuccess.\n"},
		{"type":"function_call_output","call_id":"d","output":"it failed"}]}`)
	got := Outputs(m)
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
