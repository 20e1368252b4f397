// Package lens shows the output in a log as lines, and as the screen of a terminal.
//
// [Lines] splits a stream of events. A [Lens] answers questions about the log of a
// run, however long: where its output is, the lines with some numbers, the screen
// after any event.
package lens

import (
	"bytes"
	"time"

	"github.com/spool-run/spool"
)

// MaxLine is the size in bytes of the pieces of a longer line.
const MaxLine = 64 << 10

// Line is a line of a log, or a piece of a long one. It belongs to one stream: what
// another one wrote between its parts is another line.
type Line struct {
	Seq    spool.Seq // the event in which it begins
	Offset int       // where in the bytes of that event
	Last   spool.Seq // the event in which it ends
	End    int       // where in the bytes of that event
	Time   time.Time // of the event in which it begins
	Kind   spool.Kind
	Stream spool.Stream
	Text   []byte // without the newline; only lent
}

// Lines splits output into lines. The zero value is ready to use.
type Lines struct {
	open []*open // at most one for each stream
}

// open is a line without an end.
type open struct {
	Line
	text []byte
}

// Add adds text of an event, in the order of the log, and calls each for every line
// that ends in it: the bytes of output, or what is shown of another event.
func (l *Lines) Add(e *spool.Event, text []byte, each func(*Line) error) error {
	if e.Kind != spool.KindOutput { // it has no stream that could continue
		text = append(bytes.TrimSuffix(text[:len(text):len(text)], []byte("\n")), '\n')
	}
	o := l.of(e.Stream)
	for at := 0; at < len(text); {
		if len(o.text) == 0 {
			o.Line = Line{Seq: e.Seq, Offset: at, Time: e.Time, Kind: e.Kind, Stream: e.Stream}
		}
		rest := text[at:]
		n := bytes.IndexByte(rest, '\n')
		ended := n >= 0
		if !ended {
			n = len(rest)
		}
		if room := MaxLine - len(o.text); n > room {
			n, ended = room, false
		}
		o.text = append(o.text, rest[:n]...)
		at += n
		if n > 0 || ended {
			o.Last, o.End = e.Seq, at
		}
		if ended {
			at++
		}
		if ended || len(o.text) == MaxLine && at < len(text) && text[at] != '\n' {
			if err := o.pass(each); err != nil {
				return err
			}
		}
	}
	return nil
}

// End calls each for the lines that have no end.
func (l *Lines) End(each func(*Line) error) error {
	for _, o := range l.open {
		if len(o.text) == 0 {
			continue
		}
		if err := o.pass(each); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lines) of(stream spool.Stream) *open {
	for _, o := range l.open {
		if o.Stream == stream {
			return o
		}
	}
	o := &open{Line: Line{Stream: stream}}
	l.open = append(l.open, o)
	return o
}

func (o *open) pass(each func(*Line) error) error {
	o.Text = bytes.TrimSuffix(o.text, []byte("\r"))
	o.text = o.text[:0]
	return each(&o.Line)
}
