package cli

import (
	"context"
	"io"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
	"github.com/spool-run/spool/render"
)

// printer writes the events of a run as the run wrote them, or as JSON. What
// is not output it writes as package render says, on lines of its own.
type printer struct {
	stdout, stderr io.Writer
	json           bool
	only           spool.Stream // of the output, if not empty
	timestamps     bool
	eol            string // ends the lines of our own; "\r\n" on a raw terminal
	blobs          render.Blobs
	images         *imageFiles // where images go; nil only names them
	rows           int         // of a terminal, on which a display can be replaced

	line    []byte                // of JSON, used again
	midline map[spool.Stream]bool // the line goes on
	held    updates
	agent   *narrator // set once the run turned out to be a conversation
}

// print writes one event. Its error is one of writing.
func (p *printer) print(ctx context.Context, e *spool.Event) error {
	if p.json {
		p.line = append(e.AppendJSON(p.line[:0]), '\n')
		_, err := p.stdout.Write(p.line)
		return err
	}
	if e.Kind == spool.KindOutput {
		return p.write(e)
	}
	if n := p.narrator(e); n != nil {
		return n.tell(e)
	}
	if e.Kind == python.KindDisplay || e.Kind == spool.KindDone || e.Kind == spool.KindClosed {
		if handled, err := p.update(ctx, e); handled || err != nil {
			return err
		}
	}
	out, err := render.Renderer{Blobs: p.blobs}.Event(ctx, e)
	if err != nil { // it says so where the text would be
		if sayErr := p.say(err.Error()); sayErr != nil {
			return sayErr
		}
	}
	if out.Aside {
		return p.say(out.Text)
	}
	if e.Kind == spool.KindAsk {
		return p.write(&spool.Event{Time: e.Time, Stream: spool.Stdout, Bytes: []byte(out.Text)})
	}
	return p.block(ctx, e, out)
}

// write writes bytes of a stream as they are.
func (p *printer) write(e *spool.Event) error {
	if p.only != "" && p.only != e.Stream || len(e.Bytes) == 0 {
		return nil
	}
	p.held.last = ""
	w := p.stdout
	if e.Stream == spool.Stderr {
		w = p.stderr
	}
	b := e.Bytes
	if p.timestamps {
		b = p.stamp(e)
	}
	p.goesOn(e.Stream, e.Bytes[len(e.Bytes)-1] != '\n')
	_, err := w.Write(b)
	return err
}

// block writes what is no output on lines of its own: what an exception says
// on stderr, and else on stdout.
func (p *printer) block(ctx context.Context, e *spool.Event, out render.Output) error {
	text := out.Text
	for _, image := range out.Images {
		if text != "" {
			text += "\n"
		}
		text += p.images.describe(ctx, image, p.blobs)
	}
	if text == "" && len(out.Data) > 0 {
		text = string(out.Data[0].Bytes)
	}
	if text == "" {
		return nil
	}
	stream := spool.Stdout
	if out.Failure {
		stream = spool.Stderr
	}
	if p.midline[stream] {
		text = "\n" + text
	}
	return p.write(&spool.Event{Time: e.Time, Stream: stream, Bytes: []byte(text + "\n")})
}

func (p *printer) goesOn(s spool.Stream, yes bool) {
	if p.midline == nil {
		p.midline = make(map[spool.Stream]bool)
	}
	p.midline[s] = yes
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
	var out []byte
	midline := p.midline[e.Stream]
	for line := range strings.Lines(string(e.Bytes)) {
		if !midline {
			out = e.Time.UTC().AppendFormat(out, "2006-01-02T15:04:05.000000Z ")
		}
		out = append(out, line...)
		midline = !strings.HasSuffix(line, "\n")
	}
	return out
}
