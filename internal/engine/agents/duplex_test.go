package agents

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/sessions"
	"github.com/spool-run/spool/internal/engine/agents/talk"
	"github.com/spool-run/spool/internal/engine/enginetest"
)

// peerReplay is a child that prints what a real agent printed, in a two-way
// protocol: each line waits for what the agent waited for, and an answer gets
// the id of the request it answers.
type peerReplay struct {
	out  chan chunk
	exit chan talk.Exit

	mu      sync.Mutex
	changed *sync.Cond
	sent    []map[string]any
	raw     []string
	closed  bool // our end of its input
	quit    bool // by a signal
}

func newPeerReplay() *peerReplay {
	p := &peerReplay{out: make(chan chunk), exit: make(chan talk.Exit, 1)}
	p.changed = sync.NewCond(&p.mu)
	return p
}

func (p *peerReplay) Write(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for line := range bytes.Lines(b) {
		var m map[string]any
		if json.Unmarshal(line, &m) != nil {
			m = map[string]any{"not": "JSON"}
		}
		p.sent = append(p.sent, m)
		p.raw = append(p.raw, strings.TrimSpace(string(line)))
	}
	p.changed.Broadcast()
}

func (p *peerReplay) set(flag *bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*flag = true
	p.changed.Broadcast()
}

func (p *peerReplay) CloseInput()                 { p.set(&p.closed) }
func (p *peerReplay) signal(syscall.Signal) error { p.set(&p.quit); return nil }
func (p *peerReplay) kill() error                 { p.set(&p.quit); return nil }
func (p *peerReplay) pid() int                    { return 0 }
func (p *peerReplay) lines() <-chan chunk         { return p.out }
func (p *peerReplay) exited() <-chan talk.Exit    { return p.exit }
func (p *peerReplay) stderr() string              { return "" }
func (p *peerReplay) drained() <-chan struct{}    { return noStderr }
func (p *peerReplay) members() int                { return 0 }
func (p *peerReplay) abandon()                    {}
func (p *peerReplay) close() error                { return nil }

// wait returns the nth of our lines, from one, that matches, or nil if the
// child is told to end.
func (p *peerReplay) wait(n int, match func(map[string]any) bool) map[string]any {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		found := 0
		for _, m := range p.sent {
			if match(m) {
				if found++; found == n {
					return m
				}
			}
		}
		if p.closed || p.quit {
			return nil
		}
		p.changed.Wait()
	}
}

// has makes a match of a member, which may be nested: "request.subtype".
func has(path string, want any) func(map[string]any) bool {
	return func(m map[string]any) bool { return at(m, path) == want }
}

func at(m map[string]any, path string) any {
	var v any = m
	for _, key := range strings.Split(path, ".") {
		object, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = object[key]
	}
	return v
}

// cue says what a line of the transcript waits for, changes it, and reports
// false to leave it out.
type cue func(p *peerReplay, line map[string]any) bool

// run prints the transcript.
func (p *peerReplay) run(whole []byte, c cue) {
	defer func() {
		close(p.out)
		p.exit <- talk.Exit{}
	}()
	for line := range bytes.Lines(whole) {
		dec := json.NewDecoder(bytes.NewReader(line))
		dec.UseNumber() // ids stay as they are
		var m map[string]any
		if dec.Decode(&m) != nil || !c(p, m) {
			continue
		}
		b, err := json.Marshal(m)
		if err != nil {
			return
		}
		p.out <- chunk{line: b}
	}
	p.wait(1, func(map[string]any) bool { return false })
}

// asked reads which methods the person at the recording called, by id.
func asked(t testing.TB, file string) map[string]string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	methods := make(map[string]string)
	for line := range bytes.Lines(data) {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if json.Unmarshal(line, &m) == nil && m.Method != "" && m.ID != nil {
			methods[string(m.ID)] = m.Method
		}
	}
	return methods
}

// rpcCue is that of the JSON-RPC protocols. Further gates are by method or
// kind of update.
func rpcCue(methods map[string]string, more cue) cue {
	seen := make(map[string]int)
	return func(p *peerReplay, line map[string]any) bool {
		if line["method"] != nil {
			return more == nil || more(p, line)
		}
		method := methods[fmt.Sprint(line["id"])]
		seen[method]++
		m := p.wait(seen[method], func(m map[string]any) bool { return m["method"] == method })
		if m == nil {
			return false // nobody asked: it was for the recording
		}
		line["id"] = m["id"]
		return true
	}
}

// conversation replays a transcript while do talks to the run.
func replayDuplex(t *testing.T, base string, c agent.Config, play cue, do func(*chat)) (*peerReplay, *enginetest.Log) {
	t.Helper()
	whole, err := os.ReadFile(base + ".jsonl")
	if err != nil {
		t.Fatal(err)
	}
	c.Mode = agent.ModeDuplex
	config, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	log := enginetest.NewLog()
	spec := spool.Spec{Engine: agent.Engine, Config: config, Cwd: "/srv/agents/work"}
	s, err := prepare(&spec, &Options{}, log)
	if err != nil {
		t.Fatal(err)
	}
	if s.ledger, err = sessions.NewLedger(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if s.lock.locks, err = sessions.NewLocks(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	p := newPeerReplay()
	s.spawn = func(c talk.Command) (child, error) {
		if !c.Open {
			t.Error("its input is not kept open")
		}
		return p, nil
	}
	go s.loop()
	played := make(chan struct{})
	go func() {
		defer close(played)
		p.run(whole, play)
	}()
	r := &chat{t, s, log}
	do(r)
	r.eof()
	enginetest.Wait(t, s)
	<-played
	wellFormed(t, log.All(t))
	return p, log
}

// checkDuplex compares what came out and what went in.
func checkDuplex(t *testing.T, base string, p *peerReplay, log *enginetest.Log) {
	t.Helper()
	got := golden(t, log.All(t))
	// Deadlines are times.
	for _, e := range log.All(t) {
		if e.Kind == spool.KindAsk {
			a := enginetest.Data[spool.Ask](t, e)
			b, err := json.Marshal(a.Deadline)
			if err != nil {
				t.Fatal(err)
			}
			got = strings.ReplaceAll(got, string(b), `"DEADLINE"`)
		}
	}
	checkGolden(t, base+".golden", got)
	p.mu.Lock()
	defer p.mu.Unlock()
	checkGolden(t, base+".sent.golden", strings.Join(p.raw, "\n")+"\n")
}

// nextAsk waits for an ask after a seq.
func (r *chat) nextAsk(after spool.Seq) (spool.Event, spool.Ask) {
	r.t.Helper()
	e := r.log.Until(r.t, "an ask", func(e spool.Event) bool { return e.Kind == spool.KindAsk && e.Seq > after })
	return e, enginetest.Data[spool.Ask](r.t, e)
}

// untilAction waits for an action of a kind to reach a phase.
func (r *chat) untilAction(kind agent.ActionKind, phase agent.ActionPhase) agent.Action {
	r.t.Helper()
	match := func(e spool.Event) bool {
		if e.Kind != agent.KindAction {
			return false
		}
		a := enginetest.Data[agent.Action](r.t, e)
		return a.Kind == kind && a.Phase == phase
	}
	return enginetest.Data[agent.Action](r.t, r.log.Until(r.t, "an action", match))
}

const transcripts = "testdata/transcripts/"

func TestCodexAppServerTurn(t *testing.T) {
	base := transcripts + "codex/appserver-turn"
	p, log := replayDuplex(t, base, agent.Config{Agent: agent.Codex, Permissions: "never", Sandbox: "danger-full-access", Effort: "low"},
		rpcCue(asked(t, base+".stdin.jsonl"), nil), func(r *chat) {
			d := r.done(r.say("Please do the task."))
			if d.Outcome != spool.TurnOK || d.Answer != "All done: the command printed hi." {
				t.Errorf("done: %+v", d)
			}
			var u agent.Usage
			if err := json.Unmarshal(d.Usage, &u); err != nil || u.Turn == nil || u.Turn.Input != 270 || u.Turn.Output != 27 || u.Turn.Steps != 2 || u.ContextSize != 258400 {
				t.Errorf("usage: %s, %v", d.Usage, err)
			}
		})
	checkDuplex(t, base, p, log)
}

// codexResolved holds a resolution back until we answered.
func codexResolved(p *peerReplay, line map[string]any) bool {
	if line["method"] == "serverRequest/resolved" {
		id := at(line, "params.requestId").(json.Number)
		p.wait(1, func(m map[string]any) bool { return m["result"] != nil && fmt.Sprint(m["id"]) == id.String() })
	}
	return true
}

// Two approvals are open at once, and each gets its own answer.
func TestCodexAppServerApprovals(t *testing.T) {
	base := transcripts + "codex/appserver-approval"
	p, log := replayDuplex(t, base, agent.Config{Agent: agent.Codex, Permissions: "untrusted", Sandbox: "read-only"},
		rpcCue(asked(t, base+".stdin.jsonl"), codexResolved), func(r *chat) {
			turn := r.say("Please do the task.")
			e, a := r.nextAsk(0)
			var what agent.Approval
			if err := json.Unmarshal(a.Data, &what); err != nil || a.Kind != agent.AskApproval || what.Kind != agent.ActionFileChange || len(what.Paths) != 1 || len(what.Changes) != 1 {
				t.Errorf("first ask: %+v %+v, %v", a, what, err)
			}
			r.answer(e.Seq, agent.Allow)
			first, a1 := r.nextAsk(e.Seq)
			second, a2 := r.nextAsk(first.Seq)
			if a1.Name != "command" || a2.Name != "command" || !strings.Contains(a1.Prompt, "wc -l") || !strings.Contains(a2.Prompt, "cat notes") {
				t.Errorf("asks: %+v, %+v", a1, a2)
			}
			r.answer(second.Seq, agent.Allow)
			r.answer(first.Seq, agent.Decision{Choice: agent.Deny, Message: "no counting"})
			if d := r.done(turn); d.Outcome != spool.TurnOK || d.Answer != "notes.txt has two lines." {
				t.Errorf("done: %+v", d)
			}
		})
	checkDuplex(t, base, p, log)
	var declined, ran bool
	for _, a := range events[agent.Action](t, log, agent.KindAction) {
		if a.Phase == agent.ActionCompleted && a.Kind == agent.ActionCommand {
			declined = declined || strings.Contains(a.Title, "wc -l") && !*a.OK && a.Status == "declined"
			ran = ran || strings.Contains(a.Title, "cat notes") && *a.OK
		}
	}
	if !declined || !ran {
		t.Errorf("declined %v, ran %v", declined, ran)
	}
}

// A policy answers first, says which rule did, and leaves the rest to people.
func TestPolicyAnswersFirst(t *testing.T) {
	base := transcripts + "codex/appserver-approval"
	rules := &agent.Policy{Rules: []agent.Rule{
		{Verdict: agent.VerdictAllow, Kinds: []string{"file_change"}, Paths: []string{"/srv/agents/**"}},
		{Verdict: agent.VerdictDeny, Commands: []string{"wc"}, Reason: "no counting"},
	}}
	p, log := replayDuplex(t, base, agent.Config{Agent: agent.Codex, Policy: rules}, rpcCue(asked(t, base+".stdin.jsonl"), codexResolved), func(r *chat) {
		turn := r.say("Please do the task.")
		cat := r.log.Until(t, "the ask that no rule is about", func(e spool.Event) bool {
			return e.Kind == spool.KindAsk && strings.Contains(enginetest.Data[spool.Ask](t, e).Prompt, "cat notes")
		})
		r.answer(cat.Seq, agent.Allow)
		r.done(turn)
	})
	by := (&chat{t: t, log: log}).decided()
	if got := strings.Join(by, ", "); got != "policy: rule 1, policy: rule 2" {
		t.Errorf("decided by %s", got)
	}
	var decisions []string
	for _, m := range p.sent {
		if m["result"] != nil {
			decisions = append(decisions, fmt.Sprintf("%v %v", m["id"], at(m, "result.decision")))
		}
	}
	if got := strings.Join(decisions, ", "); got != "0 accept, 1 decline, 2 accept" {
		t.Errorf("answered %s", got)
	}
}

// claudeCue waits as claude did: for prompts, answers and interrupts.
func claudeCue(interrupts bool) cue {
	turns := 0
	return func(p *peerReplay, line map[string]any) bool {
		switch {
		case at(line, "response.request_id") == "init-1":
			m := p.wait(1, has("request.subtype", "initialize"))
			line["response"].(map[string]any)["request_id"] = m["request_id"]
		case at(line, "response.request_id") == "int-1":
			m := p.wait(1, has("request.subtype", "interrupt"))
			line["response"].(map[string]any)["request_id"] = m["request_id"]
		case line["type"] == "system" && line["subtype"] == "init":
			turns++
			return p.wait(turns, has("type", "user")) != nil
		case line["type"] == "user" && !interrupts:
			// The result of a tool that was asked about.
			p.wait(1, has("type", "control_response"))
		}
		return true
	}
}

func TestClaudeApproval(t *testing.T) {
	base := transcripts + "claude/approval-allow"
	p, log := replayDuplex(t, base, agent.Config{Agent: agent.Claude}, claudeCue(false), func(r *chat) {
		turn := r.say("Please do the task.")
		e, a := r.nextAsk(0)
		var what agent.Approval
		if err := json.Unmarshal(a.Data, &what); err != nil || what.Kind != agent.ActionFileChange || what.Tool != "Write" || what.Action != "toolu_mock_t0_0" {
			t.Errorf("ask: %+v %+v, %v", a, what, err)
		}
		r.answer(e.Seq, agent.AllowSession)
		if d := r.done(turn); d.Outcome != spool.TurnOK || d.Answer != "notes.txt has two lines." {
			t.Errorf("done: %+v", d)
		}
	})
	checkDuplex(t, base, p, log)
}

func TestClaudeInterruptKeepsTheProcess(t *testing.T) {
	base := transcripts + "claude/control-interrupt"
	p, log := replayDuplex(t, base, agent.Config{Agent: agent.Claude, AllowedTools: []string{"Bash", "Read", "Edit", "Write"}}, claudeCue(true), func(r *chat) {
		turn := r.say("Please do the task.")
		r.untilAction(agent.ActionCommand, agent.ActionStarted)
		r.control(spool.Control{Op: spool.ControlInterrupt, Turn: turn})
		if d := r.done(turn); d.Outcome != spool.TurnInterrupted || d.StoppedWith != StoppedInBand || d.ErrorClass != agent.ClassStopped {
			t.Errorf("interrupted: %+v", d)
		}
		if d := r.done(r.say("go on")); d.Outcome != spool.TurnOK || d.Answer != "Finished sleeping." {
			t.Errorf("second turn: %+v", d)
		}
	})
	checkDuplex(t, base, p, log)
}

func TestPiRPCAbort(t *testing.T) {
	base := transcripts + "pi-earendil/rpc-abort"
	ids := map[string]string{"1": "prompt", "2": "abort"}
	state := false
	play := func(p *peerReplay, line map[string]any) bool {
		switch line["type"] {
		case "response":
			command := ids[fmt.Sprint(line["id"])]
			if m := p.wait(1, has("type", command)); m != nil {
				line["id"] = m["id"]
			}
		case "tool_execution_end":
			p.wait(1, has("type", "abort"))
		}
		return true
	}
	p, log := replayDuplex(t, base, agent.Config{Agent: agent.Pi, Provider: "mock", Model: "mock-model"}, func(p *peerReplay, line map[string]any) bool {
		if !state { // the recording did not ask
			state = true
			m := p.wait(1, has("type", "get_state"))
			p.out <- chunk{line: fmt.Appendf(nil, `{"id":%q,"type":"response","command":"get_state","success":true,"data":{"sessionId":"01a1dca1-aaaa","model":{"id":"mock-model"},"thinkingLevel":"off"}}`, m["id"])}
		}
		return play(p, line)
	}, func(r *chat) {
		turn := r.say("Please do the task.")
		r.untilAction(agent.ActionCommand, agent.ActionUpdated)
		r.control(spool.Control{Op: spool.ControlInterrupt})
		if d := r.done(turn); d.Outcome != spool.TurnInterrupted || d.StoppedWith != StoppedInBand || d.Resume != "01a1dca1-aaaa" {
			t.Errorf("done: %+v", d)
		}
	})
	checkDuplex(t, base, p, log)
}

// acpCue waits for our answers, and for the prompt that comes next.
func acpCue(methods map[string]string, cancel bool) cue {
	prompts := 0
	answered := rpcCue(methods, func(p *peerReplay, line map[string]any) bool {
		if at(line, "params.update.sessionUpdate") == "tool_call_update" {
			if cancel {
				p.wait(1, has("method", "session/cancel"))
			}
			if at(line, "params.update.toolCallId") == "write_file__call_mock_t0_0" {
				p.wait(1, func(m map[string]any) bool { return m["result"] != nil })
			}
		}
		switch at(line, "params.update.sessionUpdate") {
		case nil, "available_commands_update":
		default:
			p.wait(max(prompts, 1), has("method", "session/prompt"))
		}
		return true
	})
	return func(p *peerReplay, line map[string]any) bool {
		ok := answered(p, line)
		if at(line, "result.stopReason") != nil {
			prompts = max(prompts, 1) + 1
		}
		return ok
	}
}

func TestACPTwoPrompts(t *testing.T) {
	base := transcripts + "acp-gemini/prompt"
	p, log := replayDuplex(t, base, agent.Config{Agent: agent.ACP, Command: []string{"gemini", "--acp"}}, acpCue(asked(t, base+".stdin.jsonl"), false), func(r *chat) {
		if d := r.done(r.say("Please do the task.")); d.Outcome != spool.TurnOK || d.Answer != "All done: the command printed hi." {
			t.Errorf("first turn: %+v", d)
		}
		if d := r.done(r.say("And again.")); d.Outcome != spool.TurnOK || d.Answer != "Resumed: the second command printed again." {
			t.Errorf("second turn: %+v", d)
		}
	})
	checkDuplex(t, base, p, log)
}

func TestACPPermission(t *testing.T) {
	base := transcripts + "acp-gemini/permission-allow"
	p, log := replayDuplex(t, base, agent.Config{Agent: agent.ACP, Command: []string{"gemini", "--acp"}}, acpCue(asked(t, base+".stdin.jsonl"), false), func(r *chat) {
		turn := r.say("Please do the task.")
		e, a := r.nextAsk(0)
		var what agent.Approval
		if err := json.Unmarshal(a.Data, &what); err != nil || what.Kind != agent.ActionFileChange || len(what.Paths) != 1 || len(a.Options) != 3 {
			t.Errorf("ask: %+v %+v, %v", a, what, err)
		}
		r.answer(e.Seq, agent.Allow)
		if d := r.done(turn); d.Outcome != spool.TurnOK || d.Answer != "notes.txt has two lines." {
			t.Errorf("done: %+v", d)
		}
	})
	checkDuplex(t, base, p, log)
}

func TestACPCancel(t *testing.T) {
	base := transcripts + "acp-gemini/cancel"
	p, log := replayDuplex(t, base, agent.Config{Agent: agent.ACP, Command: []string{"gemini", "--acp"}}, acpCue(asked(t, base+".stdin.jsonl"), true), func(r *chat) {
		turn := r.say("Please do the task.")
		e, _ := r.nextAsk(0)
		r.answer(e.Seq, "proceed_once")
		r.control(spool.Control{Op: spool.ControlInterrupt})
		if d := r.done(turn); d.Outcome != spool.TurnInterrupted || d.StoppedWith != StoppedInBand {
			t.Errorf("done: %+v", d)
		}
	})
	checkDuplex(t, base, p, log)
}
