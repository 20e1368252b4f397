package host

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
)

// NoticeLogRefused is the code of the notice that says why a log lacks what a
// run did after its outcome was known.
const NoticeLogRefused = "log_refused"

// How long a log that could not be completed waits for the next try.
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// Append implements [engine.Sink]. Once the log refused an event it takes no
// other: what follows would look as if nothing were missing before it.
func (r *run) Append(e spool.Event) (spool.Seq, error) {
	outcome, ended := e.Outcome()
	r.mu.Lock()
	if err := r.refused; err != nil {
		if ended && r.info.Outcome == nil {
			r.unsaid = &e
			r.conclude(outcome)
		}
		r.mu.Unlock()
		return 0, err
	}
	if ended {
		r.conclude(outcome)
	}
	if e.Kind == spool.KindOutput {
		r.info.Bytes += int64(len(e.Bytes))
	}
	r.mu.Unlock()

	seq, err := r.record(e)
	if err != nil {
		r.mu.Lock()
		r.refused = err
		if ended {
			r.unsaid = &e
		}
		if e.Kind == spool.KindOutput {
			r.info.Bytes -= int64(len(e.Bytes))
		}
		r.mu.Unlock()
		return 0, err
	}
	if r.host != nil {
		r.host.wrote(e.Size())
	}
	return seq, nil
}

// Conclude implements [engine.Concluder].
func (r *run) Conclude(e spool.Event) bool {
	outcome, ok := e.Outcome()
	if !ok || !r.isStarted() { // what is written at the start comes first
		return false
	}
	r.mu.Lock()
	if r.refused != nil || r.info.Outcome != nil {
		r.mu.Unlock()
		return false
	}
	r.conclude(outcome)
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
	return true // the rest is for finish, which tries for longer
}

// record appends an event and keeps the open asks by it. Whoever reads an ask
// may answer it at once, so the two are one step.
func (r *run) record(e spool.Event) (spool.Seq, error) {
	switch e.Kind {
	case spool.KindAsk, spool.KindDone, spool.KindNotice:
		if r.input != nil {
			return r.input.asks.record(e, r.log)
		}
	}
	return r.log.Append(e)
}

// conclude notes the outcome. Callers hold r.mu.
func (r *run) conclude(o spool.Outcome) {
	r.info.State, r.info.Outcome = spool.StateExited, &o
	r.info.Ended = time.Now().Round(0)
}

// finish waits for the end of the session and completes the log. It and
// Conclude are the only places that write a closed event for a run of this
// host.
func (r *run) finish() {
	outcome := r.session.Wait()
	r.input.end()
	var end []spool.Event
	if _, sealed := r.log.Last(); !sealed {
		end = r.ending(outcome)
	}
	if r.journal != nil {
		r.journal.Ending()
	}

	// Readers are told in any case. What the disk refuses is tried again,
	// until it works or this host ends; the next one then settles the run.
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
	runtime.Gosched() // whoever reads it goes first
	for wait := firstRetry; r.journal != nil; wait = min(2*wait, lastRetry) {
		if unwritten = r.write(unwritten); len(unwritten) == 0 && r.journal.Seal(r.Info()) == nil {
			break
		}
		if !r.host.pause(wait) {
			r.incomplete = true
			break
		}
	}
	close(r.done)
	r.mu.Lock()
	r.session = nil // and with it what the engine needed for it
	r.mu.Unlock()
}

// ending returns the events that the log still lacks: an outcome, if it has
// none, and closed. A log that was refused something does not end with what
// happened to the process because of that, but with why.
func (r *run) ending(o spool.Outcome) []spool.Event {
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
		end = append(end, spool.Event{Kind: spool.KindFailed, Data: failure(reason, false)})
	}
	if r.info.Outcome == nil {
		r.info.Outcome = &o
	}
	r.info.State = spool.StateClosed
	r.info.Ended = time.Now().Round(0)
	return append(end, spool.Event{Kind: spool.KindClosed})
}

// write makes durable what readers have seen already, and returns what it
// could not.
func (r *run) write(events []spool.Event) []spool.Event {
	for len(events) > 0 && r.journal.Append(&events[0]) == nil {
		events = events[1:]
	}
	return events
}

// pause waits before another try. It reports false when this host is closing.
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

// startError explains why the state directory did not take a new run.
func (h *Host) startError(err error) error {
	var known *spool.StartError
	if errors.As(err, &known) {
		return err
	}
	return &spool.StartError{Reason: engine.StartLimit, Hint: h.remedy(err), Err: err}
}

// next joins a cause and what to do about it, if that is known.
func next(remedy string) string {
	if remedy == "" {
		return ""
	}
	return fmt.Sprintf(" (%s)", remedy)
}
