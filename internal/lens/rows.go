package lens

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spool-run/spool"
)

// Defaults of [Options] for [Lens.Rows].
const (
	DefaultRows  = 2000     // lines of an answer
	DefaultBytes = 4 << 20  // of their text, about
	DefaultLine  = 16 << 10 // bytes of one line
)

// Row is a line of the output of a log, by its number.
type Row struct {
	N      int64        // 1, 2, 3 …; negative from the end, see [RowsQuery.Quick]
	Seq    spool.Seq    // the event in which it begins
	Offset int          // where in the bytes of that event
	Time   time.Time    // of that event
	Stream spool.Stream //
	Text   string       // at most [Options.Line] bytes, without the newline
	Cut    bool         // the line is longer
	Raw    bool         // bytes that are not UTF-8 were replaced
	// Continued is whether it goes on with a line that another stream
	// interrupted, and Open whether it has no end yet.
	Continued bool
	Open      bool
}

// RowsQuery says which lines to return. One of From, Seq and Time says where to
// begin.
type RowsQuery struct {
	From    int64          // the first line, 1, 2, 3 …; -1 is the last line, -2 the one before it
	Seq     spool.Seq      // the line in which the output of this event begins, or the next output
	Time    time.Time      // the line of the first output since then
	Count   int            // at most [Options.Rows], which zero means; with [Options.Bytes] of text, fewer
	Streams []spool.Stream // only lines of these; without any, of all
	// Quick is whether the last lines are wanted at once: if much of the log was
	// not read yet, their numbers are those from the end, as in From.
	Quick bool
}

// Rows are some lines of a log.
type Rows struct {
	Lines []Row
	Total int64 // lines that the log has as far as it was read
	Next  int64 // the number to go on from
	// Complete is whether all events that the log had were read, or all that can
	// be, so that Total is how many lines there are.
	Complete bool
	// DamagedFrom is the first event that cannot be read, nor any after it,
	// because the log is damaged; zero if it is not.
	DamagedFrom spool.Seq
}

// Rows returns lines by their number, or those at an event or a time. It reads as
// much of the log as it needs for the numbers, once.
func (l *Lens) Rows(ctx context.Context, id spool.RunID, q RowsQuery) (Rows, error) {
	if most := l.opts.Rows; q.Count <= 0 || q.Count > most {
		q.Count = most
	}
	v, done, err := l.enter(ctx, id)
	if err != nil {
		return Rows{}, err
	}
	defer done()
	if q.Quick && q.From < 0 && q.Seq == 0 && q.Time.IsZero() {
		if rows, ok, err := v.ending(ctx, &q); ok || err != nil {
			return rows, err
		}
	}
	if err := v.locate(ctx, &q); err != nil {
		return Rows{}, err
	}
	c := &collector{opts: &l.opts, query: &q}
	at := v.index.before(func(p *place) bool { return p.begun() < q.From })
	c.counter = at.counter
	err = v.read(ctx, at.Seq-1, func(e *spool.Event) bool { return c.add(e) })
	if err != nil && !isDamage(err) {
		return Rows{}, err
	}
	c.end()
	// What was read here may be newer than the index.
	total := max(v.index.begun(), c.begun())
	next := q.From
	if n := len(c.rows); n > 0 {
		next = c.rows[n-1].N + 1
	}
	if !c.full() {
		next = max(next, c.begun()+1)
	}
	return Rows{Lines: c.rows, Total: total, Next: next, Complete: v.complete, DamagedFrom: v.damaged}, nil
}

// locate sets the From of a query.
func (v *view) locate(ctx context.Context, q *RowsQuery) error {
	switch {
	case !q.Time.IsZero():
		if err := v.extend(ctx, func() bool { return false }); err != nil {
			return err
		}
		at := v.index.before(func(p *place) bool { return !p.Time.After(q.Time) })
		q.Seq = v.index.last + 1
		err := v.read(ctx, at.Seq-1, func(e *spool.Event) bool {
			if e.Kind == spool.KindOutput && !e.Time.Before(q.Time) {
				q.Seq = e.Seq
				return false
			}
			return true
		})
		if err != nil && !isDamage(err) {
			return err
		}
		fallthrough
	case q.Seq != 0:
		n, err := v.number(ctx, q.Seq, 0)
		q.From = n
		return err
	case q.From < 0:
		if err := v.extend(ctx, func() bool { return false }); err != nil {
			return err
		}
		q.From = max(1, v.index.begun()+q.From+1)
		return nil
	}
	q.From = max(1, q.From)
	return v.extend(ctx, func() bool { return v.index.begun() > q.From+int64(q.Count) })
}

// Number returns the number of the line in which a byte of the output of an event
// is: that of a hit of package search, for instance.
func (l *Lens) Number(ctx context.Context, id spool.RunID, seq spool.Seq, offset int) (int64, error) {
	v, done, err := l.enter(ctx, id)
	if err != nil {
		return 0, err
	}
	defer done()
	return v.number(ctx, seq, offset)
}

// Numbers returns the numbers of the lines in which bytes of the output of events are,
// as [Lens.Number] does, for places in the order of the log. It reads what is between
// places that are near each other once.
func (l *Lens) Numbers(ctx context.Context, id spool.RunID, places []Place) ([]int64, error) {
	if len(places) == 0 {
		return nil, nil
	}
	v, done, err := l.enter(ctx, id)
	if err != nil {
		return nil, err
	}
	defer done()
	last := places[len(places)-1].Seq
	if err := v.extend(ctx, func() bool { return v.index.last >= last }); err != nil {
		return nil, err
	}
	numbers := make([]int64, 0, len(places))
	for len(numbers) < len(places) {
		at := v.index.before(func(p *place) bool { return p.Seq <= places[len(numbers)].Seq })
		c, found := at.counter, len(numbers)
		err := v.read(ctx, at.Seq-1, func(e *spool.Event) bool {
			for len(numbers) < len(places) && places[len(numbers)].Seq <= e.Seq {
				p, here := places[len(numbers)], c
				if e.Kind == spool.KindOutput && len(e.Bytes) > 0 {
					here.enter(e.Stream)
				}
				n := here.lines + 1
				if p.Seq == e.Seq {
					n += int64(bytes.Count(e.Bytes[:min(max(p.Offset, 0), len(e.Bytes))], newline))
				}
				numbers = append(numbers, n)
			}
			if e.Kind == spool.KindOutput {
				c.add(e)
			}
			if len(numbers) == len(places) {
				return false
			}
			// Jump if the next place is far.
			next := v.index.before(func(p *place) bool { return p.Seq <= places[len(numbers)].Seq })
			return len(numbers) == found || next.Seq <= e.Seq+1 || next.Bytes-c.bytes < pointBytes
		})
		if err != nil {
			return nil, err
		}
		if len(numbers) == found { // there is no such event
			numbers = append(numbers, v.index.begun()+1)
		}
	}
	return numbers, nil
}

// Place is a byte of the output of an event.
type Place struct {
	Seq    spool.Seq
	Offset int
}

func (v *view) number(ctx context.Context, seq spool.Seq, offset int) (int64, error) {
	if err := v.extend(ctx, func() bool { return v.index.last >= seq }); err != nil {
		return 0, err
	}
	at := v.index.before(func(p *place) bool { return p.Seq <= seq })
	c := at.counter
	n := int64(0)
	err := v.read(ctx, at.Seq-1, func(e *spool.Event) bool {
		if e.Kind != spool.KindOutput || len(e.Bytes) == 0 {
			return true
		}
		if e.Seq < seq {
			c.add(e)
			return true
		}
		c.enter(e.Stream)
		if e.Seq > seq {
			offset = 0
		}
		n = c.lines + int64(bytes.Count(e.Bytes[:min(max(offset, 0), len(e.Bytes))], newline)) + 1
		return false
	})
	if n == 0 { // there is no output at or after the event
		n = c.begun() + 1
	}
	if isDamage(err) {
		err = nil
	}
	return n, err
}

// collector collects the lines of a query.
type collector struct {
	counter
	opts  *Options
	query *RowsQuery
	rows  []Row
	size  int  // of the text of the rows
	row   *Row // the line that is open, if it is collected
	text  []byte
	last  int // how many of the last lines are collected; zero collects the first
}

// full reports whether there are enough lines.
func (c *collector) full() bool {
	return c.last == 0 && (len(c.rows) == c.query.Count || c.size >= c.opts.Bytes)
}

// add adds an event and reports whether more are needed.
func (c *collector) add(e *spool.Event) bool {
	if e.Kind != spool.KindOutput || len(e.Bytes) == 0 {
		return true
	}
	if c.enter(e.Stream) {
		c.finish()
	}
	for at := 0; at < len(e.Bytes); {
		if !c.open {
			if c.full() {
				return false
			}
			c.open = true
			c.begin(e, at)
		}
		rest := e.Bytes[at:]
		n := bytes.IndexByte(rest, '\n')
		ended := n >= 0
		if !ended {
			n = len(rest)
		}
		if c.row != nil {
			c.text = append(c.text, rest[:min(n, c.opts.Line+1-len(c.text))]...)
		}
		at += n
		if ended {
			at++
			c.lines++
			c.open = false
			c.broken &^= bit(e.Stream)
			c.finish()
		}
	}
	return !c.full()
}

// begin begins a line, which is collected if the query asks for it.
func (c *collector) begin(e *spool.Event, offset int) {
	n := c.lines + 1
	if n < c.query.From || len(c.query.Streams) > 0 && !slices.Contains(c.query.Streams, e.Stream) {
		return
	}
	c.row = &Row{N: n, Seq: e.Seq, Offset: offset, Time: e.Time, Stream: e.Stream, Continued: c.broken&bit(e.Stream) != 0}
	c.text = c.text[:0]
}

// finish adds the line that has ended, if it is collected.
func (c *collector) finish() {
	if c.row == nil {
		return
	}
	r := c.row
	c.row = nil
	text := c.text
	if most := c.opts.Line; len(text) > most {
		text, r.Cut = text[:most], true
		for n := 0; n < utf8.UTFMax && len(text) > 0 && !utf8.Valid(text[max(0, len(text)-utf8.UTFMax):]); n++ {
			text = text[:len(text)-1] // the beginning of a character
		}
	} else {
		text = bytes.TrimSuffix(text, []byte("\r"))
	}
	r.Text = string(text)
	if !utf8.ValidString(r.Text) {
		r.Text, r.Raw = strings.ToValidUTF8(r.Text, "\ufffd"), true
	}
	c.rows = append(c.rows, *r)
	c.size += len(r.Text)
	if c.last > 0 && len(c.rows) >= 2*c.last {
		c.rows = append(c.rows[:0], c.rows[len(c.rows)-c.last:]...)
	}
}

// end adds the line that has no end.
func (c *collector) end() {
	if c.row != nil {
		c.row.Open = true
		c.finish()
	}
}

// read calls do with the events after a cursor until it returns false or there are
// no more.
func (v *view) read(ctx context.Context, after spool.Seq, do func(*spool.Event) bool) error {
	for {
		page, err := v.lens.backend.Read(ctx, v.id, spool.Query{After: after, MaxBytes: pageBytes})
		if err != nil {
			return fmt.Errorf("read the log: %w", err)
		}
		for i := range page.Events {
			if !do(&page.Events[i]) {
				return nil
			}
		}
		if len(page.Events) == 0 || page.Next >= page.Info.Last {
			return nil
		}
		after = page.Next
	}
}
