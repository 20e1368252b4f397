package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
)

// NoticeLogRefused is the code of the notice that explains why a log lacks
// events after the outcome.
const NoticeLogRefused = "log_refused"

// Intervals between attempts to complete a log.
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// Append implements [engine.Sink]. Once the log has refused an event it accepts
// no other, because later events would hide the gap.
func (r *run) Append(e spool.Event) (spool.Seq, error) {
	outcome, ended := e.Outcome()
	var used *spool.ProcessUse
	if ended {
		used = r.processes()
	}
	r.mu.Lock()
	if ended && r.exceeded != "" && outcome.Reason == "" {
		outcome.Reason = r.exceeded
		e = outcome.Event()
	}
	if err := r.refused; err != nil {
		if ended && r.info.Outcome == nil {
			r.unsaid = &e
			r.conclude(outcome, used)
		}
		r.mu.Unlock()
		return 0, err
	}
	if ended {
		r.conclude(outcome, used)
	}
	was := r.info.Size
	switch e.Kind {
	case spool.KindOutput:
		r.info.Bytes += int64(len(e.Bytes))
	case spool.KindInput:
		noteTurn(&r.info, &e)
	case spool.KindDone:
		noteTurn(&r.info, &e)
		r.endTurn(e.Turn)
	case spool.KindResized:
		var to spool.Resized
		if err := json.Unmarshal(e.Data, &to); err == nil {
			r.info.Size = to.Size
		}
	}
	r.account.count(&e)
	r.mu.Unlock()

	seq, err := r.record(e)
	if errors.Is(err, spool.ErrNotAsked) {
		return 0, err // an answer came first; the log takes other events
	}
	if err != nil {
		r.mu.Lock()
		r.refused = err
		if ended {
			r.unsaid = &e
		}
		switch e.Kind {
		case spool.KindOutput:
			r.info.Bytes -= int64(len(e.Bytes))
		case spool.KindResized:
			r.info.Size = was
		}
		r.account.uncount(&e)
		r.mu.Unlock()
		return 0, err
	}
	if e.Kind == spool.KindInput && beginsTurn(&e) {
		r.beginTurn(seq)
	}
	if r.host != nil {
		r.host.wrote(e.Size())
	}
	if e.Kind == spool.KindResized && r.journal != nil && r.host != nil {
		r.host.notes.add(r)
	}
	return seq, nil
}

// Conclude implements [engine.Concluder].
func (r *run) Conclude(e spool.Event) bool {
	outcome, ok := e.Outcome()
	if !ok || !r.isStarted() || r.workspaceDir != "" { // events of the start come first, and changes before the end
		return false
	}
	used := r.processes()
	r.mu.Lock()
	if r.refused != nil || r.info.Outcome != nil {
		r.mu.Unlock()
		return false
	}
	r.conclude(outcome, used)
	r.info.State = spool.StateClosed
	r.mu.Unlock()
	n, err := r.log.AppendEnd(e, spool.Event{Kind: spool.KindClosed})
	if err == nil {
		r.host.wrote(e.Size())
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.info.State = spool.StateExited
	if n == 0 {
		r.refused, r.unsaid = err, &e
	}
	return true // finish writes the rest and retries for longer
}

// Hold implements [engine.Sink].
func (r *run) Hold() { r.log.Hold() }

// Release implements [engine.Sink].
func (r *run) Release() { r.log.Release() }

// record appends an event and updates the open asks. It does both in one step,
// because a reader may answer an ask at once.
func (r *run) record(e spool.Event) (spool.Seq, error) {
	switch e.Kind {
	case spool.KindAsk, spool.KindDone, spool.KindNotice:
		if r.input != nil {
			return r.input.asks.record(e, r.log)
		}
	}
	return r.log.Append(e)
}

// conclude records the outcome. The caller holds r.mu.
func (r *run) conclude(o spool.Outcome, used *spool.ProcessUse) {
	r.info.State, r.info.Outcome = spool.StateExited, &o
	r.info.Turn, r.info.Asks = 0, nil
	r.info.Ended = time.Now().Round(0)
	r.settle(used)
}

// finish waits for the end of the session and completes the log. It and
// Conclude are the only places that write a closed event for a run of this
// host.
func (r *run) finish() {
	outcome := r.session.Wait()
	r.describe()
	end := r.input.end()
	if r.workspaceDir != "" {
		end = append(end, r.endWorkspace()...)
	}
	if _, sealed := r.log.Last(); !sealed {
		end = append(end, r.ending(outcome)...)
	}
	if r.journal != nil {
		r.journal.Ending()
	}

	// Readers see the events in any case. Events that the disk refuses are
	// retried until it works or this host ends; the next host then recovers the
	// run.
	var unwritten []spool.Event
	for _, e := range end {
		if len(unwritten) == 0 {
			if _, err := r.log.Append(e); err == nil {
				continue
			}
		}
		if e, err := r.log.Conclude(e); err == nil {
			unwritten = append(unwritten, e)
		}
	}
	runtime.Gosched() // readers run first
	for wait := firstRetry; r.journal != nil; wait = min(2*wait, lastRetry) {
		if unwritten = r.write(unwritten); len(unwritten) == 0 && r.journal.Seal(r.Info()) == nil {
			break
		}
		if !r.host.pause(wait) {
			r.incomplete = true
			break
		}
	}
	r.notify() // before done, so that the host does not look idle meanwhile
	close(r.done)
	r.mu.Lock()
	r.session = nil // frees the engine's state
	r.mu.Unlock()
}

// ending returns the events that the log still lacks: an outcome, if it has
// none, and closed. If the log refused an event, the outcome is the reason for
// that, not the end of the process that followed from it.
func (r *run) ending(o spool.Outcome) []spool.Event {
	used := r.processes()
	r.mu.Lock()
	defer r.mu.Unlock()
	var end []spool.Event
	switch {
	case r.unsaid != nil:
		end = append(end, *r.unsaid)
	case r.refused != nil:
		reason := "its log could not be written: " + r.refused.Error() + next(r.host.remedy(r.refused))
		if r.info.Outcome != nil {
			end = append(end, notice(NoticeLogRefused, reason))
			break
		}
		o = spool.Outcome{Kind: spool.Failed, Reason: reason}
		end = append(end, o.Event())
	}
	if r.info.Outcome == nil {
		r.info.Outcome = &o
	}
	r.info.State = spool.StateClosed
	r.info.Turn, r.info.Asks = 0, nil
	r.info.Ended = time.Now().Round(0)
	r.settle(used)
	return append(end, spool.Event{Kind: spool.KindClosed})
}

// write makes events durable that readers have already seen, and returns those
// it could not write.
func (r *run) write(events []spool.Event) []spool.Event {
	for len(events) > 0 && r.journal.Append(&events[0]) == nil {
		events = events[1:]
	}
	return events
}

// pause waits before another attempt. It returns false if this host is closing.
func (h *Host) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-h.closing:
		return false
	}
}

// startError explains why the state directory did not accept a new run.
func (h *Host) startError(err error) error {
	var known *spool.StartError
	if errors.As(err, &known) {
		return err
	}
	return &spool.StartError{Reason: engine.StartLimit, Hint: h.remedy(err), Err: err}
}

// next formats a hint to follow a cause, or returns "".
func next(remedy string) string {
	if remedy == "" {
		return ""
	}
	return fmt.Sprintf(" (%s)", remedy)
}
