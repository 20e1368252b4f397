package agents

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/talk"
)

// openAsk is one that waits for an answer.
type openAsk struct {
	key      string
	deadline time.Time
}

// verdict is an answer that is to be given to the agent.
type verdict struct {
	key string
	seq spool.Seq
	d   agent.Decision
	by  string // empty if the log has the answer already
}

// asked is called when an ask is in the log. The judge comes first; else it
// stays open until somebody answers or its time is up.
func (s *session) asked(_ *talk.Turn, key string, seq spool.Seq, a spool.Ask) {
	if s.judge != nil {
		if d, by, ok := s.judge.Decide(a); ok {
			s.verdicts = append(s.verdicts, verdict{key, seq, d, by})
			return
		}
	}
	s.asks[seq] = &openAsk{key, a.Deadline}
}

// withdrawn is called when the agent no longer waits.
func (s *session) withdrawn(t *talk.Turn, key string) {
	for seq, a := range s.asks {
		if a.key == key {
			delete(s.asks, seq)
			s.closeAsk(t, seq, "agent", "the agent no longer waits for it", agent.Decision{})
		}
	}
}

// expire denies what nobody answered in time.
func (s *session) expire(now time.Time) {
	for seq, a := range s.asks {
		if !a.deadline.IsZero() && !now.Before(a.deadline) {
			delete(s.asks, seq)
			s.verdicts = append(s.verdicts, verdict{a.key, seq,
				agent.Decision{Choice: agent.Deny, Message: "Nobody answered in time."}, "deadline"})
		}
	}
	s.settle()
}

// reply takes an answer. The host passes on the first one to each ask.
func (s *session) reply(in *spool.Input) {
	var a spool.Answer
	if err := json.Unmarshal(in.Data, &a); err != nil {
		s.speaker().Notice("warning", talk.NoticeWarning, fmt.Sprintf("an answer does not decode: %v", err))
		return
	}
	open, ok := s.asks[a.Ask]
	if !ok {
		return
	}
	delete(s.asks, a.Ask)
	s.heard = time.Now()
	s.verdicts = append(s.verdicts, verdict{key: open.key, seq: a.Ask, d: decision(a)})
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

// settle gives answers to the agent, once it is not speaking.
func (s *session) settle() {
	for len(s.verdicts) > 0 {
		v := s.verdicts[0]
		s.verdicts = s.verdicts[1:]
		t := s.speaker()
		if s.conv == nil {
			continue
		}
		if v.by != "" {
			s.closeAsk(t, v.seq, v.by, "answered: "+v.d.Choice, v.d)
		}
		if err := s.conv.Answer(v.key, v.d, t); err != nil {
			t.Notice("warning", talk.NoticeWarning, fmt.Sprintf("answer %s: %v", s.runner.Name, err))
		}
	}
}

// closeAsk says in the log that an ask is no longer open, and why.
func (s *session) closeAsk(t *talk.Turn, seq spool.Seq, by, text string, d agent.Decision) {
	n := spool.Notice{Code: spool.NoticeAskClosed, Text: text, Ask: seq, By: by}
	if d.Choice != "" {
		if data, err := json.Marshal(d); err == nil {
			n.Data = data
		}
	}
	t.Put(spool.KindNotice, n, nil, nil)
}
