// Package export writes the log of a run as a file that other programs read: lines of
// JSON, a recording of a terminal, a notebook, a page.
//
// It reads the log page by page and writes as it reads, so that the size of a log does
// not matter.
package export

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/python"
)

// Format is the form of a file.
type Format string

// The formats.
const (
	JSONL    Format = "jsonl" // the events, a JSON object a line
	Cast     Format = "cast"  // a recording of asciinema, version 3
	Cast2    Format = "cast2" // one of version 2
	Notebook Format = "ipynb" // a notebook of Jupyter
	Markdown Format = "md"
	HTML     Format = "html" // a page without scripts that needs no other file
	Text     Format = "txt"  // what a person reads
)

// Formats are all formats.
var Formats = []Format{JSONL, Cast, Cast2, Notebook, Markdown, HTML, Text}

// Type returns the content type of a format.
func (f Format) Type() string {
	switch f {
	case JSONL:
		return "application/x-ndjson"
	case Cast, Cast2:
		return "application/x-asciicast"
	case Notebook:
		return "application/x-ipynb+json"
	case Markdown:
		return "text/markdown; charset=utf-8"
	case HTML:
		return "text/html; charset=utf-8"
	}
	return "text/plain; charset=utf-8"
}

// FileName returns a name for the file of a run.
func (f Format) FileName(info *spool.Info) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, info.Name)
	if name == "" {
		name = string(info.ID)
	}
	if f == Cast2 {
		f = Cast
	}
	return name + "." + string(f)
}

// Check returns an error that is [spool.ErrUnsupported] if a run has no such form.
func (f Format) Check(info *spool.Info) error {
	if !slices.Contains(Formats, f) {
		return fmt.Errorf("export: %w: there is no format %q", spool.ErrInvalid, string(f))
	}
	isPython := info.Engine == python.EngineKernel || info.Engine == python.EngineSandbox
	switch {
	case f == Notebook && !isPython:
		return fmt.Errorf("export: %w: only kernels and sandboxes have notebooks, and run %s is of the engine %s", spool.ErrUnsupported, info.ID, info.Engine)
	case (f == Cast || f == Cast2) && info.Engine == agent.Engine:
		return fmt.Errorf("export: %w: an agent has no terminal to record", spool.ErrUnsupported)
	}
	return nil
}

// Write writes the log of a run, up to the event that is the last one when it begins.
func Write(ctx context.Context, w io.Writer, run *spool.Run, f Format) error {
	info, err := run.Info(ctx)
	if err != nil {
		return err
	}
	if err := f.Check(&info); err != nil {
		return err
	}
	b := bufio.NewWriterSize(w, 64<<10)
	l := &log{run: run, info: info}
	switch f {
	case JSONL:
		err = l.each(ctx, func(e *spool.Event) error {
			_, err := b.Write(append(e.AppendJSON(b.AvailableBuffer()), '\n'))
			return err
		})
	case Cast, Cast2:
		err = writeCast(ctx, b, l, f == Cast2)
	case Notebook:
		err = writeNotebook(ctx, b, l)
	case Markdown:
		err = tell(ctx, l, &markdown{Writer: b})
	case HTML:
		err = tell(ctx, l, &page{Writer: b})
	default:
		err = tell(ctx, l, &text{Writer: b})
	}
	if err == nil {
		err = b.Flush()
	}
	if err != nil {
		return fmt.Errorf("export run %s: %w", info.ID, err)
	}
	return nil
}

// pageBytes is how much of a log is read at once.
const pageBytes = 1 << 20

// log is the log of a run up to an event.
type log struct {
	run  *spool.Run
	info spool.Info
}

// each calls a function with every event. It fails if it cannot read all of them: a
// part of a log is not taken for the whole.
func (l *log) each(ctx context.Context, do func(*spool.Event) error) error {
	for after := spool.Seq(0); after < l.info.Last; {
		page, err := l.run.Read(ctx, spool.Query{After: after, MaxBytes: pageBytes})
		if err != nil {
			return err
		}
		for i := range page.Events {
			e := &page.Events[i]
			if e.Seq > l.info.Last {
				return nil
			}
			if o, ok := e.Outcome(); ok && e.Seq == 0 { // not in the log: the connection is lost
				return fmt.Errorf("after event %d: %s", after, o.Reason)
			}
			if err := do(e); err != nil {
				return err
			}
		}
		if page.Next <= after {
			return fmt.Errorf("the log has no event between %d and %d", after, l.info.Last+1)
		}
		after = page.Next
	}
	return nil
}

// at reads one event.
func (l *log) at(ctx context.Context, seq spool.Seq) (*spool.Event, error) {
	page, err := l.run.Read(ctx, spool.Query{After: seq - 1, MaxBytes: 1})
	if err != nil {
		return nil, err
	}
	if len(page.Events) == 0 || page.Events[0].Seq != seq {
		return nil, fmt.Errorf("event %d: %w", seq, spool.ErrNotFound)
	}
	return &page.Events[0], nil
}
