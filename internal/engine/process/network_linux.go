package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/isolate"
)

// attachNetwork has the log tell of the hosts that the process connects to, and its
// asks about others be answered. It is called before the pump runs.
func (s *session) attachNetwork(n *isolate.Network, asks bool) {
	s.network = n
	var ask isolate.AskFunc
	if asks {
		ask, s.hostAsks = s.askHost, &hostAsks{open: make(map[spool.Seq]*hostAsk)}
	}
	n.Attach(func(notice spool.Notice) {
		s.mu.Lock()
		s.notices = append(s.notices, notice)
		s.mu.Unlock()
		s.reactor.Wake()
	}, ask)
}

// hostAsks are the asks of a process about hosts. Only the pump appends them.
type hostAsks struct {
	mu      sync.Mutex
	waiting []*hostAsk // not yet appended
	open    map[spool.Seq]*hostAsk
}

// hostAsk is one ask about a host.
type hostAsk struct {
	ask    spool.Ask
	answer chan spool.Answer // has room for one
	gone   bool              // nothing waits for the answer
}

// askHost puts an ask to the log and waits for its answer.
func (s *session) askHost(ctx context.Context, q spool.Ask) (spool.Answer, error) {
	h := &hostAsk{ask: q, answer: make(chan spool.Answer, 1)}
	s.hostAsks.mu.Lock()
	s.hostAsks.waiting = append(s.hostAsks.waiting, h)
	s.hostAsks.mu.Unlock()
	s.reactor.Wake()
	select {
	case a := <-h.answer:
		return a, nil
	case <-ctx.Done():
	}
	s.hostAsks.mu.Lock()
	h.gone = true
	s.hostAsks.mu.Unlock()
	s.reactor.Wake()
	return spool.Answer{}, ctx.Err()
}

// answer delivers the answer to an ask. One that nothing waits for has no effect.
func (a *hostAsks) answer(in spool.Input) error {
	var answer spool.Answer
	if err := json.Unmarshal(in.Data, &answer); err != nil {
		return fmt.Errorf("%w: answer: %w", spool.ErrInvalid, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if h := a.open[answer.Ask]; h != nil {
		delete(a.open, answer.Ask)
		h.answer <- answer
	}
	return nil
}

// appendAsks appends the asks about hosts, and says of those that were given up that
// they are closed.
func (p *pump) appendAsks() {
	a := p.s.hostAsks
	if a == nil {
		return
	}
	a.mu.Lock() // until the seq of an ask is known: its answer may come at once
	defer a.mu.Unlock()
	for _, h := range a.waiting {
		data, err := json.Marshal(h.ask)
		if err != nil || h.gone || p.logClosed {
			continue
		}
		seq, err := p.out.Append(spool.Event{Kind: spool.KindAsk, Data: data})
		if err != nil {
			p.logClosed = true
			_ = p.s.kill() // an error cannot be logged
			continue
		}
		a.open[seq] = h
	}
	a.waiting = nil
	for seq, h := range a.open {
		if !h.gone {
			continue
		}
		delete(a.open, seq)
		data, err := json.Marshal(spool.Notice{Code: spool.NoticeAskClosed, Text: "the connection no longer waits for an answer", Ask: seq})
		if err != nil || p.logClosed {
			continue
		}
		if _, err := p.out.Append(spool.Event{Kind: spool.KindNotice, Data: data}); err != nil && !errors.Is(err, spool.ErrNotAsked) {
			p.logClosed = true
			_ = p.s.kill() // an error cannot be logged
		}
	}
}

// endNetwork ends the connections of the process, and has the log tell what they
// carried.
func (p *pump) endNetwork() {
	if p.s.network == nil || p.networkEnded {
		return
	}
	p.networkEnded = true
	total, ok := p.s.network.Close()
	p.appendAsks()
	p.requests = p.s.takeRequests()
	p.appendNotices()
	if ok {
		p.event(spool.KindNotice, total)
	}
}
