package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/lens"
	"github.com/spool-run/spool/internal/visible"
	"github.com/spool-run/spool/render"
)

// logPlace is a place in a log, as spool search prints it: a seq, or seq+offset for a
// line that begins within an event.
type logPlace struct {
	seq    spool.Seq
	offset int
}

// String implements [pflag.Value].
func (p logPlace) String() string {
	switch {
	case p.seq == 0:
		return ""
	case p.offset == 0:
		return strconv.FormatUint(uint64(p.seq), 10)
	}
	return fmt.Sprintf("%d+%d", p.seq, p.offset)
}

// Set implements [pflag.Value].
func (p *logPlace) Set(text string) error {
	first, second, within := strings.Cut(text, "+")
	seq, err := strconv.ParseUint(first, 10, 64)
	offset := uint64(0)
	if within && err == nil {
		offset, err = strconv.ParseUint(second, 10, 31)
	}
	if err != nil || seq == 0 {
		return fmt.Errorf(`%q is no place in a log: use a seq, such as 120, or seq+offset, as "spool search" prints it`, text)
	}
	p.seq, p.offset = spool.Seq(seq), int(offset)
	return nil
}

// Type implements [pflag.Value].
func (p *logPlace) Type() string { return "place" }

// aroundEvents is how many events before a place are first searched for lines.
const aroundEvents = 8

var errEnough = errors.New("enough lines")

// logsAround prints the lines around a place in the log of a run.
func (a *app) logsAround(ctx context.Context, b spool.Backend, name string, o logsOptions) error {
	run, err := spool.Find(ctx, b, name)
	if err != nil {
		return err
	}
	info, err := run.Info(ctx)
	if err != nil {
		return err
	}
	if o.around.seq > info.Last {
		return fmt.Errorf("run %s has no event %d: its last is %d", name, o.around.seq, info.Last)
	}
	for back := spool.Seq(aroundEvents); ; back *= 16 {
		first := spool.Seq(0)
		if o.around.seq > back {
			first = o.around.seq - back
		}
		w := lineWindow{place: o.around, context: o.context, only: o.stream()}
		if err := w.read(ctx, run, first, info.Last); err != nil {
			return err
		}
		// The first lines may be parts of lines that begin before.
		if first == 0 || len(w.before) == o.context && w.whole >= o.context+len(spoolStreams) {
			return w.print(a.screen(a.stdout))
		}
	}
}

// spoolStreams are the streams that a line may belong to.
var spoolStreams = []spool.Stream{spool.Stdout, spool.Stderr, spool.PTY}

// stream returns the stream that --stdout or --stderr selects.
func (o *logsOptions) stream() spool.Stream {
	switch {
	case o.stdout:
		return spool.Stdout
	case o.stderr:
		return spool.Stderr
	}
	return ""
}

// lineWindow is the lines around a place.
type lineWindow struct {
	place   logPlace
	context int
	only    spool.Stream

	before, after []string
	line          string // at the place
	found         bool
	whole         int // lines before the place
}

// read reads the lines from after a cursor on.
func (w *lineWindow) read(ctx context.Context, run *spool.Run, after, last spool.Seq) error {
	var lines lens.Lines
	err := eachEvent(ctx, run, after, last, func(e *spool.Event) error {
		if w.only != "" && e.Stream != w.only {
			return nil
		}
		out, err := render.Renderer{Blobs: run}.Event(ctx, e)
		if err != nil || out.Text == "" {
			return nil // a value that cannot be read shows nothing
		}
		return lines.Add(e, []byte(out.Text), w.add)
	})
	if err == nil {
		err = lines.End(w.add)
	}
	if errors.Is(err, errEnough) {
		err = nil
	}
	return err
}

// add takes the next line of the log.
func (w *lineWindow) add(l *lens.Line) error {
	text := fmt.Sprintf("%s: %s", logPlace{l.Seq, l.Offset}, plain(visible.Unstyled(string(l.Text))))
	switch {
	case w.found:
		w.after = append(w.after, text)
		if len(w.after) >= w.context {
			return errEnough
		}
	case l.Last > w.place.seq, l.Last == w.place.seq && l.End >= w.place.offset:
		w.line, w.found = text, true
		if w.context == 0 {
			return errEnough
		}
	default:
		w.whole++
		w.before = append(w.before, text)
		if len(w.before) > w.context {
			w.before = w.before[1:]
		}
	}
	return nil
}

// print prints the lines, with a mark before the one at the place.
func (w *lineWindow) print(to io.Writer) error {
	var b strings.Builder
	for _, text := range w.before {
		b.WriteString("  " + text + "\n")
	}
	if w.found {
		b.WriteString("> " + w.line + "\n")
	}
	for _, text := range w.after {
		b.WriteString("  " + text + "\n")
	}
	if _, err := io.WriteString(to, b.String()); err != nil {
		return &writeError{err}
	}
	return nil
}
