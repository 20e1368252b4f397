package render

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/narrate"
	"github.com/spool-run/spool/python"
)

// Limits of a transcript.
const (
	// DefaultMaxTranscript is the default limit of its text in bytes. Beyond it
	// a transcript keeps a head, a third of the limit, and a tail.
	DefaultMaxTranscript = 50 << 10
	// maxDataText limits the text of one JSON value.
	maxDataText = 8000
	// maxBeside is the number of displays whose images and data are kept.
	maxBeside = 100
)

// Transcript holds the last state of displayed events: an updated display
// appears once, cleared output does not appear, and of a progress bar only the
// last line remains. The zero value is ready to use.
type Transcript struct {
	Renderer
	// MaxBytes limits the text; zero means DefaultMaxTranscript.
	MaxBytes int

	blocks  []*block
	beside  []*block // blocks with images or data, oldest first
	byID    map[string]*block
	agent   *narrate.Narrator // set once an event shows that the run is an agent's
	clear   bool              // clear before the next output
	held    int               // bytes in blocks
	dropped int               // bytes already dropped
	cut     int               // blocks before this index are the head
}

// block is a stretch of output, or one display.
type block struct {
	out    Output
	id     string
	stream bool   // output, which may continue in the next event
	raw    []byte // the output; out is empty then
}

func (b *block) size() int { return len(b.out.Text) + len(b.raw) }

// Add adds an event. An error means that a blob could not be read; the
// transcript then contains a placeholder.
func (t *Transcript) Add(ctx context.Context, e *spool.Event) error {
	if e.Kind == python.KindDisplay {
		var d python.Display
		if json.Unmarshal(e.Data, &d) == nil && (d.Clear || d.ID != "") {
			return t.display(ctx, &d)
		}
	}
	if t.agent != nil || narrate.IsAgent(e) {
		t.tell(e)
		return nil
	}
	out, err := t.Event(ctx, e)
	if out.Text == "" && len(out.Images) == 0 && len(out.Data) == 0 {
		return err
	}
	if t.clear {
		t.reset()
	}
	if e.Kind == spool.KindOutput {
		if n := len(t.blocks); n > t.cut && t.blocks[n-1].stream {
			t.blocks[n-1].raw = append(t.blocks[n-1].raw, out.Text...)
			t.held += len(out.Text)
			t.shrink()
			return err
		}
		t.put(&block{stream: true, raw: []byte(out.Text)})
		return err
	}
	t.put(&block{out: out})
	return err
}

// tell adds an event of an agent's run. An action appears once, in its last
// state.
func (t *Transcript) tell(e *spool.Event) {
	if t.agent == nil {
		t.agent = narrator()
	}
	t.agent.Starts = e.Kind == agent.KindAction
	out := told(t.agent, e)
	if e.Kind == spool.KindOutput {
		out.Text = trimLineEnd(string(e.Bytes))
	}
	if out.Text == "" {
		return
	}
	id := actionID(e)
	if id != "" {
		id = "action " + id
	}
	if b := t.byID[id]; id != "" && b != nil {
		t.held += len(out.Text) - len(b.out.Text)
		b.out = out
		t.shrink()
		return
	}
	t.put(&block{out: out, id: id})
}

// display adds a display that has an id or clears.
func (t *Transcript) display(ctx context.Context, d *python.Display) error {
	if d.Clear {
		t.clear = true
		if !d.Wait {
			t.reset()
		}
		return nil
	}
	out, err := t.Display(ctx, d)
	if b := t.byID[d.ID]; d.Update && b != nil {
		t.held += len(out.Text) - len(b.out.Text)
		b.out = out
		t.keepBeside(b)
		t.shrink()
		return err
	}
	if d.Update { // the display was cleared, or is unknown
		if out.Text == "" && len(out.Images) == 0 && len(out.Data) == 0 {
			return err
		}
	}
	if t.clear {
		t.reset()
	}
	t.put(&block{out: out, id: d.ID})
	return err
}

func (t *Transcript) put(b *block) {
	if b.id != "" {
		if t.byID == nil {
			t.byID = make(map[string]*block)
		}
		t.byID[b.id] = b
	}
	t.blocks = append(t.blocks, b)
	t.held += b.size()
	t.keepBeside(b)
	t.shrink()
}

// keepBeside keeps the images and data of the last maxBeside displays.
func (t *Transcript) keepBeside(b *block) {
	if len(b.out.Images) == 0 && len(b.out.Data) == 0 || slices.Contains(t.beside, b) {
		return
	}
	t.beside = append(t.beside, b)
	if len(t.beside) > maxBeside {
		t.beside[0].out.Images, t.beside[0].out.Data = nil, nil
		t.beside = t.beside[1:]
	}
}

func (t *Transcript) reset() {
	t.blocks, t.beside, t.byID, t.clear, t.held, t.dropped, t.cut = nil, nil, nil, false, 0, 0, 0
}

func (t *Transcript) limit() int {
	if t.MaxBytes > 0 {
		return t.MaxBytes
	}
	return DefaultMaxTranscript
}

// shrink drops the middle once it is large enough, so that memory stays
// bounded.
func (t *Transcript) shrink() {
	limit := t.limit()
	if t.held < 4*limit {
		return
	}
	if t.cut == 0 { // the head stays
		size := 0
		for t.cut < len(t.blocks) && size+t.blocks[t.cut].size() <= limit/3 {
			size += t.blocks[t.cut].size()
			t.cut++
		}
		if t.cut < len(t.blocks) {
			if b := t.blocks[t.cut]; b.stream {
				first := &block{stream: true, raw: slices.Clone(b.raw[:limit/3-size])}
				b.raw = b.raw[limit/3-size:]
				t.blocks = slices.Insert(t.blocks, t.cut, first)
				t.cut++
			}
		}
	}
	// Keep the tail of the rest.
	tail := t.blocks[t.cut:]
	size := 0
	for _, b := range tail {
		size += b.size()
	}
	for len(tail) > 0 && size > limit {
		b := tail[0]
		n := b.size()
		if b.stream && size-n < limit {
			n = size - limit
			b.raw = slices.Clone(b.raw[n:])
		} else {
			delete(t.byID, b.id)
			tail = tail[1:]
		}
		size -= n
		t.held -= n
		t.dropped += n
	}
	t.blocks = append(t.blocks[:t.cut:t.cut], tail...)
}

// Text returns the text without escape sequences. It names the number of bytes
// dropped in the middle.
func (t *Transcript) Text() string {
	var head, tail strings.Builder
	images := len(t.Images())
	for i, b := range t.blocks {
		w := &tail
		if i < t.cut {
			w = &head
		}
		writeBlock(w, b)
	}
	text := plain(head.String() + tail.String())
	switch {
	case strings.TrimSpace(text) == "" && images == 1:
		return "[1 image]\n"
	case strings.TrimSpace(text) == "" && images > 1:
		return fmt.Sprintf("[%d images]\n", images)
	case t.dropped == 0 && len(text) <= t.limit():
		return text
	}
	first, last := plain(head.String()), plain(tail.String())
	if t.dropped == 0 {
		first, last = text, ""
	}
	return elide(first, last, t.limit(), t.dropped)
}

// writeBlock writes one block on its own lines.
func writeBlock(w *strings.Builder, b *block) {
	if b.stream {
		w.Write(b.raw)
		return
	}
	text := b.out.Text
	if text == "" && len(b.out.Data) > 0 && b.out.Data[0].Blob == nil {
		text = string(b.out.Data[0].Bytes)
		if len(text) > maxDataText {
			text, _ = head(text, maxDataText, int64(len(text)))
		}
	}
	if text == "" {
		return
	}
	if s := w.String(); s != "" && !strings.HasSuffix(s, "\n") {
		w.WriteByte('\n')
	}
	if b.out.Aside {
		text = "[" + text + "]"
	}
	w.WriteString(text + "\n")
}

// Images returns the images of the last displays, up to a limit.
func (t *Transcript) Images() []Value {
	var all []Value
	for _, b := range t.beside {
		all = append(all, b.out.Images...)
	}
	return all
}

// Data returns the JSON values of the last displays, up to a limit.
func (t *Transcript) Data() []Value {
	var all []Value
	for _, b := range t.beside {
		all = append(all, b.out.Data...)
	}
	return all
}
