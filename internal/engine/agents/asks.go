package agents

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/policy"
	"github.com/spool-run/spool/internal/engine/agents/talk"
	"github.com/spool-run/spool/internal/engine/turns"
)

// answer is a decision that is to be given to the agent.
type answer struct {
	key      string
	decision agent.Decision
}

// askTime is how long an ask stays open.
func askTime(c *agent.Config) time.Duration {
	d := duration(c.AskTimeoutMs, DefaultAskTimeout)
	if c.Policy != nil && c.AskTimeoutMs == 0 {
		d = duration(c.Policy.DeadlineMs, d)
	}
	return d
}

// decide has the policy of the run answer an ask, before the ask is logged.
func (s *session) decide(a spool.Ask) (spool.Answer, bool) {
	d, by, ok := policy.Judge{Policy: s.config.Policy, Cwd: s.cwd}.Decide(a)
	if !ok {
		return spool.Answer{}, false
	}
	data, err := json.Marshal(d)
	return spool.Answer{Data: data, By: by}, err == nil
}

// asked logs an ask. If the policy decides it, the agent gets the answer when
// it does not speak; else the ask is open until it is answered or its time is up.
func (s *session) asked(e spool.Event, a spool.Ask, key string) error {
	a.Retype = policy.Judge{Policy: s.config.Policy, Cwd: s.cwd}.Retype(a)
	_, decided, err := s.turns.Ask(e, a, key)
	if errors.Is(err, turns.ErrOver) {
		return nil
	}
	if decided != nil {
		s.answers = append(s.answers, answer{key, decision(*decided)})
	}
	return err
}

// withdrawn closes an ask that the agent no longer waits for.
func (s *session) withdrawn(_ *talk.Turn, key string) {
	if seq, ok := s.turns.FindAsk(func(k string) bool { return k == key }); ok {
		s.turns.CloseAsk(seq, spool.Notice{By: "agent", Text: "the agent no longer waits for it"})
	}
}

// expire denies the asks that were not answered in time.
func (s *session) expire(now time.Time) {
	for _, a := range s.turns.Expired(now) {
		d := agent.Decision{Choice: agent.Deny, Message: "No answer in time."}
		data, err := json.Marshal(d)
		if err != nil { // plain fields always encode
			data = nil
		}
		if s.turns.CloseAsk(a.Seq, spool.Notice{By: "deadline", Text: "answered: " + d.Choice, Data: data}) {
			s.answers = append(s.answers, answer{a.Key, d})
		}
	}
	s.settle()
}

// reply takes an answer. The host passes on the first one to each ask.
func (s *session) reply(a spool.Answer) {
	key, ok := s.turns.Answer(a)
	if !ok {
		return
	}
	if s.cur != nil {
		s.cur.Value.heard = time.Now()
	}
	s.answers = append(s.answers, answer{key, decision(a)})
	s.settle()
}

// decision reads an answer: the name of a choice, or a whole decision. What
// is neither allows nothing.
func decision(a spool.Answer) agent.Decision {
	if a.Error != nil {
		return agent.Decision{Choice: agent.Deny, Message: a.Error.Message}
	}
	var d agent.Decision
	if json.Unmarshal(a.Data, &d.Choice) == nil {
		return d
	}
	var allow bool
	if json.Unmarshal(a.Data, &allow) == nil {
		d.Choice = agent.Deny
		if allow {
			d.Choice = agent.Allow
		}
		return d
	}
	if json.Unmarshal(a.Data, &d) != nil || d.Choice == "" && d.Answers == nil {
		return agent.Decision{Choice: agent.Deny, Message: "The answer was not understood."}
	}
	return d
}

// settle gives answers to the agent, once it does not speak.
func (s *session) settle() {
	for len(s.answers) > 0 {
		a := s.answers[0]
		s.answers = s.answers[1:]
		if s.proc == nil {
			continue
		}
		t := s.speaker()
		if err := s.proc.conv.Answer(a.key, a.decision, t); err != nil {
			t.Notice("warning", talk.NoticeWarning, fmt.Sprintf("answer %s: %v", s.agent.Name, err))
		}
	}
}
