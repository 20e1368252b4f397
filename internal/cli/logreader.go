package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
)

// logReader reads the log of one run for logs.
type logReader struct {
	run     *spool.Run
	options *logsOptions
	printer *printer
	lines   *lineFilter // nil if the output is printed unchanged
	after   spool.Seq
	last    spool.Seq // the last event of the log at the beginning
	turn    spool.Seq // print only this turn, if it is not zero
}

// begin finds where to start in the log.
func (r *logReader) begin(ctx context.Context) error {
	info, err := r.run.Info(ctx)
	if err != nil {
		return err
	}
	r.after, r.last = spool.Seq(r.options.after), info.Last
	if to := spool.Seq(r.options.to); to > 0 {
		r.last = min(r.last, to)
	}
	r.printer.isAgent = info.Engine == agent.Engine
	if since := r.options.since; !since.IsZero() {
		// The times of a log do not go back: search for the first event.
		low, high := r.after, r.last
		for low < high {
			middle := low + (high-low)/2
			page, err := r.run.Read(ctx, spool.Query{After: middle, MaxBytes: 1})
			if err != nil {
				return err
			}
			if len(page.Events) == 0 || !page.Events[0].Time.Before(since.Time) {
				high = middle
			} else {
				low = max(page.Events[0].Seq, middle+1)
			}
		}
		r.after = low
	}
	switch r.options.turn {
	case "":
		return nil
	case "last":
		if err := r.findLastTurn(ctx); err != nil {
			return err
		}
	default:
		n, err := strconv.ParseUint(r.options.turn, 10, 64)
		if err != nil {
			return err
		}
		r.turn = spool.Seq(n)
		if !r.options.follow && r.turn > r.last {
			return fmt.Errorf("run %s has no turn %d yet", r.run.ID(), r.turn)
		}
	}
	r.after = max(r.after, r.turn-1)
	return nil
}

// findLastTurn finds the turn that began last.
func (r *logReader) findLastTurn(ctx context.Context) error {
	for back := spool.Seq(256); ; back *= 16 {
		from := spool.Seq(0)
		if r.last > back {
			from = r.last - back
		}
		err := eachEvent(ctx, r.run, from, r.last, func(e *spool.Event) error {
			if e.Turn > r.turn {
				r.turn = e.Turn
			}
			return nil
		})
		switch {
		case err != nil || r.turn > 0:
			return err
		case from == 0:
			return fmt.Errorf("run %s has no turns", r.run.ID())
		}
	}
}

// read prints the log of one run.
func (r *logReader) read(ctx context.Context) error {
	if r.options.tail >= 0 {
		if err := r.readTail(ctx); err != nil {
			return err
		}
	} else if !r.options.follow {
		return r.history(ctx)
	}
	if !r.options.follow {
		return nil
	}
	return r.followLog(ctx)
}

// tailEvents is how many events from the end are first searched for the last
// lines. An event of a run that writes a lot holds thousands of lines.
const tailEvents = 8

// readTail prints the last lines of the log. It reads the log from near its end,
// and from further back if there are too few lines.
func (r *logReader) readTail(ctx context.Context) error {
	first := r.after
	for back := spool.Seq(tailEvents); ; back *= 16 {
		r.after = first
		if r.last > first && r.last-first > back {
			r.after = r.last - back
		}
		start := r.after
		r.lines.reset(r.after > first)
		p := r.printer
		r.printer = &printer{stdout: p.stdout, stderr: p.stderr, blobs: p.blobs, json: p.json, only: p.only, timestamps: p.timestamps,
			isAgent: p.isAgent, live: p.live, verbose: p.verbose}
		if err := r.history(ctx); err != nil {
			return err
		}
		if start == first || r.lines.full() {
			break
		}
	}
	r.after = max(r.after, r.last)
	return r.lines.flush()
}

// history prints the events that the log holds at the beginning. It ignores
// events that arrive meanwhile: a live run may write faster than they are
// printed.
func (r *logReader) history(ctx context.Context) error {
	err := eachEvent(ctx, r.run, r.after, r.last, func(e *spool.Event) error { return r.print(ctx, e) })
	if errors.Is(err, errUntil) {
		err = nil
	}
	if err == nil && r.lines != nil && !r.options.follow && r.lines.keep < 0 {
		err = r.lines.end()
	}
	return err
}

// errUntil ends reading at --until.
var errUntil = errors.New("until")

// print prints an event that the flags select.
func (r *logReader) print(ctx context.Context, e *spool.Event) error {
	r.after = e.Seq
	if until := r.options.until; !until.IsZero() && e.Time.After(until.Time) {
		return errUntil
	}
	if r.turn > 0 && e.Turn != r.turn && e.Seq != r.turn {
		return nil
	}
	if err := r.printer.print(ctx, e); err != nil {
		return &writeError{err}
	}
	return nil
}

// followLog prints events until the run has finished.
func (r *logReader) followLog(ctx context.Context) error {
	for e, err := range r.run.Stream(ctx, r.after) {
		if err != nil {
			return err
		}
		if o, ok := e.Outcome(); ok && e.Seq == 0 { // not in the log: the connection is lost
			return &lostError{o.Reason}
		}
		if err := r.print(ctx, &e); err != nil {
			return err
		}
		if r.turn > 0 && e.Kind == spool.KindDone && e.Turn == r.turn {
			break
		}
	}
	if r.lines != nil {
		return r.lines.end()
	}
	return nil
}
