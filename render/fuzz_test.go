package render_test

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
	"github.com/spool-run/spool/render"
)

// FuzzEvent checks that any event can be rendered, within the limits of a
// transcript.
func FuzzEvent(f *testing.F) {
	f.Add("display", `{"text/html":"<b>a</b>","image/png":"AA==","application/json":[NaN]}`)
	f.Add("display", `{"text/html":"<table><tr><td colspan=99999999>x<td rowspan=9999999>y</table>"}`)
	f.Add("exception", `{"name":"E"}`)
	f.Add("done", `{"outcome":"killed"}`)
	f.Fuzz(func(t *testing.T, kind, data string) {
		e := &spool.Event{Kind: spool.Kind(kind), Data: []byte(data)}
		if _, err := (render.Renderer{}).Event(t.Context(), e); err != nil {
			t.Errorf("no blob was read, but: %v", err)
		}
		tr := render.Transcript{MaxBytes: 100}
		_ = tr.Add(t.Context(), e)
		if n := len(tr.Text()); n > 200 {
			t.Errorf("%d bytes of text", n)
		}
	})
}

// FuzzTranscript checks that the text of any output is valid UTF-8 without
// escape sequences, and within its limit.
func FuzzTranscript(f *testing.F) {
	f.Add([]byte("10%\r100%\x00\x1b[31mred\x1b[0m\x00\x1b]0;title\x07done\n"), byte(0))
	f.Add([]byte("a\x1b\x1b[mcb\x1b"), byte(1))
	f.Add([]byte("\xff\xfe\x00\x1bP\x1b\\"), byte(2))
	f.Add(bytes.Repeat([]byte("line\n"), 300), byte(3))
	const limit = 100
	f.Fuzz(func(t *testing.T, output []byte, every byte) {
		tr := render.Transcript{MaxBytes: limit}
		for i, chunk := range bytes.Split(output, []byte{0}) {
			e := &spool.Event{Kind: spool.KindOutput, Stream: spool.Stdout, Bytes: chunk}
			if every > 0 && i%int(every) == 0 {
				e = event(python.KindDisplay, map[string]any{"text/plain": string(chunk), "id": string(chunk[:min(1, len(chunk))])})
			}
			if err := tr.Add(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
		text := tr.Text()
		if len(text) > limit+len("\n[99999999 bytes left out]\n") {
			t.Errorf("%d bytes of text", len(text))
		}
		if !utf8.ValidString(text) || strings.Contains(text, "\x1b") {
			t.Errorf("not plain text: %q", text)
		}
	})
}
