package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spool-run/spool"
)

// printer writes the events of a run as the run wrote them, or as JSON.
type printer struct {
	stdout, stderr io.Writer
	json           bool
	only           spool.Stream // of the output, if not empty
	timestamps     bool
	eol            string // ends the lines of our own; "\r\n" on a raw terminal

	line    []byte                // of JSON, used again
	midline map[spool.Stream]bool // with timestamps: the line goes on
}

// print writes one event. Its error is one of writing.
func (p *printer) print(e *spool.Event) error {
	if p.json {
		p.line = append(e.AppendJSON(p.line[:0]), '\n')
		_, err := p.stdout.Write(p.line)
		return err
	}
	switch e.Kind {
	case spool.KindOutput:
		if p.only != "" && p.only != e.Stream {
			return nil
		}
		w := p.stdout
		if e.Stream == spool.Stderr {
			w = p.stderr
		}
		b := e.Bytes
		if p.timestamps {
			b = p.stamp(e)
		}
		_, err := w.Write(b)
		return err
	case spool.KindTruncated:
		return p.say(truncation(e))
	case spool.KindNotice:
		var n spool.Notice
		if json.Unmarshal(e.Data, &n) == nil && n.Text != "" {
			return p.say(n.Text)
		}
	}
	return nil
}

// say writes a line of our own between the output.
func (p *printer) say(text string) error {
	eol := p.eol
	if eol == "" {
		eol = "\n"
	}
	_, err := io.WriteString(p.stderr, "spool: "+text+eol)
	return err
}

// stamp puts the time of the event before every line that begins in it.
func (p *printer) stamp(e *spool.Event) []byte {
	if p.midline == nil {
		p.midline = make(map[spool.Stream]bool)
	}
	var out []byte
	for line := range strings.Lines(string(e.Bytes)) {
		if !p.midline[e.Stream] {
			out = e.Time.UTC().AppendFormat(out, "2006-01-02T15:04:05.000000Z ")
		}
		out = append(out, line...)
		p.midline[e.Stream] = !strings.HasSuffix(line, "\n")
	}
	return out
}

// truncation says in words what a truncated event stands for.
func truncation(e *spool.Event) string {
	var t struct {
		spool.Gap
		spool.Truncation
	}
	if err := json.Unmarshal(e.Data, &t); err != nil {
		return "some of the log is missing here"
	}
	if t.To > 0 {
		return fmt.Sprintf("events %d to %d are no longer there", t.From, t.To)
	}
	var dropped int64
	for _, n := range t.Dropped {
		dropped += n
	}
	return fmt.Sprintf("%d bytes of output were dropped here, beyond the limit of %d", dropped, t.Limit)
}
