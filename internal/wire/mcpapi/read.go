package mcpapi

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/lens"
	"github.com/spool-run/spool/internal/visible"
	"github.com/spool-run/spool/render"
)

// The parts of a log that can be shown.
const (
	viewTail       = "tail"
	viewHead       = "head"
	viewHeadTail   = "head_tail"
	viewErrors     = "errors"
	viewScreen     = "screen"
	viewTranscript = "transcript"
)

const (
	// smallBudget is the size in characters below which a text does not say where
	// what was left out is.
	smallBudget = 400
	// tailFrom is the size of the output in bytes from which on its tail is read
	// without the rest.
	tailFrom = 8 << 20
	// countFor is how long a call takes to count the lines before a tail.
	countFor = 2 * time.Second
	// lineChars is how many characters of a line are shown.
	lineChars = 2000
)

// shares are how many percent of a text the head and the tail may take.
var shares = map[string][2]int{viewTail: {0, 100}, viewHead: {100, 0}, viewHeadTail: {25, 50}, viewErrors: {5, 15}}

// fill puts the output between two events into a view.
func (c *call) fill(v *RunView, run *spool.Run, part string, after, to spool.Seq, budget int) error {
	from := after
	if part == viewTail && after == 0 && v.info.Bytes > tailFrom {
		from = tailStart(v.info, budget)
	}
	x, err := c.excerpt(run, part, from, to, budget)
	if err != nil {
		return err
	}
	v.Text = x.Text
	for _, o := range x.Omitted {
		v.omit(int64(o.Bytes), int64(o.Lines), o.From, o.To)
	}
	if from > after {
		bytes, lines := c.before(run.ID(), from)
		v.omit(bytes, lines, after+1, from)
	}
	if part == viewHead && v.Omitted != nil { // the next call goes on where the text ends
		v.Next = v.Omitted.From - 1
		v.Text = strings.TrimSuffix(v.Text, x.Text[strings.LastIndex(x.Text, "… "):])
	}
	if failed(v.Outcome) && !v.info.TTY {
		return c.addStderr(v, run, part, from, to, budget)
	}
	return nil
}

// failed reports whether a run did not end well.
func failed(o *spool.Outcome) bool { return o != nil && (o.Kind != spool.Exited || o.Code != 0) }

// addStderr makes sure that the text about a run that failed has the end of what it
// wrote to stderr.
func (c *call) addStderr(v *RunView, run *spool.Run, part string, after, to spool.Seq, budget int) error {
	if part != viewTail && part != viewHeadTail {
		return nil
	}
	b := render.Budget{Characters: max(budget/4, smallBudget/4), Tail: 100, After: after, To: to, Stream: spool.Stderr}
	x, err := readBudget(c.ctx, b, run)
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSuffix(x.Text, "\n"), "\n")
	if last := lines[len(lines)-1]; last == "" || strings.Contains(v.Text, last) {
		return nil
	}
	rest, err := c.excerpt(run, part, after, to, budget*3/4-len("[stderr]\n"))
	if err != nil {
		return err
	}
	v.Text = rest.Text + "[stderr]\n" + x.Text
	v.Omitted = nil
	for _, o := range rest.Omitted {
		v.omit(int64(o.Bytes), int64(o.Lines), o.From, o.To)
	}
	return nil
}

// omit adds what the text leaves out.
func (v *RunView) omit(bytes, lines int64, from, to spool.Seq) {
	if v.Omitted == nil {
		v.Omitted = &Omitted{From: from, To: to}
	}
	o := v.Omitted
	o.Bytes, o.Lines = o.Bytes+bytes, o.Lines+lines
	o.From, o.To = min(o.From, from), max(o.To, to)
}

// excerpt reads events into a number of characters.
func (c *call) excerpt(run *spool.Run, part string, after, to spool.Seq, budget int) (render.Excerpt, error) {
	share := shares[part]
	b := render.Budget{Characters: budget, Head: share[0], Tail: share[1], After: after, To: to}
	if budget >= smallBudget && part != viewHead {
		b.Fetch = func(from, _ spool.Seq) string { return fmt.Sprintf("read_run after=%d", from-1) }
	}
	return readBudget(c.ctx, b, run)
}

// readBudget reads within a budget that may be too small to say what was left out: then
// the end of the text counts.
func readBudget(ctx context.Context, b render.Budget, run *spool.Run) (render.Excerpt, error) {
	if b.After >= b.To && b.To > 0 {
		return render.Excerpt{}, nil
	}
	most := b.Characters
	b.Characters = max(most, 2*smallBudget/3)
	x, err := b.Read(ctx, run)
	if n := utf8.RuneCountInString(x.Text); err == nil && n > most {
		runes := []rune(x.Text)
		x.Omitted = append(x.Omitted, render.Omission{From: b.After + 1, To: b.To, Bytes: len(string(runes[:n-most+1]))})
		x.Text = "…" + string(runes[n-most+1:])
	}
	return x, err
}

// tailStart returns an event from which on there is more output than a budget takes.
func tailStart(info *spool.Info, budget int) spool.Seq {
	// Sixteen times as many bytes as characters: escape sequences, lines that repeat.
	skip := 1 - min(1, float64(max(16*budget, 1<<20))/float64(info.Bytes))
	return spool.Seq(skip * float64(info.Last))
}

// before returns how much output is before an event. The lines are those of a count that
// may not have come that far.
func (c *call) before(id spool.RunID, seq spool.Seq) (bytes, lines int64) {
	index, err := c.lens.Index(c.ctx, id, countFor)
	if err != nil {
		return 0, 0
	}
	for _, p := range index.Points {
		if p.Seq > seq+1 {
			break
		}
		bytes, lines = p.Bytes, p.Lines
	}
	return bytes, lines
}

// grep puts the lines that match into a view, with their numbers and lines around them.
func (c *call) grep(v *RunView, run *spool.Run, pattern string, around int, after spool.Seq, budget int) error {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return fmt.Errorf("%w: grep: %w", spool.ErrInvalid, err)
	}
	g := &grepper{re: re, around: around, room: budget}
	err = each(c.ctx, run, after, v.Next, func(e *spool.Event) error {
		if e.Kind != spool.KindOutput {
			return nil
		}
		return g.lines.Add(e, e.Bytes, g.line)
	})
	if err != nil {
		return err
	}
	if err := g.lines.End(g.line); err != nil {
		return err
	}
	v.Text = g.text.String()
	if g.hits == 0 {
		v.Text = fmt.Sprintf("no line matches, of %d", g.number)
	}
	if g.left > 0 {
		v.omit(g.leftBytes, int64(g.left), g.leftFrom, g.leftTo)
	}
	return nil
}

// grepper collects lines that match, as far as there is room.
type grepper struct {
	re     *regexp.Regexp
	around int
	room   int // characters

	lines  lens.Lines
	text   strings.Builder
	number int      // of the line
	shown  int      // the number of the last line that was shown
	before []string // lines before, that may be shown
	follow int      // lines after a match that are still shown
	hits   int
	left   int // matches for which there was no room

	leftBytes        int64
	leftFrom, leftTo spool.Seq
}

func (g *grepper) line(l *lens.Line) error {
	g.number++
	text := cut(strings.ToValidUTF8(visible.Unstyled(string(l.Text)), "\uFFFD"), lineChars)
	hit := g.re.MatchString(text)
	switch {
	case hit:
		g.hits++
		if g.left > 0 || !g.add(text, ":") {
			if g.left++; g.left == 1 {
				g.leftFrom = l.Seq
			}
			g.leftBytes += int64(len(l.Text))
			g.leftTo = l.Last
		}
		g.follow = g.around
	case g.follow > 0 && g.left == 0:
		g.follow--
		g.add(text, "-")
	case g.around > 0:
		if g.before = append(g.before, text); len(g.before) > g.around {
			g.before = g.before[1:]
		}
	}
	return nil
}

// add shows a line, with those before it that were not shown, if there is room.
func (g *grepper) add(text, mark string) bool {
	var b strings.Builder
	first := g.number - len(g.before)
	if g.shown > 0 && first > g.shown+1 {
		b.WriteString("--\n")
	}
	for i, line := range g.before {
		fmt.Fprintf(&b, "%d-%s\n", first+i, line)
	}
	fmt.Fprintf(&b, "%d%s%s\n", g.number, mark, text)
	n := utf8.RuneCountInString(b.String())
	if n > g.room {
		return false
	}
	g.room -= n
	g.text.WriteString(b.String())
	g.before, g.shown = nil, g.number
	return true
}

// transcript puts the last state of what the run showed after an event into a view, or
// of one turn.
func (c *call) transcript(v *RunView, run *spool.Run, turn, after spool.Seq, budget int) error {
	t := &render.Transcript{Renderer: render.Renderer{Blobs: run, MaxText: budget}, MaxBytes: max(budget-len("\n[1000000000000 bytes left out]\n"), smallBudget/8)}
	err := each(c.ctx, run, after, v.Next, func(e *spool.Event) error {
		if turn != 0 && e.Turn != turn {
			return nil
		}
		return t.Add(c.ctx, e)
	})
	if err != nil {
		return err
	}
	v.Text = cut(t.Text(), budget)
	return nil
}

// screen puts the screen of a terminal into a view.
func (c *call) screen(v *RunView, budget int) error {
	s, err := c.lens.Screen(c.ctx, v.Run, lens.ScreenQuery{At: v.Next, Quick: true})
	if err != nil {
		return err
	}
	v.Text = cut(s.Text(), budget)
	return nil
}

// each calls do for the events between two, which are in the log.
func each(ctx context.Context, run *spool.Run, after, to spool.Seq, do func(*spool.Event) error) error {
	if after >= to {
		return nil
	}
	for e, err := range run.Events(ctx, after) {
		if err != nil {
			return err
		}
		if o, ok := e.Outcome(); ok && e.Seq == 0 { // not in the log: the connection is lost
			return errors.New(o.Reason)
		}
		if e.Seq > to {
			break
		}
		if err := do(&e); err != nil {
			return err
		}
		if e.Seq == to {
			break
		}
	}
	return nil
}
