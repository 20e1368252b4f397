package sandbox

import (
	"cmp"
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
	"github.com/spool-run/spool/internal/engine/turns"
	"github.com/spool-run/spool/internal/limits"
	"github.com/spool-run/spool/python"
)

// turn is one script and where it is in its life.
type turn = turns.Turn[*cell]

// cell is what a session keeps with a turn.
type cell struct {
	spool.Cell

	bad    error // why it cannot run
	stdin  *stdin
	output *output    // set before it runs
	idle   *idleTimer // nil without such a limit

	interrupted atomic.Bool

	mu        sync.Mutex
	asks      int // passed to the host program
	asksBytes int
	timers    []*time.Timer // that may stop it
	ended     bool          // nothing may stop it any more
}

// escalate keeps a timer that will stop the turn, until its end.
func (c *cell) escalate(timer *time.Timer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		timer.Stop()
		return
	}
	c.timers = append(c.timers, timer)
}

// countAsk counts an ask. It returns false if the turn has had too many.
func (c *cell) countAsk(bytes int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asks >= MaxAsks || bytes > MaxAsksBytes-c.asksBytes {
		return false
	}
	c.asks++
	c.asksBytes += bytes
	return true
}

// end stops the timers.
func (c *cell) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	for _, timer := range c.timers {
		timer.Stop()
	}
}

// active says that the script did something that its idle limit is about.
func (c *cell) active() {
	if c.idle != nil {
		c.idle.reset()
	}
}

// Reasons to stop a turn.
var (
	killed      = turns.Reason{By: string(guest.Killed), Outcome: spool.TurnKilled}
	interrupted = turns.Reason{By: "interrupt", Outcome: spool.TurnInterrupted}
)

// timedOut is the reason to stop a turn whose time is up.
func timedOut(limit time.Duration, when string) turns.Reason {
	return turns.Reason{
		By: string(guest.Timeout), Outcome: spool.TurnTimeout, Limit: limit,
		Text: fmt.Sprintf("timed out after %dms%s", limit.Milliseconds(), when),
	}
}

// take executes a turn and writes how it ended.
func (s *session) take(t *turn) {
	c := t.Value
	if t.Waited() {
		_ = s.notice(t.Seq, spool.Notice{Code: python.NoticeTurnBegan, Level: "debug", Text: "the cell began"})
	}
	s.mu.Lock()
	if !c.Silent && !c.NoHistory {
		s.count++
	}
	count, g := s.count, s.guest
	s.mu.Unlock()
	if c.Silent || c.NoHistory {
		count = 0
	}

	c.output = newOutput(t.Seq, s.config.Limits.OutputBytes, s.append, func() {
		if s.config.Limits.OutputStop {
			t.Stop(turns.Reason{
				By: string(guest.Output), Outcome: spool.TurnKilled,
				Text: fmt.Sprintf("wrote more than %d bytes", s.config.Limits.OutputBytes),
			})
		}
	})
	result, err := s.execute(t, g, count)
	c.output.close()
	c.end()
	why, _ := t.Reason()

	if err == nil {
		s.show(t, &result, count)
	}
	if result.Lost && !s.config.Fresh && !s.config.Once && err == nil {
		_ = s.notice(t.Seq, spool.Notice{Code: NoticeStateLost, Text: "the interpreter was stopped: variables are lost, files are kept"})
	}
	d := doneOf(&result, err, why, c.interrupted.Load())
	d.ExecutionCount = count
	s.interrupting.Lock()
	defer s.interrupting.Unlock()
	s.turns.Finish(t, d)
}

// complete adds to each done event what scripts have: an exit code. A run of one
// script ends with it.
func (s *session) complete(t *turn, d *spool.Done) {
	t.Value.stdin.discard()
	if d.ExitCode == nil { // it never began
		code := guest.ExitKilled
		d.ExitCode = &code
	}
	if s.config.Once {
		s.onlyCode.Store(d.ExitCode)
		s.poke()
	}
}

// execute runs the script and returns how that went.
func (s *session) execute(t *turn, g guest.Context, count int) (guest.Result, error) {
	c := t.Value
	switch {
	case c.bad != nil:
		return guest.Result{}, c.bad
	case t.State() == turns.Stopping: // it was stopped before the script began
		return guest.Result{EndedBy: guest.Killed}, nil
	}
	script, err := s.script(c)
	if err != nil {
		return guest.Result{}, err
	}
	if c.Keep {
		script.Keep = count
	}
	ctx, cancel := context.WithCancelCause(s.ctx)
	defer cancel(nil)
	wall := timedOut(t.Limit(), "")
	deadline := t.Begun().Add(t.Limit())
	if t.Limit() > 0 {
		var done context.CancelFunc
		ctx, done = context.WithDeadlineCause(ctx, deadline, errTimedOut)
		defer done()
	}
	if idle := limits.Milliseconds(s.config.Limits.IdleMs); idle > 0 {
		over := timedOut(idle, " without activity")
		c.idle = newIdleTimer(idle, func() { t.Stop(over) })
		defer c.idle.close()
	}
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-t.Stopping():
			cancel(errStopped)
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), errTimedOut) {
				t.Stop(wall)
			}
		}
	}()
	defer func() {
		cancel(nil)
		<-watched
	}()
	result, err := g.Run(ctx, script, &turnHost{s, t, s.source()})
	// A back end that keeps the time itself may be there before the context.
	if t.Limit() > 0 && result.EndedBy == guest.Killed && time.Until(deadline) < early {
		t.Stop(wall)
	}
	return result, err
}

// Causes of the end of a script's context.
var (
	errTimedOut = errors.New("timed out")
	errStopped  = errors.New("stopped")
)

// early is how far clocks of two processes may be apart at a deadline.
const early = 5 * time.Millisecond

// script is what a turn executes.
func (s *session) script(c *cell) (guest.Script, error) {
	script := guest.Script{Code: c.Code, File: cmp.Or(c.File, s.config.File), Cell: !s.config.Script && c.File == "", Last: s.config.Once}
	argv := s.spec.Argv
	if len(c.Args) > 0 {
		argv = c.Args
	}
	if len(argv) > 0 {
		script.Name, script.Args = argv[0], argv[1:]
	}
	if c.Module != "" {
		script.Module, script.File, script.Cell = c.Module, c.File, false
		return script, nil
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
func (s *session) source() string {
	if s.config.File != "" {
		return "file"
	}
	return "inline"
}

// show writes the value or the exception of a script.
func (s *session) show(t *turn, r *guest.Result, count int) {
	if r.Exception != nil {
		r.Exception.Printed = true
		_ = s.append(spool.Event{Kind: python.KindException, Turn: t.Seq, Data: encode(r.Exception)})
	}
	if r.Value != nil && !t.Value.Silent {
		d := python.Display{Count: count}
		d.Bundle = map[string]json.RawMessage{"text/plain": encode(*r.Value)}
		_ = s.append(spool.Event{Kind: python.KindResult, Turn: t.Seq, Data: encode(d)})
	}
}

// doneOf says how a turn ended. The reason is why it was stopped, if it was.
func doneOf(r *guest.Result, err error, why turns.Reason, interrupted bool) spool.Done {
	code := r.ExitCode
	d := spool.Done{Outcome: spool.TurnOK, ExitCode: &code}
	stopped := r.EndedBy == guest.Killed || err != nil
	switch {
	case err != nil && why.By == "":
		code = 1
		d.Outcome, d.Error, d.ErrorClass = spool.TurnError, err.Error(), "engine"
		if errors.Is(err, spool.ErrInvalid) || vfs.ErrnoOf(err) == vfs.ENOENT {
			d.ErrorClass = "invalid"
		}
	case stopped && why.By != "":
		d.Outcome, d.EndedBy, d.Error, d.LimitMs = why.Outcome, why.By, why.Text, why.Limit.Milliseconds()
		code = guest.ExitKilled
		switch why.Outcome {
		case spool.TurnTimeout:
			code = guest.ExitTimeout
		case spool.TurnInterrupted:
			d.StoppedWith = "kill"
		}
	case stopped:
		d.Outcome, d.EndedBy, code = spool.TurnKilled, string(guest.Killed), guest.ExitKilled
	case r.EndedBy == guest.Crashed:
		d.Outcome, d.EndedBy, d.Error = spool.TurnCrashed, string(r.EndedBy), r.Reason
		if code == 0 {
			code = guest.ExitKilled
		}
	case r.EndedBy == guest.Timeout:
		d.Outcome, d.EndedBy, d.Error, code = spool.TurnTimeout, string(r.EndedBy), r.Reason, guest.ExitTimeout
		if why.Text != "" {
			d.Error, d.LimitMs = why.Text, why.Limit.Milliseconds()
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

// turnHost is what a script has beside its files.
type turnHost struct {
	s      *session
	t      *turn
	source string
}

var _ guest.Host = (*turnHost)(nil)

func (h *turnHost) Started(st guest.Startup) {
	h.t.Value.active()
	if h.s.config.Metrics {
		_ = h.s.metrics(h.t.Seq, startupMetrics(h.s.config.Backend, h.source, &st))
	}
}

func (h *turnHost) Write(s guest.Stream, p []byte) {
	h.t.Value.active()
	h.t.Value.output.write(s, p)
}

func (h *turnHost) Read(ctx context.Context, p []byte) (int, error) {
	h.t.Value.output.sync()
	n, err := h.t.Value.stdin.read(ctx, p)
	h.t.Value.active()
	return n, err
}

func (h *turnHost) Ask(ctx context.Context, kind string, payload []byte) []byte {
	h.t.Value.active()
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
