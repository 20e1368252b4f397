package render

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/lens"
)

// Budget reads the log of a run into a number of tokens, for a model that reads it.
//
// If the log is larger, an excerpt has its head, its tail, and of what is between
// the errors, tracebacks and warnings, then lines of stderr and lines unlike those
// before; each place where lines were left out says how many and which events hold
// them. Lines that repeat are one line with a count. The same log and budget give the
// same excerpt, which is never larger than the budget. The memory it takes depends on
// the budget alone.
type Budget struct {
	// Tokens is the size of the excerpt by the rule of [Tokens]. If Characters is
	// not zero, that is its size instead.
	Tokens     int
	Characters int
	// Head and Tail are how many percent of the excerpt the beginning and the end of
	// the log may take, if it is too large; what matters between gets the rest. If
	// both are zero, they are 25 and 50.
	Head, Tail int
	// After and To are where to begin and to end: after and with these events. Zero
	// means the beginning and the end of the log as it is now.
	After, To spool.Seq
	// Stream reads only output of this stream, if it is not empty.
	Stream spool.Stream
	// Fetch returns how to get the events of a range, which is added where lines
	// were left out; nil adds nothing.
	Fetch func(from, to spool.Seq) string
}

// Excerpt is what a [Budget] shows of a log.
type Excerpt struct {
	Text    string     `json:"text"`
	Tokens  int        `json:"tokens"` // of the text, by the rule of [Tokens]
	Lines   int        `json:"lines"`  // of the log, with those that were left out
	Omitted []Omission `json:"omitted,omitempty"`
}

// Omission is lines in sequence that were left out.
type Omission struct {
	From  spool.Seq `json:"from"` // the first event that has a part of them
	To    spool.Seq `json:"to"`   // the last one
	Lines int       `json:"lines"`
	Bytes int       `json:"size_bytes"`
}

// Tokens estimates how many tokens a text takes, rather too many than too few: four
// letters or blanks are one token, and so are two other ASCII characters; another
// character is one token, and beyond U+FFFF two.
func Tokens(text string) int { return (quarters(text) + 3) / 4 }

// quarters is Tokens in quarters, which can be added.
func quarters(text string) int {
	n := 0
	for _, r := range text {
		switch {
		case r == ' ' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '\n' || r == '\t':
			n++
		case r < utf8.RuneSelf:
			n += 2
		case r <= 0xffff:
			n += 4
		default:
			n += 8
		}
	}
	return n
}

// maxExcerptLine is how many characters of a line an excerpt shows at most.
const maxExcerptLine = 2000

// Read reads the log. The error is [spool.ErrInvalid] if the budget is too small to say
// what was left out.
func (b Budget) Read(ctx context.Context, run *spool.Run) (Excerpt, error) {
	info, err := run.Info(ctx)
	if err != nil {
		return Excerpt{}, err
	}
	last := info.Last
	if b.To > 0 {
		last = min(last, b.To)
	}
	x, err := b.excerpt(last)
	if err != nil || b.After >= last {
		return Excerpt{}, err
	}
	for e, err := range run.Stream(ctx, b.After) {
		if err != nil {
			return Excerpt{}, err
		}
		if o, ok := e.Outcome(); ok && e.Seq == 0 { // not in the log: the connection is lost
			return Excerpt{}, errors.New(o.Reason)
		}
		if e.Seq > last {
			break
		}
		if err := x.event(ctx, &e); err != nil {
			return Excerpt{}, err
		}
		if e.Seq == last {
			break
		}
	}
	return x.finish()
}

// excerpt returns an empty excerpt of a log that ends with an event.
func (b Budget) excerpt(last spool.Seq) (*excerpt, error) {
	// The largest notice there can be.
	largest := b.notice(Omission{From: last, To: last, Lines: 1_000_000_000_000})
	gap := quarters(largest)
	limit := 4 * b.Tokens
	if b.Characters != 0 {
		gap, limit = utf8.RuneCountInString(largest), b.Characters
	}
	if limit < 2*gap {
		if b.Characters != 0 {
			return nil, fmt.Errorf("read within a budget: %w: %d characters are too few to say what was left out; use at least %d", spool.ErrInvalid, b.Characters, 2*gap)
		}
		return nil, fmt.Errorf("read within a budget: %w: %d tokens are too few to say what was left out; use at least %d", spool.ErrInvalid, b.Tokens, (2*gap+3)/4)
	}
	if b.Head == 0 && b.Tail == 0 {
		b.Head, b.Tail = 25, 50
	}
	x := &excerpt{budget: b, limit: limit, gap: gap, head: (limit - gap) * b.Head / 100, tail: (limit - gap) * b.Tail / 100}
	x.end.prev, x.end.next = &x.end, &x.end
	x.tailBegin = &x.end
	return x, nil
}

// notice returns the line that says what was left out.
func (b Budget) notice(o Omission) string {
	lines := "lines"
	if o.Lines == 1 {
		lines = "line"
	}
	text := fmt.Sprintf("… %d %s left out (seq %d–%d)", o.Lines, lines, o.From, o.To)
	if b.Fetch != nil {
		text += ": " + b.Fetch(o.From, o.To)
	}
	return text + "\n"
}

// measure returns the size of a text in the unit of the budget: quarters of tokens, or
// characters.
func (b *Budget) measure(text string) int {
	if b.Characters != 0 {
		return utf8.RuneCountInString(text)
	}
	return quarters(text)
}

// excerpt holds lines within a limit. All sizes are those of [Budget.measure].
type excerpt struct {
	budget Budget
	limit  int
	gap    int // the size of a notice
	head   int // lines at the beginning of this size stay
	tail   int // and those at the end

	lines   lens.Lines
	rater   rater
	last    *excerptLine // the newest line, which may be repeated
	count   int          // lines of the log
	end     excerptLine  // of a ring of lines, in their order
	size    int          // of all lines and notices
	headEnd bool         // the head is complete

	tailBegin *excerptLine // the first line of the tail
	tailSize  int
	middle    worst // lines that may be left out
}

// excerptLine is a line, or several that are the same.
type excerptLine struct {
	prev, next *excerptLine
	before     Omission // what was left out before it
	here       Omission // where it is
	stream     spool.Stream
	text       string // without a count
	size       int
	score      int
	place      int // lines before it
}

// event adds the lines of an event.
func (x *excerpt) event(ctx context.Context, e *spool.Event) error {
	if x.budget.Stream != "" && x.budget.Stream != e.Stream {
		return nil
	}
	if e.Kind == spool.KindOutput {
		return x.lines.Add(e, e.Bytes, x.add)
	}
	out, err := Renderer{}.Event(ctx, e)
	if err != nil {
		return err
	}
	if o, ok := e.Outcome(); ok {
		out.Text = "[" + o.String() + "]"
	}
	if out.Text == "" {
		return nil
	}
	x.rater.failure = out.Failure
	defer func() { x.rater.failure = false }()
	return x.lines.Add(e, []byte(out.Text), x.add)
}

// add adds a line of the log.
func (x *excerpt) add(l *lens.Line) error {
	x.count++
	text := x.budget.shortLine(plain(string(l.Text)), x.limit/8)
	here := Omission{From: l.Seq, To: l.Last, Lines: 1, Bytes: len(l.Text)}
	if p := x.last; p != nil && p.text == text && p.stream == l.Stream {
		p.here = join(p.here, here)
		return nil
	}
	x.push()
	x.last = &excerptLine{here: here, stream: l.Stream, text: text, score: x.rater.rate(l.Stream, text), place: x.count}
	return nil
}

// shown returns the text of a line with the number of times it came.
func (l *excerptLine) shown() string {
	if l.here.Lines > 1 {
		return fmt.Sprintf("%s (×%d)\n", l.text, l.here.Lines)
	}
	return l.text + "\n"
}

// push puts the newest line, which is complete now, among the others.
func (x *excerpt) push() {
	l := x.last
	if l == nil {
		return
	}
	x.last = nil
	l.size = x.budget.measure(l.shown())
	l.prev, l.next = x.end.prev, &x.end
	l.prev.next, l.next.prev = l, l
	// Lines are only left out once there is too much.
	l.before, x.end.before = x.end.before, Omission{}
	x.size += l.size
	if !x.headEnd && x.head >= l.size {
		x.head -= l.size
		x.tailBegin = &x.end
	} else {
		x.headEnd = true
		if x.tailBegin == &x.end {
			x.tailBegin = l
		}
		x.tailSize += l.size
		for x.tailSize > x.tail {
			first := x.tailBegin
			x.tailSize -= first.size
			x.tailBegin = first.next
			x.middle.push(first)
		}
	}
	for x.size > x.limit && len(x.middle) > 0 {
		x.leaveOut(x.middle.pop())
	}
}

// leaveOut removes a line.
func (x *excerpt) leaveOut(l *excerptLine) {
	next := l.next
	for _, o := range []Omission{l.before, next.before} {
		if o.Lines > 0 {
			x.size -= x.gap
		}
	}
	next.before = join(join(l.before, l.here), next.before)
	x.size += x.gap - l.size
	l.prev.next, next.prev = next, l.prev
}

// join returns two stretches that follow each other as one.
func join(a, b Omission) Omission {
	switch {
	case a.Lines == 0:
		return b
	case b.Lines == 0:
		return a
	}
	return Omission{From: min(a.From, b.From), To: max(a.To, b.To), Lines: a.Lines + b.Lines, Bytes: a.Bytes + b.Bytes}
}

// finish returns the excerpt.
func (x *excerpt) finish() (Excerpt, error) {
	if err := x.lines.End(x.add); err != nil {
		return Excerpt{}, err
	}
	x.push()
	out := Excerpt{Lines: x.count}
	var text strings.Builder
	for l := x.end.next; ; l = l.next {
		if l.before.Lines > 0 {
			out.Omitted = append(out.Omitted, l.before)
			text.WriteString(x.budget.notice(l.before))
		}
		if l == &x.end {
			break
		}
		text.WriteString(l.shown())
	}
	out.Text = text.String()
	out.Tokens = Tokens(out.Text)
	return out, nil
}

// shortLine cuts a line to a size, and says how many characters it cut.
func (b *Budget) shortLine(text string, size int) string {
	if len(text) <= size/8 && len(text) <= maxExcerptLine { // it fits whatever its characters
		return text
	}
	if b.measure(text) <= size && utf8.RuneCountInString(text) <= maxExcerptLine {
		return text
	}
	size -= b.measure("…(+1000000000)")
	used, n := 0, 0
	for i, r := range text {
		used += b.measure(string(r))
		if n++; n > maxExcerptLine || used > size {
			return fmt.Sprintf("%s…(+%d)", text[:i], utf8.RuneCountInString(text[i:]))
		}
	}
	return text
}
