package jupyter

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
)

// maxCells is how many cells the book remembers, for the history of a front end.
const maxCells = 10_000

// maxShown is how much of a result the history has.
const maxShown = 64 << 10

// cell is what the log says about a cell.
type cell struct {
	turn   spool.Seq
	id     string // of the request
	code   string
	hidden bool // silent, or without a number

	result    string // as text
	exception *python.Exception
	number    int
	outcome   spool.TurnOutcome // empty while it runs
	failure   string            // why it did not end well
	ended     spool.Seq         // the event that said so
	done      chan struct{}     // closed when it has ended
}

// book is the cells of a run, read from its log.
type book struct {
	mu       sync.Mutex
	cells    []*cell
	byTurn   map[spool.Seq]*cell // those that run
	number   int                 // of the last cell
	read     spool.Seq
	progress chan struct{} // closed at the next event; nil without waiters

	over chan struct{} // closed when the log is complete
}

func newBook() *book {
	return &book{byTurn: make(map[spool.Seq]*cell), over: make(chan struct{})}
}

// keep reads the log until it is complete. It hands each ask to ask.
func (b *book) keep(ctx context.Context, run *spool.Run, ask func(e *spool.Event, c *cell)) error {
	defer b.end()
	for e, err := range run.Stream(ctx, 0) {
		if err != nil {
			return fmt.Errorf("read the log of the kernel: %w", err)
		}
		if c := b.take(&e); c != nil && e.Kind == spool.KindAsk {
			ask(&e, c)
		}
	}
	return nil
}

// end ends the cells of a run that has ended.
func (b *book) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.over)
	for turn, c := range b.byTurn {
		c.outcome, c.failure = spool.TurnCrashed, "the run of the kernel ended"
		close(c.done)
		delete(b.byTurn, turn)
	}
}

// ended waits for the end of the log and reports whether it came in time.
func (b *book) ended(ctx context.Context, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case <-b.over:
		return true
	case <-ctx.Done():
		return false
	}
}

// wake wakes who waits for an event. Callers hold the lock.
func (b *book) wake() {
	if b.progress != nil {
		close(b.progress)
		b.progress = nil
	}
}

// take enters an event, and returns the cell to which it belongs.
func (b *book) take(e *spool.Event) *cell {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.wake()
	if e.Seq > b.read {
		b.read = e.Seq
	}
	if e.Kind == spool.KindInput {
		return b.begin(e)
	}
	c := b.byTurn[e.Turn]
	if c == nil {
		return nil
	}
	switch e.Kind {
	case python.KindResult:
		var d python.Display
		if json.Unmarshal(e.Data, &d) == nil {
			_ = json.Unmarshal(d.Bundle["text/plain"], &c.result) // what is a blob stays empty
			c.result = strings.Clone(c.result[:min(len(c.result), maxShown)])
		}
	case python.KindException:
		x := new(python.Exception)
		if json.Unmarshal(e.Data, x) == nil {
			c.exception = x
		}
	case spool.KindDone:
		var d spool.Done
		_ = json.Unmarshal(e.Data, &d) // the outcome of what does not decode is empty
		c.number, c.outcome, c.failure, c.ended = d.ExecutionCount, d.Outcome, d.Error, e.Seq
		if c.outcome == "" {
			c.outcome = spool.TurnCrashed
		}
		if d.ExecutionCount > 0 {
			b.number = d.ExecutionCount
		}
		delete(b.byTurn, e.Turn)
		close(c.done)
	}
	return c
}

func (b *book) begin(e *spool.Event) *cell {
	code, said, ok := cellOf(e)
	if !ok {
		return nil
	}
	c := &cell{turn: e.Seq, id: said.ID, code: code.Code, hidden: code.Silent || code.NoHistory, done: make(chan struct{})}
	b.byTurn[e.Seq] = c
	if b.cells = append(b.cells, c); len(b.cells) > maxCells {
		b.cells = b.cells[1:]
	}
	return c
}

// cellOf returns the cell of an input event.
func cellOf(e *spool.Event) (code spool.Cell, said spool.Said, ok bool) {
	ok = json.Unmarshal(e.Data, &said) == nil && said.Kind == spool.InputCell && json.Unmarshal(said.Data, &code) == nil
	return code, said, ok
}

// reach waits until the log was read up to an event, or the log is complete.
func (b *book) reach(ctx context.Context, seq spool.Seq) error {
	for {
		b.mu.Lock()
		if b.read >= seq {
			b.mu.Unlock()
			return nil
		}
		if b.progress == nil {
			b.progress = make(chan struct{})
		}
		progress := b.progress
		b.mu.Unlock()
		select {
		case <-progress:
		case <-b.over:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// find waits until the log has the cell of a turn, and returns it.
func (b *book) find(ctx context.Context, turn spool.Seq) (*cell, error) {
	if err := b.reach(ctx, turn); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := len(b.cells) - 1; i >= 0; i-- {
		if b.cells[i].turn == turn {
			return b.cells[i], nil
		}
	}
	return nil, fmt.Errorf("turn %d: %w", turn, spool.ErrNotFound)
}

// last returns the number of the last cell.
func (b *book) last() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.number
}

// shown are the cells with a number, or that will have one, as they are now.
func (b *book) shown() []cell {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []cell
	for _, c := range b.cells {
		if !c.hidden {
			list = append(list, *c)
		}
	}
	return list
}

// stored returns the cell at an index among those that shown returns, or nil.
func (b *book) stored(index int) *cell {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.cells {
		if c.hidden {
			continue
		}
		if index == 0 {
			return c
		}
		index--
	}
	return nil
}

// endedByItself reports whether the cell goes on or came to its own end.
func (c *cell) endedByItself() bool {
	select {
	case <-c.done:
		return c.outcome == spool.TurnOK || c.outcome == spool.TurnError
	default:
		return true
	}
}

// running returns the cell that runs, if there is one: the oldest that has not ended.
func (b *book) running() *cell {
	b.mu.Lock()
	defer b.mu.Unlock()
	var first *cell
	for _, c := range b.byTurn {
		if first == nil || c.turn < first.turn {
			first = c
		}
	}
	return first
}

// lines splits text into lines, without an empty one at the end.
func lines(text string) []string {
	b := bytes.TrimRight([]byte(text), "\n")
	if len(b) == 0 {
		return []string{}
	}
	return strings.Split(string(b), "\n")
}
