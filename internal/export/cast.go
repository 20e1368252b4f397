package export

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spool-run/spool"
)

// Size of the recording of a run without a terminal.
const (
	plainRows = 24
	plainCols = 80
)

// castTerm is the terminal of a recording of version 3.
type castTerm struct {
	Cols int `json:"cols"`
	Rows int `json:"rows"`
}

// castHeader is the first line of a recording.
type castHeader struct {
	Version   int       `json:"version"`
	Term      *castTerm `json:"term,omitempty"`
	Width     int       `json:"width,omitempty"`
	Height    int       `json:"height,omitempty"`
	Timestamp int64     `json:"timestamp"`
	Command   string    `json:"command,omitempty"`
	Title     string    `json:"title,omitempty"`
}

// recording writes a recording of a terminal.
type recording struct {
	w     *bufio.Writer
	old   bool // version 2: times since the beginning instead of since the event before
	plain bool // the run has no terminal, which would turn newlines into lines
	at    time.Time
	text  bytes.Buffer
	json  *json.Encoder
	rest  map[spool.Stream][]byte // the beginning of a character
	ended map[spool.Stream]bool   // the last byte was a carriage return
}

func writeCast(ctx context.Context, w *bufio.Writer, l *log, old bool) error {
	info := &l.info
	size := info.FirstSize
	if size == (spool.Size{}) {
		size = info.Size
	}
	if size == (spool.Size{}) {
		size = spool.Size{Rows: plainRows, Cols: plainCols}
	}
	h := castHeader{Version: 3, Timestamp: info.Created.Unix(), Command: strings.Join(info.Argv, " "), Title: info.Name}
	if old {
		h.Version, h.Width, h.Height = 2, int(size.Cols), int(size.Rows)
	} else {
		h.Term = &castTerm{int(size.Cols), int(size.Rows)}
	}
	r := &recording{w: w, old: old, plain: !info.TTY, at: info.Created, rest: make(map[spool.Stream][]byte), ended: make(map[spool.Stream]bool)}
	r.json = json.NewEncoder(&r.text)
	r.json.SetEscapeHTML(false)
	if err := r.json.Encode(h); err != nil {
		return err
	}
	if _, err := r.w.Write(r.text.Bytes()); err != nil {
		return err
	}
	return l.each(ctx, r.event)
}

func (r *recording) event(e *spool.Event) error {
	switch e.Kind {
	case spool.KindOutput:
		return r.output(e)
	case spool.KindResized:
		var s spool.Resized
		if json.Unmarshal(e.Data, &s) == nil {
			return r.line(e.Time, "r", fmt.Sprintf("%dx%d", s.Cols, s.Rows))
		}
	case spool.KindTruncated:
		return r.line(e.Time, "m", missing(e))
	case spool.KindExited:
		if o, ok := e.Outcome(); ok && !r.old {
			return r.line(e.Time, "x", strconv.Itoa(o.ExitCode()))
		}
	}
	return nil
}

// output writes output, with characters that several events share in one piece.
func (r *recording) output(e *spool.Event) error {
	b := e.Bytes
	if rest := r.rest[e.Stream]; len(rest) > 0 {
		b = append(rest[:len(rest):len(rest)], b...)
	}
	n := whole(b)
	r.rest[e.Stream] = bytes.Clone(b[n:])
	if b = b[:n]; len(b) == 0 {
		return nil
	}
	if r.plain {
		b = r.lines(e.Stream, b)
	}
	return r.line(e.Time, "o", string(b))
}

// lines puts a carriage return before each newline that has none.
func (r *recording) lines(s spool.Stream, b []byte) []byte {
	out := make([]byte, 0, len(b)+len(b)/16)
	ended := r.ended[s]
	for _, c := range b {
		if c == '\n' && !ended {
			out = append(out, '\r')
		}
		ended = c == '\r'
		out = append(out, c)
	}
	r.ended[s] = ended
	return out
}

// line writes an event of the recording.
func (r *recording) line(at time.Time, code, data string) error {
	since := max(0, at.Sub(r.at))
	if !r.old && at.After(r.at) {
		r.at = at
	}
	r.text.Reset()
	if err := r.json.Encode(data); err != nil {
		return err
	}
	_, err := fmt.Fprintf(r.w, "[%.6f, %q, %s]\n", since.Seconds(), code, bytes.TrimRight(r.text.Bytes(), "\n"))
	return err
}

// whole returns the length of b without a character that is cut at its end.
func whole(b []byte) int {
	for i := len(b) - 1; i >= 0 && i >= len(b)-utf8.UTFMax; i-- {
		if utf8.RuneStart(b[i]) {
			if !utf8.FullRune(b[i:]) {
				return i
			}
			break
		}
	}
	return len(b)
}

// missing describes what a truncated event stands for.
func missing(e *spool.Event) string {
	var t spool.Truncation
	if json.Unmarshal(e.Data, &t) != nil || t.To == 0 {
		return "output was dropped here, beyond the limit of the run"
	}
	return fmt.Sprintf("the events %d to %d are gone", t.From, t.To)
}
