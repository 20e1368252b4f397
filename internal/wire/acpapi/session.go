package acpapi

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/pause"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// session is a session that a client has open: a reader of its runs, and the prompts of
// the client that are not answered yet.
type session struct {
	client  *client
	id      spool.RunID // of its first run
	version int         // of the protocol

	sending sync.Mutex    // held while a prompt is sent
	next    chan struct{} // has room for one: a run was started, or the session is closed

	mu      sync.Mutex
	servers []mcpServer // of the editor, for the next run
	last    numbered    // the last run that is known
	over    int         // the number of the last run that was read to its end
	closing bool
	prompts map[string]*prompt // by the id of their input
	cancel  context.CancelFunc // ends the reader; nil without one
	ended   chan struct{}      // closed when it has ended

	// Of the reader.
	mapper mapper
	asks   []*openAsk
}

// numbered is a run and its number in the session.
type numbered struct {
	id     spool.RunID
	number int
}

// prompt is a prompt of this client.
type prompt struct {
	request   *request
	id        string // of its input
	run       numbered
	turn      spool.Seq // zero until the run has it
	cancelled bool
}

func newSession(c *client, id spool.RunID) *session {
	return &session{client: c, id: id, version: c.protocol(), last: numbered{id, 1}, next: make(chan struct{}, 1), prompts: make(map[string]*prompt)}
}

func (s *session) run(id spool.RunID) *spool.Run { return spool.Attach(s.client.opts.Backend, id) }

// reading says where a reader begins.
type reading struct {
	first int       // the run
	mute  spool.Seq // its events up to here are known to the client
	ready func()    // called when the client knows all that is in the log now; may be nil
}

// begin begins to read the runs.
func (s *session) begin(runs []spool.Info, at reading) {
	ctx, cancel := context.WithCancel(s.client.ctx)
	ended := make(chan struct{})
	s.mu.Lock()
	s.cancel, s.ended = cancel, ended
	s.over = 0
	if last := runs[len(runs)-1]; len(runs) >= s.last.number {
		s.last = numbered{last.ID, runNumber(s.id, last.ID)}
	}
	s.mu.Unlock()
	s.client.begin(func() {
		defer close(ended)
		defer cancel()
		s.read(ctx, runs, at)
		s.dropAsks()
	})
}

// halt ends the reader.
func (s *session) halt() {
	s.mu.Lock()
	cancel, ended := s.cancel, s.ended
	s.mu.Unlock()
	if cancel != nil {
		cancel()
		<-ended
	}
}

// read reads the runs, and those that follow.
func (s *session) read(ctx context.Context, runs []spool.Info, at reading) {
	s.mapper = mapper{notices: s.client.abilities().notices, version: s.version}
	s.mapper.image = func(i *spool.PromptImage) ([]byte, error) { return s.image(ctx, i) }
	ready := func() {
		if at.ready != nil {
			at.ready()
			at.ready = nil
		}
	}
	replaying := true
	for i := at.first; ; i++ {
		if i == len(runs) {
			replaying = false
			ready()
			s.startAsks(ctx)
			info, ok := s.await(ctx, runs[i-1].ID)
			if !ok {
				return
			}
			runs = append(runs, info)
		}
		info := &runs[i]
		until := spool.Seq(0)
		if replaying {
			until = info.Last
		}
		final := i == len(runs)-1
		live := func() {
			if final && replaying {
				replaying = false
				ready()
				s.startAsks(ctx)
			}
		}
		if !s.readRun(ctx, info, at.mute, until, live) {
			return
		}
		at.mute = 0
		if s.finished(info.ID) {
			return
		}
	}
}

// readRun reads a run to its end. Events up to mute are not told, and live is called when
// those up to until are. It reports whether to go on.
func (s *session) readRun(ctx context.Context, info *spool.Info, mute, until spool.Seq, live func()) bool {
	s.mapper.begin(info.ID, runNumber(s.id, info.ID), info.Cwd)
	isLive := until == 0
	if isLive {
		live()
	}
	for e, err := range s.events(ctx, info.ID) {
		if err != nil {
			if ctx.Err() == nil {
				s.client.conn.log.Warn("the log could not be read", "run", info.ID, "error", err)
				live()
				s.tell(info.ID, "⚠ The log could not be read: "+err.Error()+"\n")
				s.failPrompts(info.ID, err)
			}
			return false
		}
		updates := s.mapper.updates(&e, isLive, s.owns)
		if e.Seq > mute {
			for _, u := range updates {
				s.update(u)
			}
		}
		s.noteAsk(ctx, &e, isLive)
		if e.Kind == spool.KindDone {
			s.answerPrompt(info.ID, &e)
		}
		if !isLive && e.Seq >= until {
			isLive = true
			live()
		}
	}
	return ctx.Err() == nil
}

// image reads an image of a prompt of the run that is read.
func (s *session) image(ctx context.Context, i *spool.PromptImage) ([]byte, error) {
	if i.Digest == "" {
		return i.Bytes, nil
	}
	r, err := s.run(s.mapper.run).Blob(ctx, i.Digest)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(r, agent.MaxImageBytes))
	return b, errors.Join(err, r.Close())
}

// lostPause is how long a reader waits before it looks for a server again that it lost.
const lostPause = time.Second

// events yields the events of a run. If the server is away for longer than its client
// waits, that says nothing about the run: it tells the user, and goes on when the server
// is back.
func (s *session) events(ctx context.Context, run spool.RunID) iter.Seq2[spool.Event, error] {
	return func(yield func(spool.Event, error) bool) {
		told := false
		for after := spool.Seq(0); ctx.Err() == nil; {
			lost := ""
			for e, err := range s.run(run).Events(ctx, after) {
				if o, ok := e.Outcome(); ok && e.Seq == 0 { // not in the log
					lost = o.Reason
					continue
				}
				if !yield(e, err) || err != nil {
					return
				}
				after, told = e.Seq, false
			}
			if lost == "" {
				return
			}
			if !told {
				s.tell(run, "⚠ "+lost+"\n")
				told = true
			}
			_ = pause.For(ctx, lostPause)
		}
	}
}

// update tells the client something.
func (s *session) update(u any) {
	if s.version == 2 {
		u = update2(u)
	}
	s.client.conn.notify("session/update", object{"sessionId": s.id, "update": u})
}

// tell tells the client something that is in no log.
func (s *session) tell(run spool.RunID, text string) {
	s.update(chunkUpdate{Update: "agent_thought_chunk", Content: textBlock(text), Meta: meta{place{Run: string(run)}}})
}

// owns reports whether a prompt is one of this client that is not answered.
func (s *session) owns(input string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.prompts[input] != nil
}

// finished notes that a run was read to its end, and reports whether the session is closed.
func (s *session) finished(run spool.RunID) bool {
	s.mu.Lock()
	s.over = max(s.over, runNumber(s.id, run))
	closing := s.closing
	s.mu.Unlock()
	s.failPrompts(run, nil)
	return closing
}

// failPrompts answers the prompts of a run from which no answer can come.
func (s *session) failPrompts(run spool.RunID, cause error) {
	s.mu.Lock()
	var failed []*prompt
	for id, p := range s.prompts {
		if p.run.id == run {
			failed = append(failed, p)
			delete(s.prompts, id)
		}
	}
	s.mu.Unlock()
	if cause == nil {
		cause = spool.ErrEnded
	}
	for _, p := range failed {
		s.conclude(p, nil, fmt.Errorf("turn %d of run %s: %w", p.turn, run, cause))
	}
}

// conclude answers a prompt whose turn is over. In version 2 it was answered when the run had
// it, and an update tells the end.
func (s *session) conclude(p *prompt, result any, err error) {
	if s.version != 2 {
		p.request.reply(result, err)
	}
}

// answerPrompt answers the prompt whose turn is done.
func (s *session) answerPrompt(run spool.RunID, e *spool.Event) {
	var d spool.Done
	if json.Unmarshal(e.Data, &d) != nil {
		return
	}
	s.mu.Lock()
	p := s.prompts[d.ID]
	delete(s.prompts, d.ID)
	s.mu.Unlock()
	if p == nil {
		return
	}
	reason := stopReason(&d)
	if reason == "" {
		s.conclude(p, nil, &rpc.Error{Code: rpc.CodeInternal, Message: failure(&d),
			Data: encode(object{"outcome": d.Outcome, "class": d.ErrorClass, "run": run, "seq": e.Seq})})
		return
	}
	s.conclude(p, object{"stopReason": reason, "_meta": meta{place{string(run), uint64(e.Seq), uint64(e.Turn), d.Usage}}}, nil)
}

// prompt sends a prompt of the client. Its answer comes with the end of its turn.
func (c *client) prompt(r *request) {
	var p struct {
		ID     spool.RunID       `json:"sessionId"`
		Prompt []json.RawMessage `json:"prompt"`
	}
	err := r.decode(&p)
	var said spool.Prompt
	if err == nil {
		said, err = promptOf(p.Prompt)
	}
	s := c.session(p.ID)
	if err == nil && s == nil {
		err = rpc.Errorf(codeNotFound, "session %q is not open: session/load opens it", p.ID)
	}
	if err != nil {
		r.reply(nil, err)
		return
	}
	mine := &prompt{request: r, id: "acp-" + rand.Text()}
	s.mu.Lock()
	s.prompts[mine.id] = mine
	s.mu.Unlock()
	c.begin(func() {
		if err := s.send(mine, said); err != nil {
			s.mu.Lock()
			waits := s.prompts[mine.id] != nil
			delete(s.prompts, mine.id)
			s.mu.Unlock()
			if waits {
				r.reply(nil, err)
			}
		}
	})
}

// maxRuns is how often a prompt goes on in another run because one has just ended.
const maxRuns = 3

// send gives a prompt to the run of the session, or to one that goes on with it.
func (s *session) send(p *prompt, said spool.Prompt) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	ctx := s.client.ctx
	for tries := 1; ; tries++ {
		s.mu.Lock()
		last := s.last
		s.mu.Unlock()
		turn, err := s.run(last.id).Prompt(ctx, p.id, said)
		switch {
		case (errors.Is(err, spool.ErrInputClosed) || errors.Is(err, spool.ErrEnded)) && tries < maxRuns:
			if err := s.goOn(ctx, last); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		s.mu.Lock()
		p.run, p.turn = last, turn.Seq()
		cancelled := p.cancelled
		over := s.over >= last.number
		s.mu.Unlock()
		if s.version == 2 {
			p.request.reply(object{"messageId": messageID(last.number, turn.Seq()), "_meta": meta{place{Run: string(last.id), Seq: uint64(turn.Seq())}}}, nil)
		}
		if over { // its end may have been read before it was known whose it is
			s.failPrompts(last.id, nil)
		}
		if cancelled {
			return turn.Interrupt(ctx, 0)
		}
		return nil
	}
}

// cancelPrompts interrupts the prompts of this client, or the one of a request. If there
// is none, and no request is named, it interrupts what runs: the user of any client may.
func (s *session) cancelPrompts(id json.RawMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := false
	for _, p := range s.prompts {
		if id != nil && (s.version == 2 && p.turn != 0 || string(p.request.id) != string(id)) {
			continue
		}
		found, p.cancelled = true, true
		if run, turn := s.run(p.run.id), p.turn; turn != 0 {
			s.interrupt(func(ctx context.Context) error { return run.Turn(turn).Interrupt(ctx, 0) })
		}
	}
	if found || id != nil {
		return
	}
	run := s.run(s.last.id)
	s.interrupt(func(ctx context.Context) error {
		info, err := run.Info(ctx)
		if err != nil || info.Turn == 0 {
			return err
		}
		return run.Turn(info.Turn).Interrupt(ctx, 0)
	})
}

func (s *session) interrupt(do func(context.Context) error) {
	s.client.begin(func() {
		if err := do(s.client.ctx); err != nil && !errors.Is(err, spool.ErrEnded) {
			s.client.conn.log.Warn("the turn was not interrupted", "session", s.id, "error", err)
		}
	})
}
