package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/engine/sandbox/vfs"
	"github.com/spool-run/spool/python"
)

// turn is one script.
type turn struct {
	seq    spool.Seq
	id     string
	cell   spool.Cell
	bad    error // why it cannot run
	stdin  *stdin
	output *output // set before it runs
	over   bool    // the session's mu guards it

	interrupted atomic.Bool
	idle        *idleTimer // nil without such a limit

	mu      sync.Mutex
	why     error         // what stopped it first
	stopped chan struct{} // closed once why is set
	timers  []*time.Timer // that may stop it
	ended   bool          // nothing may stop it any more
}

// stop ends the turn for a reason. Only the first counts.
func (t *turn) stop(why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.why == nil && !t.ended {
		t.why = why
		close(t.stopped)
	}
}

// escalate keeps a timer that will stop the turn, until its end.
func (t *turn) escalate(timer *time.Timer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		timer.Stop()
		return
	}
	t.timers = append(t.timers, timer)
}

// end stops the timers and says what stopped the turn, if anything did.
func (t *turn) end() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	for _, timer := range t.timers {
		timer.Stop()
	}
	return t.why
}

// active says that the script did something that its idle limit is about.
func (t *turn) active() {
	if t.idle != nil {
		t.idle.reset()
	}
}

// limitError is a limit that a turn reached.
type limitError struct {
	by    guest.EndedBy
	limit time.Duration // of time
	text  string
}

func (e *limitError) Error() string { return e.text }

// take executes a turn and writes how it ended.
func (s *session) take(t *turn) {
	began := time.Now()
	s.mu.Lock()
	if !t.cell.Silent && !t.cell.NoHistory {
		s.count++
	}
	count, g := s.count, s.guest
	s.mu.Unlock()
	if t.cell.Silent || t.cell.NoHistory {
		count = 0
	}

	t.output = newOutput(t.seq, s.config.Limits.OutputBytes, s.append, func() {
		if s.config.Limits.OutputStop {
			t.stop(&limitError{by: guest.Output, text: fmt.Sprintf("wrote more than %d bytes", s.config.Limits.OutputBytes)})
		}
	})
	result, err := s.execute(t, g)
	t.output.close()
	why := t.end()
	t.stdin.discard()

	if err == nil {
		s.show(t, &result, count)
	}
	if result.Lost && !s.config.Fresh && !s.config.Once && err == nil {
		_ = s.notice(t.seq, spool.Notice{Code: NoticeStateLost, Text: "the interpreter was stopped: its variables are gone, its files are not"})
	}
	d := doneOf(&result, err, why, t.interrupted.Load())
	d.ID, d.ExecutionCount, d.DurationMs = t.id, count, time.Since(began).Milliseconds()
	// Whoever reads the end of the turn may send input for the next at once.
	s.mu.Lock()
	t.over = true
	s.current = nil
	s.mu.Unlock()
	_ = s.append(spool.Event{Kind: spool.KindDone, Turn: t.seq, Data: encode(d)})
	if s.config.Once {
		s.end(end{code: *d.ExitCode})
	}
}

// execute runs the script and returns how that went.
func (s *session) execute(t *turn, g guest.Context) (guest.Result, error) {
	switch {
	case t.bad != nil:
		return guest.Result{}, t.bad
	case t.reason() != nil: // it was stopped before it began
		return guest.Result{EndedBy: guest.Killed}, nil
	}
	script, err := s.script(t)
	if err != nil {
		return guest.Result{}, err
	}
	ctx, cancel := context.WithCancelCause(s.ctx)
	defer cancel(nil)
	var over *limitError
	var deadline time.Time
	if limit := wallLimit(&s.config.Limits, t.cell.TimeoutMs); limit > 0 {
		over = &limitError{by: guest.Timeout, limit: limit, text: fmt.Sprintf("timed out after %dms", limit.Milliseconds())}
		deadline = time.Now().Add(limit)
		var done context.CancelFunc
		ctx, done = context.WithDeadlineCause(ctx, deadline, over)
		defer done()
	}
	if idle := time.Duration(s.config.Limits.IdleMs) * time.Millisecond; idle > 0 {
		over := &limitError{by: guest.Timeout, limit: idle, text: fmt.Sprintf("timed out after %dms without a sign of life", idle.Milliseconds())}
		t.idle = newIdleTimer(idle, func() { t.stop(over) })
		defer t.idle.close()
	}
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-t.stopped:
			cancel(t.reason())
		case <-ctx.Done():
			var limit *limitError
			if errors.As(context.Cause(ctx), &limit) {
				t.stop(limit)
			}
		}
	}()
	defer func() {
		cancel(nil)
		<-watched
	}()
	result, err := g.Run(ctx, script, &turnHost{s, t, s.source(t)})
	// A back end that keeps the time itself may be there before the context.
	if over != nil && result.EndedBy == guest.Killed && time.Until(deadline) < early {
		t.stop(over)
	}
	return result, err
}

// early is how far clocks of two processes may be apart at a deadline.
const early = 5 * time.Millisecond

// reason returns what stopped the turn.
func (t *turn) reason() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.why
}

// script is what a turn executes.
func (s *session) script(t *turn) (guest.Script, error) {
	script := guest.Script{Code: t.cell.Code, File: s.config.File, Cell: !s.config.Script}
	if len(s.spec.Argv) > 0 {
		script.Args = s.spec.Argv[1:]
	}
	if script.Code == "" && script.File != "" {
		code, err := s.files.tree.ReadFile(script.File, spool.MaxEventBytes)
		if err != nil {
			return script, fmt.Errorf("read %q: %w", script.File, err)
		}
		script.Code = string(code)
	}
	return script, nil
}

// source says for the metrics where the code came from.
func (s *session) source(*turn) string {
	if s.config.File != "" {
		return "file"
	}
	return "inline"
}

// show writes the value or the exception of a script.
func (s *session) show(t *turn, r *guest.Result, count int) {
	if r.Exception != nil {
		r.Exception.Printed = true
		_ = s.append(spool.Event{Kind: spool.KindException, Turn: t.seq, Data: encode(r.Exception)})
	}
	if r.Value != nil && !t.cell.Silent {
		d := python.Display{Count: count}
		d.Bundle = map[string]json.RawMessage{"text/plain": encode(*r.Value)}
		_ = s.append(spool.Event{Kind: spool.KindResult, Turn: t.seq, Data: encode(d)})
	}
}

// doneOf says how a turn ended.
func doneOf(r *guest.Result, err, why error, interrupted bool) spool.Done {
	code := r.ExitCode
	d := spool.Done{Outcome: spool.TurnOK, ExitCode: &code}
	var limit *limitError
	switch {
	case err != nil && why == nil:
		code = 1
		d.Outcome, d.Error, d.ErrorClass = spool.TurnError, err.Error(), "engine"
		if errors.Is(err, spool.ErrInvalid) || vfs.ErrnoOf(err) == vfs.ENOENT {
			d.ErrorClass = "invalid"
		}
	case (r.EndedBy == guest.Killed || err != nil) && errors.As(why, &limit):
		d.EndedBy, d.Error = string(limit.by), limit.text
		d.LimitMs = limit.limit.Milliseconds()
		d.Outcome, code = spool.TurnKilled, guest.ExitKilled
		if limit.by == guest.Timeout {
			d.Outcome, code = spool.TurnTimeout, guest.ExitTimeout
		}
	case (r.EndedBy == guest.Killed || err != nil) && errors.Is(why, errInterrupted):
		d.Outcome, d.EndedBy, d.StoppedWith, code = spool.TurnInterrupted, "interrupt", "kill", guest.ExitKilled
	case r.EndedBy == guest.Killed || err != nil:
		d.Outcome, d.EndedBy, code = spool.TurnKilled, string(guest.Killed), guest.ExitKilled
	case r.EndedBy == guest.Crashed:
		d.Outcome, d.EndedBy, d.Error = spool.TurnCrashed, string(r.EndedBy), r.Reason
		if code == 0 {
			code = guest.ExitKilled
		}
	case r.EndedBy == guest.Timeout:
		d.Outcome, d.EndedBy, d.Error, code = spool.TurnTimeout, string(r.EndedBy), r.Reason, guest.ExitTimeout
		if errors.As(why, &limit) {
			d.Error, d.LimitMs = limit.text, limit.limit.Milliseconds()
		}
	case r.EndedBy != "":
		d.EndedBy, d.Error = string(r.EndedBy), r.Reason
		d.Outcome = spool.TurnKilled
		if r.Exception != nil { // it ended itself, in the end
			d.Outcome = spool.TurnError
		}
		if code == 0 {
			code = guest.ExitKilled
		}
	case interrupted && r.Exception != nil && r.Exception.Name == "KeyboardInterrupt":
		d.Outcome, d.EndedBy, d.StoppedWith = spool.TurnInterrupted, "interrupt", "interrupt"
	case r.Exception != nil && r.Exception.Name == "SystemExit" && code == 0:
	case r.Exception != nil:
		d.Outcome, d.ErrorClass = spool.TurnError, r.Exception.Name
		d.Error = r.Exception.Name
		if r.Exception.Message != "" {
			d.Error += ": " + r.Exception.Message
		}
	case code != 0:
		d.Outcome, d.Error = spool.TurnError, fmt.Sprintf("exit code %d", code)
	}
	return d
}

// neverBegan is the end of a turn that waited when the run ended.
func (t *turn) neverBegan() spool.Done {
	code := guest.ExitKilled
	return spool.Done{ID: t.id, Outcome: spool.TurnKilled, EndedBy: string(guest.Killed), Error: "the run ended before it began", ExitCode: &code}
}

// turnHost is what a script has beside its files.
type turnHost struct {
	s      *session
	t      *turn
	source string
}

var _ guest.Host = (*turnHost)(nil)

func (h *turnHost) Started(st guest.Startup) {
	h.t.active()
	if h.s.config.Metrics {
		_ = h.s.metrics(h.t.seq, startupMetrics(h.s.config.Backend, h.source, &st))
	}
}

func (h *turnHost) Write(s guest.Stream, p []byte) {
	h.t.active()
	h.t.output.write(s, p)
}

func (h *turnHost) Read(ctx context.Context, p []byte) (int, error) {
	h.t.output.sync()
	n, err := h.t.stdin.read(ctx, p)
	h.t.active()
	return n, err
}

func (h *turnHost) Ask(ctx context.Context, kind string, payload []byte) []byte {
	h.t.active()
	return h.s.ask(ctx, h.t, kind, payload).Encode()
}

// idleTimer fires after a time without a reset. Resets are cheap: output may
// come in millions of pieces.
type idleTimer struct {
	after time.Duration
	last  atomic.Int64 // when it was reset, in nanoseconds since start
	start time.Time

	mu    sync.Mutex
	timer *time.Timer // nil once closed
}

func newIdleTimer(after time.Duration, fire func()) *idleTimer {
	t := &idleTimer{after: after, start: time.Now()}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timer = time.AfterFunc(after, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.timer == nil {
			return
		}
		idle := time.Since(t.start) - time.Duration(t.last.Load())
		if idle >= t.after {
			fire()
			return
		}
		t.timer.Reset(t.after - idle)
	})
	return t
}

func (t *idleTimer) reset() { t.last.Store(int64(time.Since(t.start))) }

func (t *idleTimer) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timer.Stop()
	t.timer = nil
}
