package agents

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/enginetest"
)

// asking is a claude that asks for a permission in each turn, and says in its
// result what it was told. It says its process id on standard error.
const asking = `n=0
result() { echo '{"type":"result","subtype":"success","is_error":false,"result":"'"$1"'","session_id":"s-1"}'; }
while read -r line; do case $line in
*'"initialize"'*) echo '{"type":"control_response","response":{"subtype":"success","request_id":"spool-1","response":{}}}';;
*'"type":"user"'*) n=$((n+1)); echo '` + claudeInit + `'
	case $line in
	*die*) echo '{"type":"assistant","message":{"id":"m","content":[{"type":"tool_use","id":"t1","name":"Bash","input":{"command":"ls"}}]}}'; exit 3;;
	*plain*) result "plain $n of $$";;
	*) for i in 1 2; do echo '{"type":"control_request","request_id":"r'$i'","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"make '$i'"}}}'; done; told=;;
	esac;;
*'"interrupt"'*) echo '{"type":"result","subtype":"error_during_execution","is_error":true,"terminal_reason":"aborted_tools","session_id":"s-1"}';;
*'"behavior":"allow"'*) told="$told allow"; case $told in *\ *\ *) result "$told";; esac;;
*'"behavior":"deny"'*) told="$told deny"; case $told in *\ *\ *) result "$told";; esac;;
esac; done
`

func claudeAsking(t *testing.T, c agent.Config) *chat {
	t.Helper()
	c.Agent, c.Mode, c.Program = agent.Claude, agent.ModeDuplex, fakeCLI(t, asking)
	return converse(t, newEngine(t), c)
}

// askAt waits for the nth ask.
func (r *chat) askAt(n int) spool.Seq {
	r.t.Helper()
	e := r.log.Until(r.t, fmt.Sprintf("ask %d", n), func(e spool.Event) bool {
		if e.Kind == spool.KindAsk {
			n--
		}
		return n == 0
	})
	return e.Seq
}

// closings are the notices that asks are no longer open.
func (r *chat) closings() []spool.Notice {
	return slices.DeleteFunc(events[spool.Notice](r.t, r.log, spool.KindNotice), func(n spool.Notice) bool { return n.Code != spool.NoticeAskClosed })
}

// decided says who answered the asks that were never open.
func (r *chat) decided() []string {
	var by []string
	for _, a := range events[spool.Ask](r.t, r.log, spool.KindAsk) {
		if a.Answer != nil {
			by = append(by, a.Answer.By)
		}
	}
	return by
}

func TestAsks(t *testing.T) {
	t.Run("several_are_open_at_once", func(t *testing.T) {
		r := claudeAsking(t, agent.Config{})
		turn := r.say("go")
		one, two := r.askAt(1), r.askAt(2)
		r.answer(two, agent.Deny)
		r.answer(one, agent.Decision{Choice: agent.Allow})
		if d := r.done(turn); d.Answer != " deny allow" {
			t.Errorf("done is %+v", d)
		}
	})
	t.Run("second_answer_changes_nothing", func(t *testing.T) {
		r := claudeAsking(t, agent.Config{})
		turn := r.say("go")
		one := r.askAt(1)
		r.answer(one, agent.Allow)
		r.answer(one, agent.Deny)
		r.answer(one, agent.Deny)
		r.answer(r.askAt(2), agent.Allow)
		if d := r.done(turn); d.Answer != " allow allow" {
			t.Errorf("done is %+v", d)
		}
	})
	t.Run("what_is_not_understood_allows_nothing", func(t *testing.T) {
		r := claudeAsking(t, agent.Config{})
		turn := r.say("go")
		r.answer(r.askAt(1), []int{1})
		r.answer(r.askAt(2), map[string]string{"yes": "please"})
		if d := r.done(turn); d.Answer != " deny deny" {
			t.Errorf("done is %+v", d)
		}
	})
	t.Run("deadline_denies", func(t *testing.T) {
		r := claudeAsking(t, agent.Config{AskTimeoutMs: 50})
		d := r.done(r.say("go"))
		if d.Answer != " deny deny" {
			t.Errorf("done is %+v", d)
		}
		if n := r.closings(); len(n) != 2 || n[0].By != "deadline" || n[0].Ask == 0 || n[0].Ask == n[1].Ask {
			t.Errorf("closed asks are %+v", n)
		}
	})
	t.Run("policy_is_first_and_says_so", func(t *testing.T) {
		r := claudeAsking(t, agent.Config{Policy: &agent.Policy{Default: agent.VerdictAsk, Rules: []agent.Rule{{Verdict: agent.VerdictAllow, Commands: []string{"make 2"}}}}})
		turn := r.say("go")
		r.answer(r.askAt(1), agent.Deny)
		if d := r.done(turn); !strings.Contains(d.Answer, "allow") || !strings.Contains(d.Answer, "deny") {
			t.Errorf("done is %+v", d)
		}
		if by := r.decided(); !slices.Equal(by, []string{"policy: rule 1"}) || len(r.closings()) != 0 {
			t.Errorf("decided by %q, closed %+v", by, r.closings())
		}
	})
	t.Run("stalled_while_waiting_for_a_person", func(t *testing.T) {
		r := claudeAsking(t, agent.Config{AskTimeoutMs: -1, Stall: agent.Stall{IdleMs: 60_000, HumanMs: 100}})
		if d := r.done(r.say("go")); d.Outcome != agent.TurnStalled || !strings.Contains(d.Error, "waiting for an answer") || d.StoppedWith != StoppedInBand {
			t.Errorf("done is %+v", d)
		}
	})
	t.Run("interrupt_ends_the_turn_and_keeps_the_process", func(t *testing.T) {
		r := claudeAsking(t, agent.Config{})
		turn := r.say("go")
		ask := r.askAt(2)
		r.control(spool.Control{Op: spool.ControlInterrupt})
		if d := r.done(turn); d.Outcome != spool.TurnInterrupted || d.StoppedWith != StoppedInBand || d.ExitCode != nil {
			t.Errorf("done is %+v", d)
		}
		r.answer(ask, agent.Allow) // too late, and no harm
		pid := r.s.Pid()
		if d := r.done(r.say("plain")); d.Answer != fmt.Sprintf("plain 2 of %d", pid) {
			t.Errorf("done is %+v, the process is %d", d, pid)
		}
	})
}

func TestDuplexProcess(t *testing.T) {
	t.Run("takes_prompt_after_prompt", func(t *testing.T) {
		r := claudeAsking(t, agent.Config{})
		one, two := r.say("plain"), r.say("plain")
		d1, d2 := r.done(one), r.done(two)
		pid := r.s.Pid()
		if d1.Answer != fmt.Sprintf("plain 1 of %d", pid) || d2.Answer != fmt.Sprintf("plain 2 of %d", pid) {
			t.Errorf("answers are %q and %q", d1.Answer, d2.Answer)
		}
		r.eof()
		if o := enginetest.Wait(t, r.s); o != (spool.Outcome{Kind: spool.Exited}) {
			t.Errorf("outcome is %v", o)
		}
		wellFormed(t, r.log.All(t))
	})
	t.Run("is_started_anew_when_it_died", func(t *testing.T) {
		r := claudeAsking(t, agent.Config{})
		d := r.done(r.say("die"))
		if d.Outcome != spool.TurnError || d.ExitCode == nil || *d.ExitCode != 3 || d.Error != "claude failed (rc=3)." {
			t.Errorf("done is %+v", d)
		}
		d = r.done(r.say("plain"))
		if d.Answer != fmt.Sprintf("plain 1 of %d", r.s.Pid()) {
			t.Errorf("done is %+v", d)
		}
		r.eof()
		enginetest.Wait(t, r.s)
		wellFormed(t, r.log.All(t))
	})
	t.Run("that_ignores_the_end_of_its_input_is_ended", func(t *testing.T) {
		c := agent.Config{Agent: agent.Claude, Mode: agent.ModeDuplex, CancelGraceMs: 50, Program: fakeCLI(t, asking+"exec sleep 1000")}
		r := converse(t, newEngine(t), c)
		r.done(r.say("plain"))
		pid := r.s.Pid()
		r.eof()
		enginetest.Wait(t, r.s)
		if alive(pid) {
			t.Errorf("process %d is left", pid)
		}
	})
}
