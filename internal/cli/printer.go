package cli

import (
	"context"
	"io"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
	"github.com/spool-run/spool/render"
)

// printer writes the events of a run: output unchanged, other events as text
// from package render on their own lines; or all events as JSON.
type printer struct {
	stdout, stderr io.Writer
	json           bool
	only           spool.Stream // if set, print only this stream
	timestamps     bool
	eol            string // end of the lines of spool; "\r\n" on a raw terminal
	blobs          render.Blobs
	images         *imageFiles // saves images; nil only describes them
	// inline shows an image on the terminal and reports whether it did; it may be
	// nil.
	inline  func(mime string, data []byte) bool
	rows    int  // rows of the terminal; zero without one
	colour  bool // of tracebacks and of agents
	isAgent bool // the run is an agent's, whatever its events
	live    bool // tell when actions of an agent start
	verbose bool // tell everything about an agent

	buffer  []byte                // buffer for JSON, reused
	midline map[spool.Stream]bool // whether the last line of a stream has no end yet
	held    updates
	agent   *narrator // set once an event shows that the run is an agent's
}

// print writes one event. Its error is that of the write.
func (p *printer) print(ctx context.Context, e *spool.Event) error {
	if p.json {
		p.buffer = append(e.AppendJSON(p.buffer[:0]), '\n')
		_, err := p.stdout.Write(p.buffer)
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
	if err != nil { // the message replaces the text
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

// write writes the bytes of an output event unchanged.
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
	if p.colour && e.Stream == spool.Stderr && isTraceback(b) { // of a sandbox, which writes it by itself
		b = []byte(colourTraceback(string(b)))
	}
	p.setMidline(e.Stream, e.Bytes[len(e.Bytes)-1] != '\n')
	_, err := w.Write(b)
	return err
}

// block writes a rendered event on its own lines: exceptions to stderr, others
// to stdout.
func (p *printer) block(ctx context.Context, e *spool.Event, out render.Output) error {
	text := out.Text
	for _, image := range out.Images {
		if p.inline != nil {
			if err := p.line(e, out, text); err != nil {
				return err
			}
			text = ""
			if p.show(ctx, image) && (p.images == nil || p.images.dir == "") {
				continue
			}
		}
		if text != "" {
			text += "\n"
		}
		text += p.images.describe(ctx, image, p.blobs)
	}
	if text == "" && len(out.Data) > 0 {
		text = string(out.Data[0].Bytes)
	}
	return p.line(e, out, text)
}

// line writes the text of a rendered event on lines of its own.
func (p *printer) line(e *spool.Event, out render.Output, text string) error {
	if text == "" {
		return nil
	}
	stream := spool.Stdout
	if out.Failure {
		stream = spool.Stderr
	}
	if p.colour && e.Kind == python.KindException {
		text = colourTraceback(text)
	}
	if p.midline[stream] {
		text = "\n" + text
	}
	return p.write(&spool.Event{Time: e.Time, Stream: stream, Bytes: []byte(text + "\n")})
}

// show shows an image on the terminal, if that can. Its rows are not known, so that
// no later state replaces it.
func (p *printer) show(ctx context.Context, v render.Value) bool {
	if p.inline == nil || v.Size() > maxPictureBytes {
		return false
	}
	from, err := v.Open(ctx, p.blobs)
	if err != nil {
		return false
	}
	defer from.Close()
	data, err := io.ReadAll(io.LimitReader(from, maxPictureBytes))
	if err != nil || !p.inline(v.MIME, data) {
		return false
	}
	p.held.pictured = true
	return true
}

func (p *printer) setMidline(s spool.Stream, yes bool) {
	if p.midline == nil {
		p.midline = make(map[spool.Stream]bool)
	}
	p.midline[s] = yes
}

// say writes a message of spool to stderr.
func (p *printer) say(text string) error {
	eol := p.eol
	if eol == "" {
		eol = "\n"
	}
	_, err := io.WriteString(p.stderr, "spool: "+text+eol)
	return err
}

// stamp returns the bytes of an event with its time before every line that
// begins in the event.
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
