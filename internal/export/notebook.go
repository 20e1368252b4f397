package export

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
)

// notebook writes a notebook, cell by cell as the turns of the log come.
type notebook struct {
	w       *bufio.Writer
	log     *log
	survey  *survey
	waiting []waitingCell // whose turns have not begun
	cells   int
	turn    spool.Seq // of the cell that is open
	open    bool
	outputs int          // of the open cell
	stream  spool.Stream // of the text that is open; empty without
	text    jsonText
	count   map[spool.Seq]int // numbers of cells, by turn
}

func writeNotebook(ctx context.Context, w *bufio.Writer, l *log) error {
	survey, err := surveyOf(ctx, l)
	if err != nil {
		return err
	}
	n := &notebook{w: w, log: l, survey: survey, text: jsonText{w: w}, count: make(map[spool.Seq]int)}
	// The number of a cell is before its output in the file, and after it in the log.
	if err := l.each(ctx, func(e *spool.Event) error {
		var d spool.Done
		if e.Kind == spool.KindDone && json.Unmarshal(e.Data, &d) == nil && d.ExecutionCount > 0 && len(n.count) < keptDisplays {
			n.count[e.Turn] = d.ExecutionCount
		}
		return nil
	}); err != nil {
		return err
	}
	n.put(`{"cells":[`)
	if err := l.each(ctx, func(e *spool.Event) error { return n.event(ctx, e) }); err != nil {
		return err
	}
	for len(n.waiting) > 0 {
		n.begin(n.waiting[0].turn)
	}
	n.end()
	n.put(`
],"metadata":{"kernelspec":{"display_name":"Python 3","language":"python","name":"python3"},"language_info":{"name":"python"}},"nbformat":4,"nbformat_minor":5}
`)
	return nil
}

func (n *notebook) put(format string, args ...any) { _, _ = fmt.Fprintf(n.w, format, args...) } // errors show at the end

func (n *notebook) event(ctx context.Context, e *spool.Event) error {
	switch e.Kind {
	case spool.KindInput:
		var s spool.Said
		var c spool.Cell
		if json.Unmarshal(e.Data, &s) == nil && s.Kind == spool.InputCell && json.Unmarshal(s.Data, &c) == nil {
			n.waiting = append(n.waiting, waitingCell{e.Seq, code(&c)})
		}
		return nil
	case spool.KindDone:
		n.begin(e.Turn)
		n.end()
		return nil
	case spool.KindOutput:
		if !n.survey.gone(e) {
			n.output(e)
		}
		return nil
	case python.KindDisplay, python.KindResult:
		shown, err := n.survey.shown(ctx, n.log, e)
		if err != nil || shown == nil {
			return err
		}
		n.begin(e.Turn)
		return n.display(ctx, shown)
	case python.KindException:
		n.begin(e.Turn)
		n.exception(e)
	}
	return nil
}

// begin makes the cell of a turn the open one. Output outside of turns is in a cell
// without code.
func (n *notebook) begin(turn spool.Seq) {
	if n.open && n.turn == turn {
		return
	}
	n.end()
	source := ""
	if i := slices.IndexFunc(n.waiting, func(c waitingCell) bool { return c.turn == turn }); i >= 0 {
		source = n.waiting[i].code
		n.waiting = slices.Delete(n.waiting, i, i+1)
	}
	if n.cells > 0 {
		n.put(",")
	}
	n.cells++
	n.put("\n{\"cell_type\":\"code\",\"id\":\"cell-%d\",\"metadata\":{},\"source\":%s,\"execution_count\":%s,\"outputs\":[", n.cells, quote(source), n.number(turn))
	n.open, n.turn, n.outputs = true, turn, 0
}

// number is the number of a cell, as JSON.
func (n *notebook) number(turn spool.Seq) string {
	if count := n.count[turn]; count > 0 {
		return fmt.Sprint(count)
	}
	return "null"
}

func (n *notebook) end() {
	if n.open {
		n.endText()
		n.put("]}")
		n.open = false
	}
}

// next begins another output of the cell.
func (n *notebook) next() {
	n.endText()
	if n.outputs > 0 {
		n.put(",")
	}
	n.outputs++
	n.put("\n")
}

// output adds text, which goes on in the next event of the same stream.
func (n *notebook) output(e *spool.Event) {
	n.begin(e.Turn)
	if n.stream != e.Stream {
		n.next()
		name := "stdout"
		if e.Stream == spool.Stderr {
			name = "stderr"
		}
		n.put(`{"output_type":"stream","name":"%s","text":"`, name)
		n.stream = e.Stream
	}
	_, _ = n.text.Write(e.Bytes) // errors show at the end
}

func (n *notebook) endText() {
	if n.stream != "" {
		n.text.flush()
		n.put(`"}`)
		n.stream = ""
	}
}

func (n *notebook) exception(e *spool.Event) {
	var x python.Exception
	if json.Unmarshal(e.Data, &x) != nil {
		return
	}
	n.next()
	var lines []string
	if x.Traceback != "" {
		lines = strings.Split(strings.TrimRight(x.Traceback, "\n"), "\n")
	}
	b, _ := json.Marshal(append([]string{}, lines...)) // strings always encode
	n.put(`{"output_type":"error","ename":%s,"evalue":%s,"traceback":%s}`, quote(x.Name), quote(x.Message), b)
}

// display adds a display or a result with all its forms.
func (n *notebook) display(ctx context.Context, e *spool.Event) error {
	var d python.Display
	if json.Unmarshal(e.Data, &d) != nil {
		return nil
	}
	delete(d.Bundle, python.MIMEStatus)
	if len(d.Bundle) == 0 {
		return nil
	}
	n.next()
	if e.Kind == python.KindResult {
		n.put(`{"output_type":"execute_result","execution_count":%s,`, n.number(n.turn))
	} else {
		n.put(`{"output_type":"display_data",`)
	}
	metadata, err := json.Marshal(d.Metadata)
	if err != nil || d.Metadata == nil {
		metadata = []byte("{}")
	}
	n.put(`"metadata":%s,"data":{`, metadata)
	names := make([]string, 0, len(d.Bundle))
	for name := range d.Bundle {
		names = append(names, name)
	}
	sort.Strings(names)
	for i, name := range names {
		if i > 0 {
			n.put(",")
		}
		n.put("%s:", quote(name))
		if err := n.form(ctx, name, d.Bundle[name]); err != nil {
			return err
		}
	}
	n.put("}}")
	return nil
}

// form writes one form of a display: a string, or JSON for a type of JSON.
func (n *notebook) form(ctx context.Context, name string, value json.RawMessage) error {
	var blob spool.Blob
	if json.Unmarshal(value, &blob) != nil || blob.Digest == "" {
		_, err := n.w.Write(value)
		return err
	}
	src, err := n.log.run.Blob(ctx, blob.Digest)
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		n.put("%s", quote(fmt.Sprintf("[%s of %d bytes, which cannot be read]", name, blob.Size)))
		return nil
	}
	defer src.Close()
	if name == "application/json" || strings.HasSuffix(name, "+json") {
		_, err := io.Copy(n.w, src)
		return err
	}
	n.put(`"`)
	if strings.HasPrefix(name, "text/") || name == "image/svg+xml" || name == "application/javascript" {
		_, err = io.Copy(&n.text, src)
		n.text.flush()
	} else {
		e := base64.NewEncoder(base64.StdEncoding, n.w)
		if _, err = io.Copy(e, src); err == nil {
			err = e.Close()
		}
	}
	n.put(`"`)
	return err
}

// quote returns a string as JSON.
func quote(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string always encodes
	return strings.TrimSuffix(b.String(), "\n")
}

// jsonText writes the inside of a JSON string, piece by piece. Bytes that are not UTF-8
// become replacement characters.
type jsonText struct {
	w    *bufio.Writer
	rest []byte // the beginning of a character
}

func (t *jsonText) Write(p []byte) (int, error) {
	b := p
	if len(t.rest) > 0 {
		b = append(t.rest, p...)
	}
	n := whole(b)
	_, err := t.w.WriteString(inner(b[:n]))
	t.rest = bytes.Clone(b[n:])
	return len(p), err
}

func (t *jsonText) flush() {
	_, _ = t.w.WriteString(inner(t.rest)) // errors show at the end
	t.rest = nil
}

// inner is a JSON string without its quotes.
func inner(b []byte) string {
	s := quote(string(b))
	return s[1 : len(s)-1]
}
