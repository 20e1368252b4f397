package cli

import (
	"bytes"
	"io"
	"regexp"
	"sync"

	"github.com/spool-run/spool/internal/visible"
)

// maxLine is the largest line that is held back; the rest of a longer one is
// printed as further lines.
const maxLine = 1 << 20

// lineFilter prints whole lines: with a prefix, only those that match a pattern,
// only the last ones.
type lineFilter struct {
	shared  *sync.Mutex // held while a line is written
	prefix  string
	pattern *regexp.Regexp // nil matches every line
	keep    int            // hold back the last lines, this many; negative prints all at once

	writers []*lineWriter
	held    []heldLine // a ring of the last lines, if keep is not negative
	count   int        // lines that matched
	clean   []byte     // a line without escape sequences
	partial bool       // reading began within the log: the first line may be a part of one
}

type heldLine struct {
	w    io.Writer
	line []byte
}

// lineWriter is one stream of a lineFilter.
type lineWriter struct {
	filter *lineFilter
	w      io.Writer
	line   []byte // the beginning of a line
}

// to returns a writer whose lines pass the filter to w.
func (f *lineFilter) to(w io.Writer) io.Writer {
	lw := &lineWriter{filter: f, w: w}
	f.writers = append(f.writers, lw)
	return lw
}

// Write implements [io.Writer].
func (w *lineWriter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		i := indexEnd(p)
		w.line = append(w.line, p[:i]...)
		p = p[i:]
		if w.line[len(w.line)-1] == '\n' || len(w.line) >= maxLine {
			if err := w.pass(); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

// indexEnd returns where the first line of p ends.
func indexEnd(p []byte) int {
	for i, c := range p {
		if c == '\n' {
			return i + 1
		}
	}
	return len(p)
}

// unstyled returns a line without escape sequences, which do not hide a match.
func (f *lineFilter) unstyled(line []byte) []byte {
	if bytes.IndexByte(line, esc) < 0 {
		return line
	}
	f.clean = visible.AppendUnstyled(f.clean[:0], line)
	return f.clean
}

// pass prints the line that is complete, or holds it back.
func (w *lineWriter) pass() error {
	f := w.filter
	line := w.line
	w.line = w.line[:0]
	text := line
	if n := len(text); n > 0 && text[n-1] == '\n' {
		text = text[:n-1]
	}
	if f.pattern != nil && !f.pattern.Match(f.unstyled(text)) {
		return nil
	}
	f.count++
	if f.keep < 0 {
		return f.write(w.w, line)
	}
	if f.keep == 0 {
		return nil
	}
	held := heldLine{w.w, append([]byte(nil), line...)}
	if len(f.held) < f.keep {
		f.held = append(f.held, held)
	} else {
		f.held[(f.count-1)%f.keep] = held
	}
	return nil
}

func (f *lineFilter) write(w io.Writer, line []byte) error {
	f.shared.Lock()
	defer f.shared.Unlock()
	if f.prefix != "" {
		line = append([]byte(f.prefix), line...)
	}
	if n := len(line); n > 0 && line[n-1] != '\n' && f.prefix != "" {
		line = append(line, '\n')
	}
	_, err := w.Write(line)
	return err
}

// reset forgets the lines so far. Partial says that reading begins within the
// log.
func (f *lineFilter) reset(partial bool) {
	f.held, f.count, f.partial = nil, 0, partial
	for _, w := range f.writers {
		w.line = w.line[:0]
	}
}

// full reports whether enough whole lines are held back.
func (f *lineFilter) full() bool {
	n := f.count
	for _, w := range f.writers {
		if len(w.line) > 0 {
			n++
		}
		if f.partial { // the first line of each stream may be a part of one
			n--
		}
	}
	return n >= f.keep
}

// flush prints the lines that were held back, and holds back none from then on.
func (f *lineFilter) flush() error {
	for _, w := range f.writers {
		if len(w.line) > 0 {
			if err := w.pass(); err != nil {
				return err
			}
		}
	}
	keep := f.keep
	f.keep = -1
	for i := range f.held {
		h := f.held[i]
		if len(f.held) == keep {
			h = f.held[(f.count+i)%keep]
		}
		if err := f.write(h.w, h.line); err != nil {
			return &writeError{err}
		}
	}
	f.held = nil
	return nil
}

// end prints the rest of lines without an end.
func (f *lineFilter) end() error {
	for _, w := range f.writers {
		if len(w.line) == 0 {
			continue
		}
		if err := w.pass(); err != nil {
			return &writeError{err}
		}
	}
	return nil
}
