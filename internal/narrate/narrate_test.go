package narrate

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
)

// log makes events, a second apart.
type log struct {
	t      *testing.T
	events []*spool.Event
}

func (l *log) add(kind spool.Kind, data any) *log {
	l.t.Helper()
	b, err := json.Marshal(data)
	if err != nil {
		l.t.Fatal(err)
	}
	seq := spool.Seq(len(l.events) + 1)
	l.events = append(l.events, &spool.Event{Seq: seq, Turn: 1, Kind: kind, Data: b, Time: time.Unix(int64(seq), 0)})
	return l
}

func (l *log) said(kind spool.InputKind, data any) *log {
	l.t.Helper()
	b, err := json.Marshal(data)
	if err != nil {
		l.t.Fatal(err)
	}
	return l.add(spool.KindInput, spool.Said{Kind: kind, Data: b})
}

// tell returns the text of all events; answers begin with "answer: ".
func tell(n *Narrator, events []*spool.Event) []string {
	var lines []string
	for _, e := range events {
		for _, t := range n.Event(e) {
			text := t.Text
			if t.Answer {
				text = "answer: " + text
			}
			lines = append(lines, strings.Split(text, "\n")...)
		}
	}
	return lines
}

// turn is one turn with everything that a narrator tells.
func turn(t *testing.T) []*spool.Event {
	t.Helper()
	l := &log{t: t}
	l.said(spool.InputPrompt, spool.Prompt{Text: "Make it\nbetter."})
	l.add(spool.KindStarted, agent.Started{Agent: "codex", Version: "1.2", Model: "m1", Resume: "s1", Resumed: true, Cwd: "/work"})
	l.add(agent.KindReasoning, agent.Reasoning{Text: "First\nI look."})
	l.add(agent.KindMessage, agent.Message{Text: "I will."})
	l.add(agent.KindAction, agent.Action{ID: "c1", Kind: agent.ActionCommand, Phase: agent.ActionStarted, Title: "/bin/bash -lc 'make test'"})
	approval, err := json.Marshal(agent.Approval{Action: "c1", Kind: agent.ActionCommand, Command: "make test", Cwd: "/other", Reason: "it writes"})
	if err != nil {
		t.Fatal(err)
	}
	l.add(spool.KindAsk, spool.Ask{Kind: agent.AskApproval, Prompt: "make test", Data: approval})
	l.said(spool.InputAnswer, spool.Answer{Ask: 6, Data: json.RawMessage(`{"choice":"allow"}`), By: "ann"})
	l.add(agent.KindAction, agent.Action{ID: "c1", Kind: agent.ActionCommand, Phase: agent.ActionCompleted, Title: "/bin/bash -lc 'make test'",
		OK: new(false), ExitCode: new(2), Output: "building\n\x1b[31mno rule\x1b[0m\n"})
	l.add(agent.KindAction, agent.Action{ID: "f1", Kind: agent.ActionFileChange, Phase: agent.ActionCompleted, Title: "/work/a.txt",
		OK: new(true), DurationMs: 1500, Changes: []agent.FileChange{{Path: "/work/a.txt", Kind: "update", Diff: "@@ -1,2 +1,2 @@\n same\n-old\n+new\n"}}})
	l.add(agent.KindAction, agent.Action{ID: "x1", Kind: agent.ActionTool, Phase: agent.ActionCompleted, Title: "look"})
	l.add(agent.KindPlan, agent.Plan{Items: []agent.PlanItem{{Text: "build", Status: "completed"}, {Text: "test", Status: "in_progress"}, {Text: "ship", Status: "pending"}}})
	l.add(agent.KindPlan, agent.Plan{Items: []agent.PlanItem{{Text: "build", Status: "completed"}, {Text: "test", Status: "completed"}, {Text: "ship", Status: "pending"}}})
	l.add(agent.KindRetry, agent.Retry{Attempt: 1, Max: 5, Status: 429, Reason: "too many"})
	l.add(spool.KindNotice, spool.Notice{Level: "warning", Text: "careful"})
	l.add(agent.KindUsage, agent.Usage{Turn: &agent.Spend{Input: 10, Output: 2}})
	l.add(agent.KindMessage, agent.Message{Text: "All done."})
	l.add(spool.KindDone, spool.Done{Outcome: spool.TurnOK, Answer: "All done.", DurationMs: 61_000, Resume: "s1",
		Usage: json.RawMessage(`{"turn":{"input":10,"output":2,"cost_usd":0.5}}`)})
	return l.events
}

// told is the text of turn without colours.
var told = []string{
	"> Make it",
	"  better.",
	"codex 1.2 · m1 · session s1 (resumed)",
	"· First I look.",
	"I will.",
	"… $ make test",
	"? codex asks to run a command",
	"    $ make test",
	"    because: it writes",
	"    in /other",
	"→ make test: allowed (ann)",
	"✗ $ make test (exit 2, 3.0s)",
	"    building",
	"    no rule",
	"✓ edit a.txt (+1 -1, 1.5s)",
	"    @@ -1,2 +1,2 @@",
	"     same",
	"    -old",
	"    +new",
	"• look",
	"plan 1/3",
	"  ✓ build",
	"  → test",
	"  · ship",
	"plan 2/3: ship",
	"↻ retry 1/5, status 429: too many",
	"! careful",
	"All done.",
	"✓ done · 1m1s · 10 tokens in, 2 out · $0.5000",
	"resume codex s1",
}

func narrator() *Narrator {
	return &Narrator{Starts: true, Prompts: true, Asks: true, Resume: func(agent, session string) string { return "resume " + agent + " " + session }}
}

func TestTurn(t *testing.T) {
	if diff := cmp.Diff(told, tell(narrator(), turn(t))); diff != "" {
		t.Error(diff)
	}
}

// TestColours checks that colours add nothing but styles, and that every line
// ends without one.
func TestColours(t *testing.T) {
	n := narrator()
	n.Colour = true
	lines := tell(n, turn(t))
	styled := 0
	for i, l := range lines {
		if strings.Count(l, "\x1b[")%2 != 0 || strings.Contains(l, "\x1b[") && !strings.Contains(l, "\x1b[0m") {
			t.Errorf("a style does not end: %q", l)
		}
		if strings.Contains(l, "\x1b[") {
			styled++
		}
		for _, code := range []string{"0", "1", "2", "31", "32", "33", "36"} {
			l = strings.ReplaceAll(l, "\x1b["+code+"m", "")
		}
		lines[i] = l
	}
	if diff := cmp.Diff(told, lines); diff != "" {
		t.Error(diff)
	}
	if styled < 15 {
		t.Errorf("%d lines have a style", styled)
	}
}

func TestAnswer(t *testing.T) {
	events := turn(t)
	for mode, want := range map[AnswerMode]struct {
		lines  int // with the answer
		answer bool
	}{
		AnswerOnce: {1, false}, AnswerNone: {1, false}, AnswerApart: {1, true}, AnswerAgain: {2, true},
	} {
		n := narrator()
		n.Answer = mode
		lines, answer := 0, false
		for _, l := range tell(n, events) {
			if strings.HasSuffix(l, "All done.") {
				lines++
				answer = answer || strings.HasPrefix(l, "answer: ")
			}
		}
		if lines != want.lines || answer != want.answer {
			t.Errorf("mode %d: the answer is told %d times, apart: %v", mode, lines, answer)
		}
	}
}

// TestAnswerInParts checks that an answer of several messages is not repeated,
// and that one that was never said is told.
func TestAnswerInParts(t *testing.T) {
	l := &log{t: t}
	l.add(agent.KindMessage, agent.Message{Text: "One."}).add(agent.KindMessage, agent.Message{Text: "Two."})
	l.add(spool.KindDone, spool.Done{Outcome: spool.TurnOK, Answer: "One.\nTwo."})
	l.add(spool.KindDone, spool.Done{Outcome: spool.TurnOK, Answer: "Other."})
	want := []string{"One.", "Two.", "✓ done · 0.0s", "answer: Other.", "✓ done · 0.0s"}
	if diff := cmp.Diff(want, tell(new(Narrator), l.events)); diff != "" {
		t.Error(diff)
	}
}

// TestHostileText checks that no text of an agent reaches the terminal with
// control characters.
func TestHostileText(t *testing.T) {
	const evil = "a\x1b[2Jb\x07c\u202ed\n\x1b]0;x\x07e"
	l := &log{t: t}
	data, err := json.Marshal(agent.Approval{Kind: agent.ActionCommand, Command: evil, Reason: evil, Cwd: evil, Paths: []string{evil}, Tool: evil,
		Changes: []agent.FileChange{{Path: evil, Diff: "+" + evil}}})
	if err != nil {
		t.Fatal(err)
	}
	ask := spool.Ask{Kind: agent.AskApproval, Prompt: evil, Data: data}
	l.said(spool.InputPrompt, spool.Prompt{Text: evil})
	l.add(spool.KindStarted, agent.Started{Agent: evil, Version: evil, Model: evil, Resume: evil})
	l.add(agent.KindReasoning, agent.Reasoning{Text: evil}).add(agent.KindMessage, agent.Message{Text: evil})
	l.add(agent.KindAction, agent.Action{ID: evil, Kind: agent.ActionCommand, Phase: agent.ActionStarted, Title: evil})
	l.add(agent.KindAction, agent.Action{ID: evil, Kind: agent.ActionCommand, Phase: agent.ActionCompleted, Title: evil, OK: new(false), Output: evil, Message: evil})
	l.add(agent.KindAction, agent.Action{Kind: agent.ActionFileChange, Phase: agent.ActionCompleted, Title: evil, Changes: []agent.FileChange{{Path: evil, Diff: "+" + evil}}})
	l.add(agent.KindPlan, agent.Plan{Items: []agent.PlanItem{{Text: evil, Status: evil}}}).add(agent.KindRetry, agent.Retry{Reason: evil})
	l.add(spool.KindNotice, spool.Notice{Text: evil}).add(spool.KindAsk, ask)
	l.said(spool.InputAnswer, spool.Answer{Ask: 11, Data: json.RawMessage(`"` + `\u001b[2J` + `"`), By: evil})
	l.add(spool.KindDone, spool.Done{Outcome: evil, Error: evil, ErrorClass: evil, Stderr: evil, Resume: evil})
	n := narrator()
	n.Verbose = true
	lines := append(tell(n, l.events), n.Question(&ask, true), n.Question(&spool.Ask{Prompt: evil}, true))
	if text := strings.Join(lines, "\n"); strings.ContainsAny(text, "\x1b\x07\u202e") {
		t.Errorf("%q", text)
	}
}

func TestLongDiff(t *testing.T) {
	var diff strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&diff, "+line %d\n", i)
	}
	l := &log{t: t}
	l.add(agent.KindAction, agent.Action{ID: "f", Kind: agent.ActionFileChange, Phase: agent.ActionCompleted, OK: new(true),
		Changes: []agent.FileChange{{Path: "a", Kind: "add", Diff: diff.String()}, {Path: "b", Diff: "@@ @@\n-x\n+y\n"}}})
	lines := tell(new(Narrator), l.events)
	if n := len(lines); n != maxDiff+2 || lines[0] != "✓ add a, edit b (+1001 -1)" || lines[1] != "    a" || lines[n-1] != "    … 980 more lines" {
		t.Errorf("%d lines: %q", n, lines)
	}
	lines = tell(&Narrator{Verbose: true}, l.events)
	if n := len(lines); n != 1005 || lines[n-1] != "    +y" {
		t.Errorf("verbose: %d lines, the last is %q", n, lines[n-1])
	}
}

// TestQuestionInFull checks that a question holds all that its answer is about,
// and that the end of the action does not repeat a diff.
func TestQuestionInFull(t *testing.T) {
	var diff strings.Builder
	for i := range 100 {
		fmt.Fprintf(&diff, "+line %d\n", i)
	}
	change := []agent.FileChange{{Path: "a.txt", Kind: "add", Diff: diff.String()}}
	for name, tt := range map[string]struct {
		approval agent.Approval
		want     []string
	}{
		"diff":      {agent.Approval{Action: "f", Kind: agent.ActionFileChange, Changes: change, Paths: []string{"a.txt", "/etc/b"}}, []string{"? the agent asks to change files", "    add a.txt", "        +line 99", "    file /etc/b"}},
		"command":   {agent.Approval{Kind: agent.ActionCommand, Command: "make \\\n  " + strings.Repeat("x", 500)}, []string{"    $ make \\", "      " + strings.Repeat("x", 500)}},
		"arguments": {agent.Approval{Kind: agent.ActionMCP, Tool: "t", Input: json.RawMessage(`{"to":"all"}`)}, []string{"? the agent asks to use a tool of a server", `      "to": "all"`}},
		"plan":      {agent.Approval{Kind: agent.ApprovePlan, Input: json.RawMessage(`{"plan":"one\ntwo"}`)}, []string{"? the agent asks to begin with its plan", "    one", "    two"}},
		"other":     {agent.Approval{Kind: agent.ActionOther, Tool: "extension"}, []string{"? the agent asks to go on", "    the prompt"}},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := json.Marshal(tt.approval)
			if err != nil {
				t.Fatal(err)
			}
			n := new(Narrator)
			lines := strings.Split(n.Question(&spool.Ask{Kind: agent.AskApproval, Prompt: "the prompt", Data: data}, true), "\n")
			for _, want := range tt.want {
				found := false
				for _, l := range lines {
					found = found || l == want
				}
				if !found {
					t.Errorf("no line %q in %q", want, lines)
				}
			}
			l := (&log{t: t}).add(agent.KindAction, agent.Action{ID: "f", Kind: agent.ActionFileChange, Phase: agent.ActionCompleted, OK: new(true), Changes: change})
			if lines := tell(n, l.events); name == "diff" && len(lines) != 1 {
				t.Errorf("the diff is told again: %q", lines)
			}
		})
	}
}

func TestStatus(t *testing.T) {
	events := turn(t)
	n := &Narrator{Agent: "codex"}
	status := func(upTo int, quiet time.Duration) string {
		t.Helper()
		n = &Narrator{Agent: "codex"}
		tell(n, events[:upTo])
		text, stalled := n.Status(quiet)
		if stalled {
			text = "stalled: " + text
		}
		return text
	}
	for _, tt := range []struct {
		upTo  int
		quiet time.Duration
		want  string
	}{
		{0, time.Second, ""},
		{1, 3 * time.Second, "starting codex 3s"},
		{1, 60 * time.Second, "stalled: no output for 1m0s · starting codex 1m0s"},
		{4, 9 * time.Second, "working 12s"},
		{4, 45 * time.Second, "stalled: no output for 45s · working 48s"},
		{5, 45 * time.Second, "$ make test 45s"},
		{5, 60 * time.Second, "stalled: no output for 1m0s · $ make test 1m0s"},
		{6, 61 * time.Second, "waiting for an answer 1m1s"},
		{7, time.Second, "$ make test 3s"},
		{15, 0, "working 14s · 12 tokens"},
		{17, time.Hour, ""},
	} {
		if got := status(tt.upTo, tt.quiet); got != tt.want {
			t.Errorf("%v after event %d: %q, want %q", tt.quiet, tt.upTo, got, tt.want)
		}
	}
}

func TestUnwrap(t *testing.T) {
	for command, want := range map[string]string{
		"/bin/bash -lc 'a; b'":      "a; b",
		`bash -lc "echo 'x'"`:       "echo 'x'",
		"/usr/bin/sh -c ls":         "ls",
		`bash -lc "echo $x"`:        `bash -lc "echo $x"`,
		"bash -lc 'a' 'b'":          "bash -lc 'a' 'b'",
		"bash -lc 'it'\"'\"'s'":     "bash -lc 'it'\"'\"'s'",
		"make 'x'":                  "make 'x'",
		"/home/evil/bash -c 'true'": "/home/evil/bash -c 'true'",
	} {
		if got := unwrap(command); got != want {
			t.Errorf("unwrap(%s) = %s, want %s", command, got, want)
		}
	}
}

func TestIsAgent(t *testing.T) {
	l := &log{t: t}
	l.said(spool.InputCell, spool.Cell{Code: "1"}).said(spool.InputAnswer, spool.Answer{Ask: 1})
	l.add(spool.KindStarted, map[string]string{"python": "3.14"}).add(spool.KindAsk, spool.Ask{Kind: spool.AskInput})
	l.add(spool.KindDone, spool.Done{Outcome: spool.TurnOK}).add(spool.KindNotice, spool.Notice{})
	for _, e := range l.events {
		if IsAgent(e) {
			t.Errorf("%s %s is of an agent", e.Kind, e.Data)
		}
	}
	agents := 0
	for _, e := range turn(t) {
		if IsAgent(e) {
			agents++
		}
	}
	if agents != len(turn(t))-2 { // an answer and a notice may be of any run
		t.Errorf("%d events are of an agent", agents)
	}
}
