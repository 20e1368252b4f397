package export

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/narrate"
	"github.com/spool-run/spool/internal/visible"
	"github.com/spool-run/spool/python"
	"github.com/spool-run/spool/render"
)

// document is a file for a person. Its methods add to it, in the order of the log.
// Errors of writing show when it is flushed.
type document interface {
	begin(title string, facts [][2]string)
	cell(code string)    // code that was run
	prompt(text string)  // what was said to an agent
	message(text string) // Markdown: what an agent said, or a display
	output(text string)  // what a program wrote: whole lines
	note(text string)    // what happened
	failure(text string) // an exception
	details(text string) // of the note before, such as the output of an action
	image(mime string, src io.Reader) error
	end(text string)
}

// imageBytes is the size of the largest image that becomes a part of a document.
const imageBytes = 32 << 20

// teller tells a log to a document.
type teller struct {
	log      *log
	doc      document
	renderer render.Renderer
	survey   *survey
	waiting  []waitingCell // whose turns have not begun
	agent    *narrate.Narrator
	lines    map[spool.Stream]*line
	order    []*line // of those with an unfinished line
}

// tell writes what a person reads of a log.
func tell(ctx context.Context, l *log, doc document) error {
	survey, err := surveyOf(ctx, l)
	if err != nil {
		return err
	}
	t := &teller{log: l, doc: doc, renderer: render.Renderer{Blobs: l.run}, survey: survey, lines: make(map[spool.Stream]*line)}
	if l.info.Engine == agent.Engine {
		t.agent = &narrate.Narrator{Asks: true, Verbose: true, Answer: narrate.AnswerNone}
	}
	doc.begin(title(&l.info), facts(&l.info))
	if err := l.each(ctx, func(e *spool.Event) error { return t.event(ctx, e) }); err != nil {
		return err
	}
	t.flush()
	for _, c := range t.waiting {
		doc.cell(c.code)
	}
	doc.end(ending(&l.info))
	return nil
}

// title is what the run is called.
func title(info *spool.Info) string {
	switch {
	case info.Name != "":
		return visible.Line(info.Name)
	case len(info.Argv) > 0:
		return visible.Short(strings.Join(info.Argv, " "), 100)
	}
	return info.Engine + " " + string(info.ID)
}

// facts are what the head of a document says about the run.
func facts(info *spool.Info) [][2]string {
	all := [][2]string{{"run", string(info.ID)}, {"engine", info.Engine}}
	if len(info.Argv) > 0 {
		all = append(all, [2]string{"command", visible.Short(strings.Join(info.Argv, " "), 500)})
	}
	if info.Cwd != "" {
		all = append(all, [2]string{"directory", visible.Line(info.Cwd)})
	}
	all = append(all, [2]string{"began", info.Created.UTC().Format(time.RFC3339)})
	if !info.Ended.IsZero() {
		all = append(all, [2]string{"took", info.Ended.Sub(info.Created).Round(time.Millisecond).String()})
	}
	return all
}

// ending is how the run ended.
func ending(info *spool.Info) string {
	if info.Outcome == nil {
		return "the run goes on"
	}
	return visible.Line(info.Outcome.String())
}

func (t *teller) event(ctx context.Context, e *spool.Event) error {
	t.begin(e.Turn)
	if e.Kind == spool.KindOutput {
		if !t.survey.gone(e) {
			t.output(e)
		}
		return nil
	}
	shown, err := t.survey.shown(ctx, t.log, e)
	if err != nil || shown == nil {
		return err
	}
	switch e = shown; e.Kind {
	case spool.KindInput:
		t.input(e)
	case python.KindDisplay, python.KindResult, python.KindException:
		return t.display(ctx, e)
	case agent.KindMessage:
		t.message(e)
	case spool.KindTruncated:
		t.flush()
		t.doc.note(missing(e))
	default:
		t.other(ctx, e)
	}
	return nil
}

func (t *teller) input(e *spool.Event) {
	var s spool.Said
	if json.Unmarshal(e.Data, &s) != nil {
		return
	}
	var c spool.Cell
	var p spool.Prompt
	switch {
	case s.Kind == spool.InputCell && json.Unmarshal(s.Data, &c) == nil:
		t.waiting = append(t.waiting, waitingCell{e.Seq, code(&c)})
	case s.Kind == spool.InputPrompt && json.Unmarshal(s.Data, &p) == nil:
		t.flush()
		t.doc.prompt(narrate.PromptText(&p))
		t.narrate(e) // which remembers when the turn began
	default:
		t.narrate(e)
	}
}

// begin adds the cell of a turn once something happens in it: it may have waited for
// others.
func (t *teller) begin(turn spool.Seq) {
	i := slices.IndexFunc(t.waiting, func(c waitingCell) bool { return c.turn == turn })
	if i < 0 {
		return
	}
	t.flush()
	t.doc.cell(t.waiting[i].code)
	t.waiting = slices.Delete(t.waiting, i, i+1)
}

// waitingCell is a cell that was sent, and whose turn has not begun.
type waitingCell struct {
	turn spool.Seq
	code string
}

// code is the code of a cell.
func code(c *spool.Cell) string {
	if c.Module != "" {
		return fmt.Sprintf("# python -m %s", c.Module)
	}
	return c.Code
}

func (t *teller) message(e *spool.Event) {
	var m agent.Message
	if json.Unmarshal(e.Data, &m) != nil || m.Delta || m.History || m.Text == "" {
		return
	}
	t.flush()
	body := m.Text
	if m.Blob != nil {
		body += fmt.Sprintf("\n… %d more bytes", m.Blob.Size-int64(len(m.Text)))
	}
	t.doc.message(visible.Text(body))
}

// display adds a display, a result or an exception.
func (t *teller) display(ctx context.Context, e *spool.Event) error {
	out, err := t.renderer.Event(ctx, e) // an error leaves a placeholder
	if err != nil && ctx.Err() != nil {
		return err
	}
	t.flush()
	body := visible.Text(out.Text)
	switch {
	case body == "":
	case out.Failure:
		t.doc.failure(body)
	case out.Markdown:
		t.doc.message(body)
	case out.Aside:
		t.doc.note(body)
	default:
		t.doc.output(body + "\n")
	}
	for _, v := range out.Images {
		if v.Size() > imageBytes {
			t.doc.note(fmt.Sprintf("%s of %d bytes", v.MIME, v.Size()))
			continue
		}
		src, err := v.Open(ctx, t.log.run)
		if err != nil {
			t.doc.note(fmt.Sprintf("%s of %d bytes, which cannot be read", v.MIME, v.Size()))
			continue
		}
		err = t.doc.image(v.MIME, src)
		_ = src.Close() // it was only read
		if err != nil {
			return err
		}
	}
	return nil
}

// other adds what is told in words.
func (t *teller) other(ctx context.Context, e *spool.Event) {
	if t.agent == nil {
		out, _ := t.renderer.Event(ctx, e) // of which none has a blob
		if out.Text != "" {
			t.flush()
			t.doc.note(visible.Text(out.Text))
		}
		return
	}
	t.narrate(e)
}

// narrate adds an event of an agent as the command line tells it.
func (t *teller) narrate(e *spool.Event) {
	if t.agent == nil {
		return
	}
	var all []string
	for _, said := range t.agent.Event(e) {
		all = append(all, said.Text)
	}
	if len(all) == 0 {
		return
	}
	t.flush()
	first, rest, more := strings.Cut(strings.Join(all, "\n"), "\n")
	t.doc.note(first)
	if more {
		t.doc.details(rest)
	}
}

// lineBytes is how many bytes of a line are put together before they are written.
const lineBytes = 64 << 10

// line is the unfinished line of a stream.
type line struct {
	b        []byte
	returned bool // a carriage return came last
}

// output adds the lines that an event finishes. Of a line that was written over, as
// progress bars do, the last state remains.
func (t *teller) output(e *spool.Event) {
	l := t.lines[e.Stream]
	if l == nil {
		l = new(line)
		t.lines[e.Stream] = l
		t.order = append(t.order, l)
	}
	var done []byte
	for _, c := range e.Bytes {
		switch {
		case c == '\n':
			done = append(append(done, l.take()...), '\n')
			continue
		case c == '\r':
			l.returned = true
			continue
		case l.returned:
			l.b, l.returned = l.b[:0], false
		}
		if l.b = append(l.b, c); len(l.b) >= lineBytes {
			done = append(done, l.take()...)
		}
	}
	if len(done) > 0 {
		t.doc.output(string(done))
	}
}

// take returns the line as text and forgets it.
func (l *line) take() string {
	shown := strings.ToValidUTF8(visible.Unstyled(string(l.b)), "\uFFFD")
	l.b, l.returned = l.b[:0], false
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || r == 0x7f {
			return -1
		}
		return r
	}, shown)
}

// flush adds unfinished lines, before something else is added.
func (t *teller) flush() {
	for _, l := range t.order {
		if s := l.take(); s != "" {
			t.doc.output(s + "\n")
		}
	}
}
