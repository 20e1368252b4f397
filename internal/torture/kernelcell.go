package torture

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine/kernel"
	"github.com/spool-run/spool/python"
)

// soakCell is a cell and its expected result.
type soakCell struct {
	spool.Cell
	add    int    // added to x, which is then the result
	output string // expected part of its output
	want   []spool.TurnOutcome
	// interrupt stops the cell once it has written output. The kernel may
	// escalate the stop within the grace.
	interrupt bool
	grace     time.Duration
}

// stubborn is a cell that ignores interrupts. Its inner loop does work because
// Python does not catch an exception raised in an empty loop.
const stubborn = `n = 0
while True:
    try:
        print('busy', flush=True)
        while True: n += 1
    except BaseException: pass`

// newSoakCell chooses a random cell.
func newSoakCell(rng *rand.Rand) *soakCell {
	n := rng.IntN(1000)
	ok := []spool.TurnOutcome{spool.TurnOK}
	switch p := rng.IntN(100); {
	case p < 55:
		// This cell checks that the state of the previous cells is present.
		code := fmt.Sprintf("x = globals().get('x', 0) + %d; x", n+1)
		return &soakCell{Cell: spool.Cell{Code: code}, add: n + 1, want: ok}
	case p < 65:
		code := fmt.Sprintf("for i in range(%d): print(i, 'x' * 50)", n%50+1)
		return &soakCell{Cell: spool.Cell{Code: code}, output: fmt.Sprintf("%d x", n%50), want: ok}
	case p < 72:
		code := fmt.Sprintf("import subprocess; n = subprocess.call(['echo', 'child %d'])", n)
		return &soakCell{Cell: spool.Cell{Code: code}, output: fmt.Sprintf("child %d\n", n), want: ok}
	case p < 80:
		return &soakCell{Cell: spool.Cell{Code: "raise ValueError('soak')"}, want: []spool.TurnOutcome{spool.TurnError}}
	case p < 85:
		code := fmt.Sprintf("import asyncio; await asyncio.sleep(0.001); print('awaited %d')", n)
		return &soakCell{Cell: spool.Cell{Code: code}, output: fmt.Sprintf("awaited %d\n", n), want: ok}
	case p < 90:
		return &soakCell{Cell: spool.Cell{Code: "import time; time.sleep(3600)", TimeoutMs: int64(n%30 + 1)}, want: []spool.TurnOutcome{spool.TurnTimeout}}
	case p < 95:
		return &soakCell{
			Cell: spool.Cell{Code: "print('busy', flush=True)\nwhile True: pass"}, interrupt: true,
			want: []spool.TurnOutcome{spool.TurnInterrupted},
		}
	case p < 98:
		return &soakCell{Cell: spool.Cell{Code: "import os; os._exit(7)"}, want: []spool.TurnOutcome{spool.TurnCrashed}}
	default:
		// An interrupt may reach it between two loops, outside of try.
		return &soakCell{
			Cell: spool.Cell{Code: stubborn}, interrupt: true, grace: 200 * time.Millisecond,
			want: []spool.TurnOutcome{spool.TurnKilled, spool.TurnInterrupted},
		}
	}
}

// soakKernel is a kernel and its state according to its log.
type soakKernel struct {
	*soak
	run   *spool.Run
	n     int
	read  spool.Seq // cursor
	x     int       // the value of x in the live interpreter
	ended bool      // the log reports the end of the interpreter
	last  []string  // the last events
}

// soakEvents is the number of events shown from a wrong log.
const soakEvents = 30

// wrong records a broken promise and the last events.
func (k *soakKernel) wrong(count *int, format string, args ...any) {
	k.soak.wrong(count, "kernel %d (run %s): %s\n    %s", k.n, k.run.ID(), fmt.Sprintf(format, args...), strings.Join(k.last, "\n    "))
}

// cell runs one cell and compares the log with the expected result. Whether the
// state must be present does not depend on timing: the log reports its loss.
func (k *soakKernel) cell(ctx context.Context, rng *rand.Rand) error {
	c := newSoakCell(rng)
	ctx, cancel := context.WithTimeout(ctx, soakSettle)
	defer cancel()
	t, err := k.run.Exec(ctx, "", c.Cell)
	if err != nil {
		return fmt.Errorf("send a cell: %w", err)
	}
	seen := &soakTurn{}
	interrupt := c.interrupt
	var stopped time.Time
	for e, err := range k.run.Events(ctx, k.read) {
		if err != nil {
			k.wrong(&k.report.Unsettled, "turn %d did not end: %v", t.Seq(), err)
			return nil
		}
		if err := k.note(e, t.Seq(), seen); err != nil {
			return err
		}
		if interrupt && e.Turn == t.Seq() && e.Kind == spool.KindOutput {
			interrupt, stopped = false, time.Now()
			if err := t.Interrupt(ctx, c.grace); err != nil {
				return fmt.Errorf("interrupt: %w", err)
			}
		}
		if e.Turn == t.Seq() && e.Kind == spool.KindDone {
			break
		}
	}
	k.check(c, t.Seq(), seen)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.report.Outcomes[string(seen.done.Outcome)]++
	if !stopped.IsZero() {
		k.report.StopMs = max(k.report.StopMs, time.Since(stopped).Milliseconds())
	}
	return nil
}

// soakTurn is the result of a turn according to the log.
type soakTurn struct {
	written strings.Builder
	result  string
	done    spool.Done
}

// note evaluates one event of the log.
func (k *soakKernel) note(e spool.Event, turn spool.Seq, seen *soakTurn) error {
	k.read = e.Seq
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	if len(k.last) == soakEvents {
		k.last = k.last[1:]
	}
	k.last = append(k.last, string(line))
	switch e.Kind {
	case spool.KindNotice:
		var n spool.Notice
		if err := json.Unmarshal(e.Data, &n); err != nil {
			return fmt.Errorf("decode notice: %w", err)
		}
		switch n.Code {
		case kernel.NoticeCrashed:
			k.ended = true
		case kernel.NoticeRestarted:
			if !k.ended {
				k.wrong(&k.report.Wrong, "event %d: a fresh interpreter without a report that the previous one ended", e.Seq)
			}
			k.ended, k.x = false, 0
		}
	case spool.KindOutput, python.KindResult, python.KindException:
		if e.Turn != turn {
			return nil
		}
		if k.ended {
			k.wrong(&k.report.Wrong, "event %d: activity without a report of a fresh interpreter", e.Seq)
		}
		seen.written.Write(e.Bytes)
		if e.Kind == python.KindResult {
			var d python.Display
			if err := json.Unmarshal(e.Data, &d); err != nil {
				return fmt.Errorf("decode result: %w", err)
			}
			seen.result = string(d.Bundle["text/plain"])
		}
	case spool.KindDone:
		if e.Turn != turn {
			return nil
		}
		if err := json.Unmarshal(e.Data, &seen.done); err != nil {
			return fmt.Errorf("decode done: %w", err)
		}
		if lost(&seen.done) {
			k.ended = true
		}
	}
	return nil
}

// lost reports whether a done event ended the interpreter and its state.
func lost(d *spool.Done) bool {
	return d.Outcome == spool.TurnCrashed || d.Outcome == spool.TurnKilled || d.StoppedWith == "terminate" || d.StoppedWith == "kill"
}

// check compares a turn with the expected result.
func (k *soakKernel) check(c *soakCell, turn spool.Seq, seen *soakTurn) {
	d := &seen.done
	switch {
	case !slices.Contains(c.want, d.Outcome):
		k.wrong(&k.report.Wrong, "turn %d ended %q (%s), not %q", turn, d.Outcome, d.Error, c.want)
	case lost(d) && !slices.Contains(c.want, spool.TurnKilled) && !slices.Contains(c.want, spool.TurnCrashed):
		k.wrong(&k.report.Wrong, "turn %d obeys an interrupt, but was stopped with %q", turn, d.StoppedWith)
	case c.add > 0:
		k.x += c.add
		if want := strconv.Quote(strconv.Itoa(k.x)); seen.result != want {
			k.wrong(&k.report.Wrong, "turn %d shows %s, not %s", turn, seen.result, want)
		}
	case !strings.Contains(seen.written.String(), c.output):
		k.wrong(&k.report.Wrong, "turn %d wrote %q, not %q", turn, seen.written.String(), c.output)
	}
}
