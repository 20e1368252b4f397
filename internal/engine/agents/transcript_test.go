package agents

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/talk"
	"github.com/spool-run/spool/internal/engine/enginetest"
)

var update = flag.Bool("update", false, "write golden files")

// transcript is what a real agent printed, and how it ended.
type transcript struct {
	name    string // of the file, without its ending
	agent   string
	whole   []byte
	exit    talk.Exit
	stderr  string
	stopped bool // it got a signal
	resume  string
}

// agents are the folders of the transcripts.
var transcriptAgents = map[string]string{
	"codex": agent.Codex, "claude": agent.Claude, "opencode": agent.OpenCode, "pi-earendil": agent.Pi,
}

// readTranscripts returns those of exec mode.
func readTranscripts(t testing.TB) []transcript {
	t.Helper()
	files, err := filepath.Glob("testdata/transcripts/*/*.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var list []transcript
	for _, file := range files {
		base := strings.TrimSuffix(file, ".jsonl")
		name := transcriptAgents[filepath.Base(filepath.Dir(file))]
		if _, err := os.Stat(base + ".stdin.jsonl"); err == nil || strings.HasSuffix(base, ".stdin") || name == "" {
			continue // both ways
		}
		list = append(list, readTranscript(t, base, name))
	}
	if len(list) < 28 {
		t.Fatalf("only %d transcripts", len(list))
	}
	return list
}

func readTranscript(t testing.TB, base, name string) transcript {
	t.Helper()
	tr := transcript{name: base, agent: name}
	var err error
	if tr.whole, err = os.ReadFile(base + ".jsonl"); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(base + ".meta.json")
	if err != nil {
		t.Fatal(err)
	}
	var meta struct {
		Case    string `json:"case"`
		Session string `json:"session"`
		Code    int    `json:"exit_code"`
		Signal  string `json:"signal"`
		After   *int   `json:"exit_after_signal_ms"`
	}
	if err := json.Unmarshal(data, &meta); err != nil {
		t.Fatal(err)
	}
	tr.exit.Code, tr.stopped = meta.Code, meta.After != nil
	if meta.Case == "resume" {
		tr.resume = meta.Session
	}
	if meta.Signal == "terminated" {
		tr.exit = talk.Exit{Code: 128 + int(syscall.SIGTERM), Signal: "SIGTERM"}
	}
	if b, err := os.ReadFile(base + ".stderr"); err == nil {
		tr.stderr = string(b)
	}
	return tr
}

// noStderr is that of a child which says nothing there.
var noStderr = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// replay is a child that prints what it is told to, as far as the code under
// test can see a process.
type replay struct {
	out  chan chunk
	exit chan talk.Exit
	err  string
}

func (r *replay) Write([]byte)                {}
func (r *replay) CloseInput()                 {}
func (r *replay) pid() int                    { return 0 }
func (r *replay) lines() <-chan chunk         { return r.out }
func (r *replay) exited() <-chan talk.Exit    { return r.exit }
func (r *replay) stderr() string              { return r.err }
func (r *replay) drained() <-chan struct{}    { return noStderr }
func (r *replay) signal(syscall.Signal) error { return nil }
func (r *replay) kill() error                 { return nil }
func (r *replay) members() int                { return 0 }
func (r *replay) abandon()                    {}
func (r *replay) close() error                { return nil }

// translate runs output through the loop of a session in exec mode. If the
// agent was stopped, an interrupt comes where it did.
func (tr transcript) translate(t testing.TB) []spool.Event {
	t.Helper()
	config, err := json.Marshal(agent.Config{Agent: tr.agent, Mode: agent.ModeExec, Resume: tr.resume})
	if err != nil {
		t.Fatal(err)
	}
	log := enginetest.NewLog()
	spec := spool.Spec{Engine: agent.Engine, Config: config, Cwd: "/srv/agents/work"}
	s, err := prepare(&spec, &Options{}, log)
	if err != nil {
		t.Fatal(err)
	}
	c := &replay{out: make(chan chunk), exit: make(chan talk.Exit, 1), err: tr.stderr}
	s.spawn = func(talk.Command) (child, error) { return c, nil }
	go s.loop()
	r := &chat{t, s, log}
	turn := r.say("Please do the task.")
	relay := make(chan chunk)
	go readLines(bytes.NewReader(tr.whole), MaxLine, relay)
	stop := func() {
		if !tr.stopped {
			return
		}
		tr.stopped = false
		r.control(spool.Control{Op: spool.ControlInterrupt})
		for waits := true; waits; { // until the loop has taken it
			s.inbox.mu.Lock()
			waits = len(s.inbox.requests) > 0
			s.inbox.mu.Unlock()
		}
	}
	for l := range relay {
		if bytes.Contains(l.line, []byte(`"user-rejected"`)) { // what the signal did
			stop()
		}
		c.out <- l
	}
	stop()
	r.eof()
	close(c.out)
	c.exit <- tr.exit
	r.done(turn)
	enginetest.Wait(t, s)
	return log.All(t)
}

// golden shows events one per line, without what differs from run to run.
func golden(t testing.TB, events []spool.Event) string {
	t.Helper()
	var b strings.Builder
	for _, e := range events {
		data := e.Data
		var err error
		switch e.Kind {
		case spool.KindDone:
			d := enginetest.Data[spool.Done](t, e)
			d.DurationMs = 0
			data, err = json.Marshal(d)
		case agent.KindAction:
			a := enginetest.Data[agent.Action](t, e)
			a.DurationMs = 0
			data, err = json.Marshal(a)
		}
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%d %s %s", e.Turn, e.Kind, data)
		if len(e.Bytes) > 0 {
			fmt.Fprintf(&b, " %q", e.Bytes)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// checkGolden compares with a file, or writes it.
func checkGolden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); d != "" {
		t.Errorf("translation (-want +got):\n%s", d)
	}
}

func TestTranscripts(t *testing.T) {
	for _, tr := range readTranscripts(t) {
		t.Run(strings.TrimPrefix(tr.name, "testdata/transcripts/"), func(t *testing.T) {
			got := tr.translate(t)
			wellFormed(t, got)
			checkGolden(t, tr.name+".golden", golden(t, got))
		})
	}
}

// wellFormed checks what holds of every log of an agent's run.
func wellFormed(t testing.TB, events []spool.Event) {
	t.Helper()
	if err := malformed(events); err != nil {
		t.Error(err)
	}
}

// malformed says what is wrong with a log: one started at most; every turn
// ends with one done, after which nothing of it comes; every action that
// started is completed before that; ids of actions are unique; the outcome of
// the run is last.
func malformed(events []spool.Event) error {
	started := 0
	open := make(map[string]spool.Seq) // actions that run, and their turn
	ended := make(map[string]bool)
	turns := make(map[spool.Seq]bool) // true once done
	for i, e := range events {
		if !json.Valid(e.Data) && len(e.Data) > 0 {
			return fmt.Errorf("event %d is no JSON: %.200q", e.Seq, e.Data)
		}
		if e.Seq != spool.Seq(i+1) {
			return fmt.Errorf("event %d has seq %d", i+1, e.Seq)
		}
		if done := turns[e.Turn]; done && e.Turn != 0 {
			return fmt.Errorf("%s event %d comes after the end of its turn", e.Kind, e.Seq)
		}
		switch e.Kind {
		case spool.KindInput:
			var said spool.Said
			if json.Unmarshal(e.Data, &said) == nil && said.Kind == spool.InputPrompt {
				turns[e.Seq] = false
			}
		case spool.KindStarted:
			if started++; started > 1 {
				return fmt.Errorf("event %d starts a second time", e.Seq)
			}
		case agent.KindAction:
			var a agent.Action
			if err := json.Unmarshal(e.Data, &a); err != nil {
				return err
			}
			_, running := open[a.ID]
			switch {
			case a.ID == "" || a.Kind == "":
				return fmt.Errorf("action %d has no id or no kind: %s", e.Seq, e.Data)
			case ended[a.ID]:
				return fmt.Errorf("action %s goes on after its end", a.ID)
			case a.Phase == agent.ActionStarted && running:
				return fmt.Errorf("action %s starts twice", a.ID)
			case a.Phase == agent.ActionUpdated && !running:
				return fmt.Errorf("action %s is updated and did not start", a.ID)
			case a.Phase == agent.ActionCompleted:
				delete(open, a.ID)
				ended[a.ID] = true
			default:
				open[a.ID] = e.Turn
			}
		case spool.KindDone:
			for id, turn := range open {
				if turn == e.Turn {
					return fmt.Errorf("action %s runs when its turn is done", id)
				}
			}
			var d spool.Done
			if err := json.Unmarshal(e.Data, &d); err != nil {
				return err
			}
			if d.Outcome == "" || d.Outcome != spool.TurnOK && d.Error == "" {
				return fmt.Errorf("done says too little: %s", e.Data)
			}
			turns[e.Turn] = true
		case spool.KindExited, spool.KindFailed:
			if i != len(events)-1 {
				return fmt.Errorf("%s is not the last event", e.Kind)
			}
		}
	}
	for turn, done := range turns {
		if !done {
			return fmt.Errorf("turn %d has no end", turn)
		}
	}
	return nil
}

// Wherever an agent dies, its log is whole.
func TestAnyPrefixOfAnyTranscriptIsWellFormed(t *testing.T) {
	list := readTranscripts(t)
	check := func(t testing.TB, tr transcript) {
		events := tr.translate(t)
		if err := malformed(events); err != nil {
			t.Fatalf("%s cut at byte %d: %v", tr.name, len(tr.whole), err)
		}
	}
	t.Run("at_every_line", func(t *testing.T) {
		for _, tr := range list {
			for i, c := range tr.whole {
				if c == '\n' {
					cut := tr
					cut.whole, cut.exit = tr.whole[:i+1], talk.Exit{Code: 137, Signal: "SIGKILL"}
					check(t, cut)
				}
			}
		}
	})
	t.Run("anywhere", func(t *testing.T) {
		rapid.Check(t, func(rt *rapid.T) {
			tr := rapid.SampledFrom(list).Draw(rt, "transcript")
			tr.whole = tr.whole[:rapid.IntRange(0, len(tr.whole)).Draw(rt, "cut")]
			tr.exit = rapid.SampledFrom([]talk.Exit{{}, {Code: 1}, {Code: 2}, {Code: 137, Signal: "SIGKILL"}}).Draw(rt, "exit")
			tr.stopped = rapid.Bool().Draw(rt, "stopped")
			check(t, tr)
		})
	})
}

// fuzzLines holds a translator to it that no output breaks a log.
func fuzzLines(f *testing.F, name string) {
	for _, tr := range readTranscripts(f) {
		if tr.agent == name {
			f.Add(tr.whole, byte(tr.exit.Code))
		}
	}
	f.Add([]byte("{\"type\":\"\xff\"}\nnull\n[]\n\"x\"\n{}\n{\"type\":3}\n"), byte(1))
	f.Fuzz(func(t *testing.T, output []byte, code byte) {
		events := transcript{agent: name, whole: output, exit: talk.Exit{Code: int(code)}}.translate(t)
		if err := malformed(events); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzCodexLines(f *testing.F)    { fuzzLines(f, agent.Codex) }
func FuzzClaudeLines(f *testing.F)   { fuzzLines(f, agent.Claude) }
func FuzzOpenCodeLines(f *testing.F) { fuzzLines(f, agent.OpenCode) }
func FuzzPiLines(f *testing.F)       { fuzzLines(f, agent.Pi) }
