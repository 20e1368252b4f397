package acpapi_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/wire/acpapi"
)

var update = flag.Bool("update", false, "write golden files")

// TestTranscripts makes updates of the logs of real agents, which the tests of the engine
// keep, and compares them with those of before and with the schema of the protocol.
func TestTranscripts(t *testing.T) {
	const dir = "../../engine/agents/testdata/transcripts"
	files, err := filepath.Glob(dir + "/*/*.golden")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	read := 0
	for _, file := range files {
		if strings.HasSuffix(file, ".sent.golden") || strings.HasSuffix(file, ".takopi.golden") {
			continue
		}
		read++
		name, err := filepath.Rel(dir, file)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "-- %s --\n", name)
		for _, u := range acpapi.Updates(readLog(t, file), "/srv/agents/work") {
			data, err := json.Marshal(u)
			if err != nil {
				t.Fatal(err)
			}
			validate(t, "v1", "SessionUpdate", data)
			fmt.Fprintf(&out, "%s\n", data)
		}
	}
	if read < 30 {
		t.Fatalf("only %d logs", read)
	}
	const golden = "testdata/transcripts.golden"
	if *update {
		if err := os.WriteFile(golden, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	got, expected := strings.Split(out.String(), "\n"), strings.Split(string(want), "\n")
	for i, line := range got {
		if i >= len(expected) || line != expected[i] {
			t.Fatalf("line %d is\n%s\nwant\n%s\n(-update writes the file)", i+1, line, expected[min(i, len(expected)-1)])
		}
	}
	if len(got) < len(expected) {
		t.Errorf("%d lines, want %d", len(got), len(expected))
	}
}

// readLog reads a log as the tests of the engine write it: a turn, a kind and data a line.
func readLog(t *testing.T, file string) []spool.Event {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var events []spool.Event
	for line := range strings.Lines(string(text)) {
		turn, rest, _ := strings.Cut(line, " ")
		kind, data, _ := strings.Cut(rest, " ")
		e := spool.Event{Run: "run", Seq: spool.Seq(len(events) + 1), Time: time.Unix(int64(len(events)), 0), Kind: spool.Kind(kind), Data: json.RawMessage(strings.TrimSpace(data))}
		if turn != "0" {
			e.Turn = 1
		}
		events = append(events, e)
	}
	return events
}

// told makes updates of events, without their places.
func told(t *testing.T, events ...spool.Event) []string {
	t.Helper()
	for i := range events {
		events[i].Seq = spool.Seq(i + 1)
	}
	var out []string
	for _, u := range acpapi.Updates(events, "/srv") {
		data, err := json.Marshal(u)
		if err != nil {
			t.Fatal(err)
		}
		validate(t, "v1", "SessionUpdate", data)
		text, _, _ := strings.Cut(string(data), `,"_meta"`)
		out = append(out, strings.TrimPrefix(text, `{"sessionUpdate":`))
	}
	return out
}

func event(t *testing.T, kind spool.Kind, data any) spool.Event {
	t.Helper()
	b, err := json.Marshal(data)
	if err != nil {
		t.Fatal(err)
	}
	return spool.Event{Kind: kind, Data: b}
}

// TestUpdates makes updates of single events.
func TestUpdates(t *testing.T) {
	yes, no, code := true, false, 3
	message := func(id, text string, delta bool) spool.Event {
		return event(t, agent.KindMessage, agent.Message{ID: id, Text: text, Delta: delta})
	}
	action := func(a agent.Action) spool.Event {
		a.ID = "c"
		return event(t, agent.KindAction, a)
	}
	for _, tt := range []struct {
		name   string
		events []spool.Event
		want   []string
	}{
		{"a whole message", []spool.Event{message("a", "x", false)}, []string{`"agent_message_chunk","content":{"type":"text","text":"x"},"messageId":"m1"`}},
		{"a whole after its pieces", []spool.Event{message("a", "x", true), message("a", "y", true), message("a", "xy\n", false)},
			[]string{`"agent_message_chunk","content":{"type":"text","text":"x"},"messageId":"m1"`, `"agent_message_chunk","content":{"type":"text","text":"y"},"messageId":"m1"`}},
		{"a whole whose pieces have no name", []spool.Event{message("", "x", true), message("a", "x", false), message("b", "x", false)},
			[]string{`"agent_message_chunk","content":{"type":"text","text":"x"},"messageId":"m1"`, `"agent_message_chunk","content":{"type":"text","text":"x"},"messageId":"m3"`}},
		{"a whole with more than its pieces", []spool.Event{message("", "x", true), message("", "xyz", false), message("", "x", false)},
			[]string{`"agent_message_chunk","content":{"type":"text","text":"x"},"messageId":"m1"`, `"agent_message_chunk","content":{"type":"text","text":"yz"},"messageId":"m1"`,
				`"agent_message_chunk","content":{"type":"text","text":"x"},"messageId":"m3"`}},
		{"pieces of two wholes", []spool.Event{message("", "one ", true), message("", "two", true), message("", "one ", false), message("", "two", false)},
			[]string{`"agent_message_chunk","content":{"type":"text","text":"one "},"messageId":"m1"`, `"agent_message_chunk","content":{"type":"text","text":"two"},"messageId":"m1"`}},
		{"a whole that is another", []spool.Event{message("", "one", true), message("", "two", false)},
			[]string{`"agent_message_chunk","content":{"type":"text","text":"one"},"messageId":"m1"`, `"agent_message_chunk","content":{"type":"text","text":"two"},"messageId":"m2"`}},
		{"a message of a subagent", []spool.Event{event(t, agent.KindMessage, agent.Message{Text: "x", Parent: "c"})}, []string{`"agent_thought_chunk","content":{"type":"text","text":"x"},"messageId":"m1"`}},
		{"a message of a user", []spool.Event{event(t, agent.KindMessage, agent.Message{Text: "x", Role: "user", History: true})}, []string{`"user_message_chunk","content":{"type":"text","text":"x"},"messageId":"m1"`}},
		{"a message that is too large", []spool.Event{event(t, agent.KindMessage, agent.Message{Text: "x", Blob: &spool.Blob{Size: 11}})}, []string{`"agent_message_chunk","content":{"type":"text","text":"x\n… 10 more bytes"},"messageId":"m1"`}},
		{"an action that only ends", []spool.Event{action(agent.Action{Kind: agent.ActionCommand, Phase: agent.ActionCompleted, Title: "false", OK: &no, ExitCode: &code, Input: json.RawMessage(`{"command":"false"}`)})},
			[]string{`"tool_call","toolCallId":"c","title":"false","kind":"execute","status":"failed","rawInput":{"command":"false"},"rawOutput":{"exit_code":3}`}},
		{"an action that is denied", []spool.Event{action(agent.Action{Kind: agent.ActionRead, Phase: agent.ActionStarted, Title: "read", Input: json.RawMessage(`{"file_path":"a.txt"}`)}), action(agent.Action{Kind: agent.ActionRead, Phase: agent.ActionCompleted, Title: "read", OK: &no, Message: "denied"})},
			[]string{`"tool_call","toolCallId":"c","title":"read","kind":"read","status":"in_progress","locations":[{"path":"/srv/a.txt"}],"rawInput":{"file_path":"a.txt"}`,
				`"tool_call_update","toolCallId":"c","title":"read","kind":"read","status":"failed","content":[{"type":"content","content":{"type":"text","text":"denied"}}],"rawOutput":{"message":"denied"}`}},
		{"an action that changes files", []spool.Event{action(agent.Action{Kind: agent.ActionFileChange, Phase: agent.ActionCompleted, Title: "two files", OK: &yes, Changes: []agent.FileChange{
			{Path: "new", Kind: "add", Diff: "@@ -0,0 +1,1 @@\n+a\n\\ No newline at end of file\n"}, {Path: "/old", Kind: "update", Diff: "@@ -1,2 +1,1 @@\n a\n-b\n@@ -9,1 +8,3 @@ func\n x\n\n+y\n… 7 more bytes\n"}}})},
			[]string{`"tool_call","toolCallId":"c","title":"two files","kind":"edit","status":"completed","content":[{"type":"diff","path":"/srv/new","newText":"a"},{"type":"diff","path":"/old","oldText":"a\nb\n","newText":"a\n"},{"type":"diff","path":"/old","oldText":"x\n\n","newText":"x\n\ny\n"}],"locations":[{"path":"/srv/new","line":1},{"path":"/old","line":1}]`}},
		{"an action that deletes", []spool.Event{action(agent.Action{Kind: agent.ActionFileChange, Phase: agent.ActionStarted, Title: "gone", Changes: []agent.FileChange{{Path: "/a", Kind: "delete"}}})},
			[]string{`"tool_call","toolCallId":"c","title":"gone","kind":"delete","status":"in_progress","locations":[{"path":"/a"}]`}},
		{"an action without a title", []spool.Event{action(agent.Action{Kind: "new kind", Phase: agent.ActionStarted})}, []string{`"tool_call","toolCallId":"c","title":"new kind","kind":"other","status":"in_progress"`}},
		{"the beginning of a turn", []spool.Event{action(agent.Action{Kind: agent.ActionTurn, Phase: agent.ActionStarted})}, nil},
		{"a plan", []spool.Event{event(t, agent.KindPlan, agent.Plan{Items: []agent.PlanItem{{Text: "a", Status: "cancelled"}}})}, []string{`"plan","entries":[{"content":"a","priority":"medium","status":"pending"}]`}},
		{"usage", []spool.Event{event(t, agent.KindUsage, agent.Usage{Run: &agent.Spend{CostUSD: 0.5}, ContextUsed: 5, ContextSize: 10})}, []string{`"usage_update","used":5,"size":10,"cost":{"amount":0.5,"currency":"USD"}`}},
		{"usage without a window", []spool.Event{event(t, agent.KindUsage, agent.Usage{Run: &agent.Spend{CostUSD: 0.5}})}, nil},
		{"a retry", []spool.Event{event(t, agent.KindRetry, agent.Retry{Attempt: 1, Max: 3, Reason: "busy"})}, []string{`"agent_thought_chunk","content":{"type":"text","text":"⚠ The request to the model failed and is made again (1 of 3): busy\n"},"messageId":"m1"`}},
		{"notices", []spool.Event{event(t, spool.KindNotice, spool.Notice{Level: "warning", Text: "w"}), event(t, spool.KindNotice, spool.Notice{Text: "i"})}, []string{`"agent_thought_chunk","content":{"type":"text","text":"⚠ w\n"},"messageId":"m1"`}},
		{"a gap", []spool.Event{event(t, spool.KindTruncated, spool.Truncation{From: 2, To: 9})}, []string{`"agent_thought_chunk","content":{"type":"text","text":"⚠ The log no longer has the events 2 to 9.\n"},"messageId":"m1"`}},
		{"a turn that failed", []spool.Event{event(t, spool.KindDone, spool.Done{Outcome: agent.TurnStalled, Error: "silent"})}, []string{`"agent_thought_chunk","content":{"type":"text","text":"⚠ The turn ended: stalled: silent\n"},"messageId":"m1"`}},
		{"what is no JSON", []spool.Event{{Kind: agent.KindMessage, Data: []byte("{")}, {Kind: agent.KindAction}, {Kind: spool.KindInput, Data: []byte(`{"kind":"prompt","data":7}`)}, {Kind: "new"}}, nil},
	} {
		got := told(t, tt.events...)
		if strings.Join(got, "\n") != strings.Join(tt.want, "\n") {
			t.Errorf("%s:\n%s\nwant\n%s", tt.name, strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
		}
	}
}

// TestLongOutput cuts the output of a tool call, and the title of a session.
func TestLongOutput(t *testing.T) {
	output := strings.Repeat("ä", acpapi.MaxOutput) // cut within a character
	got := told(t, event(t, agent.KindAction, agent.Action{ID: "c", Kind: agent.ActionCommand, Phase: agent.ActionCompleted, Title: "x", Output: "a" + output}))
	want := fmt.Sprintf("… %d more bytes", acpapi.MaxOutput+2)
	if len(got) != 1 || strings.Count(got[0], want) != 2 || len(got[0]) > 2*acpapi.MaxOutput+1000 || strings.Contains(got[0], "\uFFFD") {
		t.Errorf("an output of %d bytes became %.100s … %d bytes", len(output), got, len(got[0]))
	}
	prompt := event(t, spool.KindInput, spool.Said{Kind: spool.InputPrompt, Data: json.RawMessage(`{"text":"` + strings.Repeat("ü", acpapi.MaxTitle+1) + `\nmore"}`)})
	if got := told(t, prompt); len(got) != 2 || !strings.Contains(got[1], `"title":"`+strings.Repeat("ü", acpapi.MaxTitle-1)+`…"`) {
		t.Errorf("the title is %s", got)
	}
}
