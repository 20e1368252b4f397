package agents

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/talk"
	"github.com/spool-run/spool/internal/engine/enginetest"
)

// acpTalk starts a run with an agent that plays a scene.
func acpTalk(t *testing.T, scene string, c agent.Config) *chat {
	t.Helper()
	c.Agent, c.Command = agent.ACP, []string{os.Args[0], acpRole, scene}
	r := converse(t, newEngine(t), c)
	t.Cleanup(func() { wellFormed(t, r.log.All(t)) })
	return r
}

// shown are the messages, actions and so on of a log, in short.
func shown(t *testing.T, log *enginetest.Log) []string {
	t.Helper()
	var out []string
	mark := func(history bool, s string) {
		if history {
			s = "history " + s
		}
		out = append(out, s)
	}
	for _, e := range log.All(t) {
		switch e.Kind {
		case agent.KindMessage:
			m := enginetest.Data[agent.Message](t, e)
			role := m.Role
			if role == "" {
				role = "agent"
			}
			mark(m.History, role+": "+m.Text)
		case agent.KindReasoning:
			r := enginetest.Data[agent.Reasoning](t, e)
			mark(r.History, "thought: "+r.Text)
		case agent.KindAction:
			a := enginetest.Data[agent.Action](t, e)
			s := string(a.Kind) + " " + a.ID + " " + string(a.Phase)
			if a.OK != nil {
				s += map[bool]string{true: " ok", false: " not ok"}[*a.OK]
			}
			if a.Synthetic {
				s += " (" + a.Message + ")"
			}
			if a.Output != "" {
				s += ": " + a.Output
			}
			mark(a.History, s)
		case agent.KindPlan:
			p := enginetest.Data[agent.Plan](t, e)
			mark(p.History, "plan: "+p.Items[0].Text)
		}
	}
	return out
}

func TestACPHistoryIsMarked(t *testing.T) {
	r := acpTalk(t, "load", agent.Config{Resume: "s0"})
	d := r.ask("new question")
	if d.Outcome != spool.TurnOK || d.Answer != "new answer" || d.Resume != "s0" {
		t.Errorf("done: %+v", d)
	}
	want := []string{
		"history user: old question", "history thought: old thought", "history agent: old answer",
		"history command c1 completed ok: a.go", "history plan: old step", "history agent: old end",
		"history read c2 completed", "agent: new answer",
	}
	if diff := cmp.Diff(want, shown(t, r.log)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if s := events[agent.Started](t, r.log, spool.KindStarted); len(s) != 1 || !s[0].Resumed {
		t.Errorf("started: %+v", s)
	}
}

func TestACPResumesWithoutHistoryWhereItCan(t *testing.T) {
	r := acpTalk(t, "resume", agent.Config{Resume: "s0"})
	if d := r.ask("go"); d.Outcome != spool.TurnOK || d.Answer != "resumed" || d.Resume != "s0" {
		t.Errorf("done: %+v", d)
	}
}

func TestACPVersionTwo(t *testing.T) {
	r := acpTalk(t, "v2", agent.Config{})
	for range 2 {
		d := r.done(r.say("hi"))
		if d.Outcome != spool.TurnOK || d.Answer != "done" {
			t.Errorf("done: %+v", d)
		}
		var u agent.Usage
		if err := json.Unmarshal(d.Usage, &u); err != nil || u.Turn == nil || u.Turn.Input != 9 || u.Turn.Output != 3 || u.ContextUsed != 10 || u.ContextSize != 100 {
			t.Errorf("usage: %s, %v", d.Usage, err)
		}
	}
	r.eof()
	enginetest.Wait(t, r.s)
	once := func(id string) []string {
		return []string{"agent: whole message", "command " + id + " started", "command " + id + " updated: building", "command " + id + " completed ok",
			"plan: step", "agent: done"}
	}
	if diff := cmp.Diff(append(once("c1"), once("c1#2")...), shown(t, r.log)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// Several permissions are open at once. Each answer goes where it belongs, in
// any order, and what was denied does not stay open.
func TestACPPermissions(t *testing.T) {
	r := acpTalk(t, "permissions", agent.Config{})
	turn := r.say("go")
	one, a := r.nextAsk(0)
	two, _ := r.nextAsk(one.Seq)
	var what agent.Approval
	if err := json.Unmarshal(a.Data, &what); err != nil || what.Command != "ls" || what.Action != "c1" || what.Kind != agent.ActionCommand {
		t.Errorf("ask: %s, %v", a.Data, err)
	}
	r.answer(two.Seq, agent.Deny)
	r.answer(one.Seq, agent.AllowSession)
	d := r.done(turn)
	if d.Outcome != spool.TurnOK || d.Answer != "selectedalways and selectedno" {
		t.Errorf("done: %+v", d)
	}
	want := []string{"command c1 started", "command c1 updated", "command c2 started", "command c1 completed ok",
		"agent: selectedalways and selectedno", "command c2 completed not ok (denied)"}
	if diff := cmp.Diff(want, shown(t, r.log)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestACPDenials(t *testing.T) {
	tests := []struct {
		scene  string
		answer any
		want   spool.TurnOutcome
		text   string
	}{
		{"abort", agent.Deny, spool.TurnRefused, ""},
		{"abort", "nonsense", spool.TurnRefused, ""},
		{"abort", 17, spool.TurnRefused, ""},
		{"noway", agent.Deny, spool.TurnOK, "cancelled"},
		{"noway", "go", spool.TurnOK, "selectedgo"},
	}
	for _, tt := range tests {
		r := acpTalk(t, tt.scene, agent.Config{})
		turn := r.say("go")
		e, _ := r.nextAsk(0)
		r.answer(e.Seq, tt.answer)
		if d := r.done(turn); d.Outcome != tt.want || d.Answer != tt.text {
			t.Errorf("%s answered with %v: %+v", tt.scene, tt.answer, d)
		}
	}
}

// A client that cancels answers what is still asked, and no action stays open.
func TestACPCancelWhileItAsks(t *testing.T) {
	r := acpTalk(t, "cancel", agent.Config{})
	turn := r.say("go")
	ask, _ := r.nextAsk(0)
	r.control(spool.Control{Op: spool.ControlInterrupt, Turn: turn})
	if d := r.done(turn); d.Outcome != spool.TurnInterrupted || d.StoppedWith != StoppedInBand || d.Answer != "answered cancelled" {
		t.Errorf("done: %+v", d)
	}
	closed := false
	for _, n := range events[spool.Notice](t, r.log, spool.KindNotice) {
		closed = closed || n.Code == spool.NoticeAskClosed && n.Ask == ask.Seq
	}
	if !closed {
		t.Error("the ask is still open")
	}
	if d := r.done(r.say("more")); d.Outcome != spool.TurnOK || d.Answer != "going on" {
		t.Errorf("after it: %+v", d)
	}
	want := []string{"command c0 started", "agent: working", "command c1 started", "agent: answered cancelled",
		"command c0 completed not ok (cancelled)", "command c1 completed not ok (cancelled)", "agent: going on"}
	if diff := cmp.Diff(want, shown(t, r.log)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// Nothing an agent says that we do not know does harm, and all of it is kept.
func TestACPStrangeWords(t *testing.T) {
	r := acpTalk(t, "strange", agent.Config{})
	if d := r.ask("go"); d.Outcome != spool.TurnOK || d.Answer != "still here" {
		t.Errorf("done: %+v", d)
	}
	var codes []string
	for _, n := range events[spool.Notice](t, r.log, spool.KindNotice) {
		codes = append(codes, n.Code)
	}
	want := []string{talk.NoticeUnparsed, talk.NoticeUnknown, talk.NoticeUnknown, talk.NoticeUnknown, talk.NoticeUnknown, talk.NoticeUnknown, talk.NoticeUnknown, talk.NoticeWarning}
	if diff := cmp.Diff(want, codes); diff != "" {
		t.Errorf("notices (-want +got):\n%s", diff)
	}
}

func TestACPFailures(t *testing.T) {
	tests := []struct {
		scene   string
		config  agent.Config
		outcome spool.TurnOutcome
		class   string
		err     string
	}{
		{"auth", agent.Config{}, spool.TurnError, agent.ClassAuth, "Log in"},
		{"oneshot", agent.Config{Resume: "s0"}, spool.TurnError, agent.ClassSession, "cannot go on"},
		{"resume", agent.Config{Resume: "s0", Fork: true}, spool.TurnError, agent.ClassSession, "cannot fork"},
		{"broken", agent.Config{}, spool.TurnError, agent.ClassRateLimit, "429"},
		{"dies", agent.Config{}, spool.TurnError, "", "(rc=3)."},
	}
	for _, tt := range tests {
		r := acpTalk(t, tt.scene, tt.config)
		d := r.ask("go")
		if d.Outcome != tt.outcome || tt.class != "" && d.ErrorClass != tt.class || !strings.Contains(d.Error, tt.err) {
			t.Errorf("%s: %+v", tt.scene, d)
		}
	}
}

func TestACPStopReasons(t *testing.T) {
	r := acpTalk(t, "limits", agent.Config{})
	for _, want := range []spool.TurnOutcome{spool.TurnError, agent.TurnMaxTurns, spool.TurnRefused} {
		if d := r.done(r.say("go")); d.Outcome != want {
			t.Errorf("%s: %+v", want, d)
		}
	}
}

// An agent that does not end with its input is asked to.
func TestACPAgentThatDoesNotExit(t *testing.T) {
	r := acpTalk(t, "lingers", agent.Config{CancelGraceMs: 50})
	turn := r.say("go")
	r.eof()
	if d := r.done(turn); d.Outcome != spool.TurnOK || d.Answer != "bye" {
		t.Errorf("done: %+v", d)
	}
	if o := enginetest.Wait(t, r.s); o.Kind != spool.Exited || o.Code != 7 {
		t.Errorf("ended: %+v", o)
	}
}

func TestACPSettings(t *testing.T) {
	r := acpTalk(t, "settings", agent.Config{Model: "b", Permissions: "code", Effort: "high"})
	d := r.ask("go")
	want := `session/set_config_option {"configId":"m","sessionId":"s1","value":"b"}
session/set_mode {"modeId":"code","sessionId":"s1"}
`
	if d.Answer != want {
		t.Errorf("it was told:\n%s", d.Answer)
	}
	n := events[spool.Notice](t, r.log, spool.KindNotice)
	if len(n) != 1 || !strings.Contains(n[0].Text, `"high" is not used`) {
		t.Errorf("notices: %+v", n)
	}
}

func TestACPForm(t *testing.T) {
	for answer, want := range map[string]string{"main": `{"action":"accept","content":{"answer":"main"}}`, agent.Deny: `{"action":"decline"}`} {
		r := acpTalk(t, "form", agent.Config{})
		turn := r.say("go")
		e, a := r.nextAsk(0)
		if a.Kind != agent.AskQuestion || a.Prompt != "Which branch?" {
			t.Errorf("ask: %+v", a)
		}
		r.answer(e.Seq, answer)
		if d := r.done(turn); d.Answer != want {
			t.Errorf("it was told %s, want %s", d.Answer, want)
		}
	}
}
