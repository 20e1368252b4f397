package render_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
	"github.com/spool-run/spool/render"
)

func transcript(t *testing.T, limit int, events ...*spool.Event) *render.Transcript {
	t.Helper()
	tr := &render.Transcript{MaxBytes: limit}
	for _, e := range events {
		if err := tr.Add(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	return tr
}

func named(id, text string, update bool) *spool.Event {
	raw, _ := json.Marshal(text)
	return event(python.KindDisplay, python.Display{Bundle: map[string]json.RawMessage{"text/plain": raw}, ID: id, Update: update})
}

func TestTranscript(t *testing.T) {
	tests := []struct {
		name   string
		events []*spool.Event
		want   string
	}{
		{"output and results", []*spool.Event{output("a"), output("b\n"), event(python.KindResult, python.Display{Bundle: map[string]json.RawMessage{"text/plain": json.RawMessage(`"3"`)}})}, "ab\n3\n"},
		{"a display begins a line", []*spool.Event{output("a"), shown("text/plain", `"d"`), output("b")}, "a\nd\nb"},
		{"a character in two events", []*spool.Event{output("\xc3"), output("\xa4\n")}, "ä\n"},
		{"an update replaces a display", []*spool.Event{named("p", "0%", false), output("x\n"), named("p", "100%", true)}, "100%\nx\n"},
		{"an update of an unknown display is shown", []*spool.Event{named("p", "100%", true)}, "100%\n"},
		{"clear", []*spool.Event{output("a\n"), event(python.KindDisplay, python.Display{Clear: true}), output("b\n")}, "b\n"},
		{"clear waits", []*spool.Event{output("a\n"), event(python.KindDisplay, python.Display{Clear: true, Wait: true})}, "a\n"},
		{"clear waited", []*spool.Event{output("a\n"), event(python.KindDisplay, python.Display{Clear: true, Wait: true}), output("b\n")}, "b\n"},
		{"progress", []*spool.Event{output("  1%\r 50%\r100%\nend\n")}, "100%\nend\n"},
		{"a shorter line over a longer one", []*spool.Event{output("abcdef\rxy")}, "xycdef"},
		{"line ends of a terminal", []*spool.Event{output("a\r\nb\r\n")}, "a\nb\n"},
		{"colours", []*spool.Event{output("\x1b[1;31mred\x1b[0m \x1b]8;;http://x\x07link\x1b]8;;\x07\n")}, "red link\n"},
		{"bytes that are not UTF-8", []*spool.Event{output("a\xff\xfeb\n")}, "a\uFFFDb\n"},
		{"one image", []*spool.Event{shown("image/png", `"cG5n"`)}, "[1 image]\n"},
		{"two images", []*spool.Event{shown("image/png", `"cG5n"`), shown("image/png", `"cG5n"`)}, "[2 images]\n"},
		{"data without text", []*spool.Event{shown("application/json", `[1,2]`)}, "[1,2]\n"},
		{"asides", []*spool.Event{event(spool.KindDone, spool.Done{Outcome: spool.TurnTimeout})}, "[timeout]\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := transcript(t, 0, tt.events...).Text(); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

func TestTranscriptKeepsHeadAndTail(t *testing.T) {
	const limit = 3000
	for _, size := range []int{1, 7, 1000, 100_000} { // of an event
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			var all strings.Builder
			for i := range 20_000 {
				fmt.Fprintf(&all, "line %d\n", i)
			}
			tr := &render.Transcript{MaxBytes: limit}
			for rest := all.String(); rest != ""; {
				n := min(size, len(rest))
				if err := tr.Add(t.Context(), output(rest[:n])); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			got := tr.Text()
			if len(got) > limit+100 || !strings.HasPrefix(got, "line 0\nline 1\n") || !strings.HasSuffix(got, "line 19998\nline 19999\n") {
				t.Errorf("%d bytes: %.40q … %q", len(got), got, got[max(0, len(got)-40):])
			}
			head, rest, ok := strings.Cut(got, "\n[")
			var lost int
			if _, err := fmt.Sscanf(rest, "%d bytes left out]", &lost); err != nil || !ok {
				t.Fatalf("the number of dropped bytes is not shown: %q", got)
			}
			_, tail, _ := strings.Cut(rest, "left out]\n")
			if sum := len(head) + lost + len(tail); sum < all.Len()-2 || sum > all.Len() {
				t.Errorf("%d of %d bytes are accounted for", sum, all.Len())
			}
		})
	}
}

func TestTranscriptOfManyUpdates(t *testing.T) {
	tr := transcript(t, 0, named("p", "begin", false))
	for i := range 10_000 {
		if err := tr.Add(t.Context(), named("p", fmt.Sprint(i), true)); err != nil {
			t.Fatal(err)
		}
	}
	if got := tr.Text(); got != "9999\n" {
		t.Errorf("%q", got)
	}
}

func TestTranscriptBoundsImages(t *testing.T) {
	tr := transcript(t, 0)
	for range 1000 {
		if err := tr.Add(t.Context(), shown("image/png", `"cG5n"`, "application/json", `1`)); err != nil {
			t.Fatal(err)
		}
	}
	if i, d := len(tr.Images()), len(tr.Data()); i != 100 || d != 100 {
		t.Errorf("%d images and %d values", i, d)
	}
}
