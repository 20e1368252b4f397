package httpapi

import (
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/lens"
	"github.com/spool-run/spool/internal/screen"
)

// indexFor is how long a request for an index reads that names no other time.
const indexFor = 250 * time.Millisecond

// LogIndex says where in a log its output is.
type LogIndex struct {
	// Points are places before events, at most 2,000: the number of the event,
	// its time in Unix milliseconds, and the bytes and lines of output before
	// it.
	Points [][4]int64 `json:"points"`
	First  spool.Seq  `json:"first"`
	Last   spool.Seq  `json:"last"`    // up to which the log was read
	End    int64      `json:"last_ms"` // the time of that event, in Unix milliseconds
	Bytes  int64      `json:"bytes"`
	Lines  int64      `json:"lines"`
	// Marks are events that somebody may look for, at most 2,000.
	Marks []LogMark `json:"marks"`
	// Complete is whether all events that the log had were read, or all that
	// can be; otherwise the next request goes on.
	Complete bool `json:"complete"`
	// DamagedFrom is the first event that cannot be read, nor any after it,
	// because the log is damaged. What precedes it is good.
	DamagedFrom spool.Seq `json:"damaged_from,omitempty"`
}

// LogMark is an event that somebody may look for.
type LogMark struct {
	Seq  spool.Seq `json:"seq"`
	Ms   int64     `json:"ms"`   // its time, in Unix milliseconds
	Kind string    `json:"kind"` // turn, ask, exception, failed, resized, end or truncated
	// Line is the number of the line before which something is missing, and
	// Truncation what, of the kind truncated.
	Line       int64             `json:"line,omitempty"`
	Truncation *spool.Truncation `json:"truncation,omitempty"`
}

// LogLine is a line of output.
type LogLine struct {
	N      int64     `json:"n"`             // its number: 1, 2, 3 …; with quick it may be -1 for the last, -2 …
	Seq    spool.Seq `json:"seq"`           // the event in which it begins
	Offset int       `json:"off,omitempty"` // where in the bytes of that event
	Time   time.Time `json:"t"`             // of that event
	Stream string    `json:"s"`             // o, e or p: stdout, stderr or pty
	Text   string    `json:"text"`
	Cut    bool      `json:"cut,omitempty"` // the line is longer than the server gives, 16 KiB without another wish
	Raw    bool      `json:"raw,omitempty"` // bytes that are not UTF-8 were replaced
	// Continued is whether it goes on with a line that the other stream
	// interrupted, and Open whether it has no end yet.
	Continued bool `json:"continued,omitempty"`
	Open      bool `json:"open,omitempty"`
}

// LinePage is some lines of a log.
type LinePage struct {
	Lines []LogLine `json:"lines"`
	Total int64     `json:"total"` // lines that the log has, as far as it was read
	Next  int64     `json:"next"`  // the line to go on from
	// Complete is whether all of the log was read, or all that can be, so that
	// Total is how many lines there are.
	Complete bool `json:"complete"`
	// DamagedFrom is the first event that cannot be read, nor any after it,
	// because the log is damaged.
	DamagedFrom spool.Seq `json:"damaged_from,omitempty"`
}

// TerminalScreen is what the terminal of a run showed after an event.
type TerminalScreen struct {
	Seq       spool.Seq      `json:"seq"`
	Rows      int            `json:"rows"`
	Cols      int            `json:"cols"`
	Cursor    TerminalCursor `json:"cursor"`
	Alternate bool           `json:"alt"`
	// Exact is whether all that it shows was read; otherwise parts that were
	// drawn long ago may be missing.
	Exact bool     `json:"exact"`
	Ansi  string   `json:"ansi,omitempty"` // the bytes that draw it on a terminal of that size
	Text  []string `json:"text,omitempty"` // the rows
	// Scrollback is the lines that went off the top of the screen, the last of
	// them last, as far as they were wanted and read.
	Scrollback []string `json:"scrollback,omitempty"`
}

// TerminalCursor is the cursor of a screen. The first row and column are zero.
type TerminalCursor struct {
	Row     int  `json:"row"`
	Col     int  `json:"col"`
	Visible bool `json:"visible"`
}

// look returns the lens, after it made sure that the subject may read the run: the
// lens is shared by all.
func (c *call) look() (*lens.Lens, error) {
	if _, err := c.backend.Stat(c.ctx, c.run()); err != nil {
		return nil, err
	}
	return c.server.lens, nil
}

func (c *call) index() error {
	l, err := c.look()
	if err != nil {
		return err
	}
	wait := indexFor
	if c.query.Has("wait_ms") {
		wait = c.wait()
	}
	x, err := l.Index(c.ctx, c.run(), wait)
	if err != nil {
		return err
	}
	result := LogIndex{Points: make([][4]int64, len(x.Points)), First: x.First, Last: x.Last, Bytes: x.Bytes, Lines: x.Lines, Marks: make([]LogMark, len(x.Marks)), Complete: x.Complete, DamagedFrom: x.DamagedFrom}
	if !x.End.IsZero() {
		result.End = x.End.UnixMilli()
	}
	for i, m := range x.Marks {
		result.Marks[i] = LogMark{m.Seq, m.Time.UnixMilli(), m.Kind, m.Line, m.Truncation}
	}
	for i, p := range x.Points {
		result.Points[i] = [4]int64{int64(p.Seq), p.Time.UnixMilli(), p.Bytes, p.Lines}
	}
	return c.reply(http.StatusOK, result)
}

func (c *call) lines() error {
	given := 0
	for _, name := range []string{"from", "seq", "time"} {
		if c.query.Has(name) {
			given++
		}
	}
	if given > 1 {
		return problemf("invalid", "from, seq and time exclude each other")
	}
	l, err := c.look()
	if err != nil {
		return err
	}
	q := lens.RowsQuery{From: c.number("from", 1), Seq: spool.Seq(c.number("seq", 0)), Time: c.when("time"), Count: int(c.number("count", int64(c.server.limits.Lines))), Quick: c.flag("quick")}
	for _, s := range c.query["stream"] {
		q.Streams = append(q.Streams, spool.Stream(s))
	}
	rows, err := l.Rows(c.ctx, c.run(), q)
	if err != nil {
		return err
	}
	result := LinePage{Lines: make([]LogLine, len(rows.Lines)), Total: rows.Total, Next: rows.Next, Complete: rows.Complete, DamagedFrom: rows.DamagedFrom}
	for i, r := range rows.Lines {
		result.Lines[i] = LogLine{r.N, r.Seq, r.Offset, r.Time, streamLetter(r.Stream), r.Text, r.Cut, r.Raw, r.Continued, r.Open}
	}
	return c.reply(http.StatusOK, result)
}

// streamLetter is the short form of a stream.
func streamLetter(s spool.Stream) string {
	switch s {
	case spool.Stdout:
		return "o"
	case spool.Stderr:
		return "e"
	case spool.PTY:
		return "p"
	}
	return string(s)
}

func (c *call) screen() error {
	l, err := c.look()
	if err != nil {
		return err
	}
	view, err := l.Screen(c.ctx, c.run(), lens.ScreenQuery{At: spool.Seq(c.number("at", 0)), Quick: !c.flag("exact"), Back: int(c.number("scrollback", 0)), Styled: c.text("format") != "text"})
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, shown(view, c.text("format")))
}

// shown describes a screen.
func shown(view *screen.View, format string) *TerminalScreen {
	s := &TerminalScreen{Seq: view.Last, Alternate: view.Alternate(), Exact: view.Exact, Scrollback: view.Back()}
	s.Rows, s.Cols = view.Size()
	s.Cursor.Row, s.Cursor.Col, s.Cursor.Visible = view.Cursor()
	if format == "text" {
		s.Text = view.Rows()
	} else {
		s.Ansi = string(view.Paint(s.Rows, s.Cols))
	}
	return s
}

// number adds the numbers of their lines to hits of output.
func (c *call) numberHits(hits []RunHit) error {
	var order []int
	for i := range hits {
		if hits[i].Kind == spool.KindOutput {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { // the hits are in the order in which lines end
		if d := int64(hits[a].Seq) - int64(hits[b].Seq); d != 0 {
			return int(max(-1, min(1, d)))
		}
		return hits[a].Offset - hits[b].Offset
	})
	places := make([]lens.Place, len(order))
	for i, at := range order {
		places[i] = lens.Place{Seq: hits[at].Seq, Offset: hits[at].Offset}
	}
	numbers, err := c.server.lens.Numbers(c.ctx, c.run(), places)
	if err != nil {
		return err
	}
	for i, at := range order {
		hits[at].N = numbers[i]
	}
	return nil
}

// streamHits answers with the hits of a search in one run as they are found, one a
// line.
func (c *call) streamHits(search func(cursor string, limit int) (*RunSearch, error)) error {
	end, err := c.server.streams.begin(c)
	if err != nil {
		return err
	}
	defer end()
	left, size := int(c.number("limit", int64(c.server.limits.Hits))), firstHits
	page, err := search(c.text("cursor"), min(left, size))
	if err != nil {
		return err
	}
	c.unbuffered(formNDJSON)
	c.w.WriteHeader(http.StatusOK)
	if c.r.Method == http.MethodHead {
		return nil
	}
	control := http.NewResponseController(c.w)
	for {
		var b []byte
		for i := range page.Hits {
			line, err := json.Marshal(&page.Hits[i])
			if err != nil {
				return nil // plain fields always encode
			}
			b = append(append(b, line...), '\n')
		}
		if len(b) == 0 {
			b = []byte("\n") // it still searches
		}
		if _, err := c.w.Write(b); err != nil || control.Flush() != nil {
			return nil // the client left
		}
		left -= len(page.Hits)
		if page.Next == "" || left <= 0 {
			return nil
		}
		size = min(4*size, c.server.limits.Hits)
		if page, err = search(page.Next, min(left, size)); err != nil {
			panic(http.ErrAbortHandler) // the client must not take a part for the whole
		}
	}
}
