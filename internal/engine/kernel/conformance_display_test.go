//go:build linux

package kernel_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image/png"
	"io"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine/kernel"
	"github.com/spool-run/spool/internal/pytest"
	"github.com/spool-run/spool/python"
	"github.com/spool-run/spool/render"
)

// scientific is a kernel with the packages that people use.
func scientific(t *testing.T, options ...option) *session {
	t.Helper()
	l := sharedLab(t)
	l.interpreter = pytest.Python(t)
	return l.start(t, options...)
}

// value returns the bytes of one form of a display, wherever they are.
func value(t *testing.T, s *session, d python.Display, mime string) []byte {
	t.Helper()
	raw, ok := d.Bundle[mime]
	if !ok {
		t.Fatalf("the display has no %s: %v", mime, d.Bundle)
	}
	var blob spool.Blob
	if json.Unmarshal(raw, &blob) == nil && blob.Digest != "" {
		f, err := s.run.Blob(s.ctx, blob.Digest)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		b, err := io.ReadAll(f)
		if err != nil || int64(len(b)) != blob.Size {
			t.Fatalf("%d bytes of %d, %v", len(b), blob.Size, err)
		}
		return b
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(mime, "text/") {
		return []byte(text)
	}
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func wantPNG(t *testing.T, s *session, d python.Display) {
	t.Helper()
	if _, err := png.Decode(bytes.NewReader(value(t, s, d, "image/png"))); err != nil {
		t.Error(err)
	}
}

func TestDisplayCarriesEveryForm(t *testing.T) {
	s := one(t)
	c := s.ok(`
class Rich:
    def _repr_html_(self): return "<b>h</b>"
    def _repr_markdown_(self): return "**m**"
    def _repr_svg_(self): return "<svg/>"
    def _repr_latex_(self): return "$x$"
    def _repr_json_(self): return {"a": [1, 2]}
    def _repr_png_(self): return b"\x89PNG..."
    def __repr__(self): return "plain"
display(Rich())`)
	d := c.displays()[0]
	for mime, want := range map[string]string{"text/html": "<b>h</b>", "text/markdown": "**m**", "image/svg+xml": "<svg/>", "text/latex": "$x$", "text/plain": "plain"} {
		var got string
		if err := json.Unmarshal(d.Bundle[mime], &got); err != nil || got != want {
			t.Errorf("%s: %s", mime, d.Bundle[mime])
		}
	}
	if got := string(d.Bundle["application/json"]); got != `{"a":[1,2]}` {
		t.Errorf("JSON %s", got)
	}
	if got := value(t, s, d, "image/png"); string(got) != "\x89PNG..." {
		t.Errorf("png %q", got)
	}
	out, err := render.Renderer{}.Display(t.Context(), &d)
	if err != nil || out.Text != "**m**" || len(out.Images) != 1 || len(out.Data) != 1 {
		t.Errorf("rendered %+v, %v", out, err)
	}
}

func TestDisplayMimebundle(t *testing.T) {
	s := one(t)
	c := s.ok(`
class Bundle:
    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"text/plain": "p", "text/html": "h"}, {"text/html": {"isolated": True}}
Bundle()`)
	d := c.shown(python.KindResult)[0]
	if plainText(t, d) != "p" || string(d.Metadata["text/html"]) != `{"isolated":true}` {
		t.Errorf("%s", c)
	}
	c = s.ok(`display({"text/plain": "raw"}, raw=True)`)
	if plainText(t, c.displays()[0]) != "raw" {
		t.Errorf("%s", c)
	}
}

func TestDisplayOfContainersIsData(t *testing.T) {
	c := one(t).ok("display({'a': (1, None, True)})")
	if got := string(c.displays()[0].Bundle["application/json"]); got != `{"a":[1,null,true]}` {
		t.Errorf("%s", c)
	}
}

func TestDisplayUpdateAndClear(t *testing.T) {
	s := one(t)
	c := s.ok(`
h = display("one", display_id="p")
h.update("two")
update_display("three", display_id="p")
clear_output()
clear_output(wait=True)
made = display("x", display_id=True)`)
	var got []string
	var tr render.Transcript
	for _, e := range c.events {
		if err := tr.Add(t.Context(), &e); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range c.displays() {
		got = append(got, fmt.Sprintf("%s %v %v %v", d.ID, d.Update, d.Clear, d.Wait))
	}
	if len(got) != 6 || got[0] != "p false false false" || got[2] != "p true false false" || got[3] != " false true false" || got[4] != " false true true" || !strings.HasSuffix(got[5], "false false false") {
		t.Errorf("%q", got)
	}
	if tr.Text() != "'x'\n" && tr.Text() != "x\n" {
		t.Errorf("the last state is %q", tr.Text())
	}
	// An update from a later cell.
	d := s.ok("h.update('four')").displays()[0]
	if d.ID != "p" || !d.Update {
		t.Errorf("%+v", d)
	}
}

func TestLargeValuesBecomeBlobs(t *testing.T) {
	s := one(t)
	c := s.ok("'x' * 1_000_000")
	d := c.shown(python.KindResult)[0]
	if len(d.Bundle["text/plain"]) > kernel.InlineBytes {
		t.Errorf("%d bytes are in the log", len(d.Bundle["text/plain"]))
	}
	if b := value(t, s, d, "text/plain"); len(b) != 1_000_002 {
		t.Errorf("%d bytes", len(b))
	}
	out, err := render.Renderer{Blobs: s.run, MaxText: 2 << 20}.Display(t.Context(), &d)
	if err != nil || len(out.Text) != 1_000_002 {
		t.Errorf("%d bytes rendered, %v", len(out.Text), err)
	}
}

func TestStatusEventsHaveNoText(t *testing.T) {
	s := one(t)
	c := s.ok("%cd /")
	found := false
	for _, e := range c.events {
		if e.Kind != python.KindDisplay || !strings.Contains(string(e.Data), python.MIMEStatus) {
			continue
		}
		found = true
		if out, err := (render.Renderer{}).Event(t.Context(), &e); err != nil || out.Text != "" {
			t.Errorf("%+v, %v", out, err)
		}
	}
	if !found {
		t.Errorf("%%cd tells no program what it did: %s", c)
	}
}

func TestPillowImages(t *testing.T) {
	s := scientific(t)
	c := s.ok("from PIL import Image\nImage.new('RGB', (8, 8), 'red')")
	wantPNG(t, s, c.shown(python.KindResult)[0])
	c = s.ok("display(Image.new('L', (3, 3)))")
	wantPNG(t, s, c.displays()[0])
}

func TestPandasTables(t *testing.T) {
	s := scientific(t)
	d := s.ok("import pandas as pd\npd.DataFrame({'a': [1, 2]})").shown(python.KindResult)[0]
	if !strings.Contains(string(value(t, s, d, "text/html")), "<table") || !strings.Contains(plainText(t, d), "a\n0  1") {
		t.Errorf("%v", d.Bundle)
	}
	out, err := render.Renderer{}.Display(t.Context(), &d)
	if err != nil || !strings.Contains(out.Text, "0  1") {
		t.Errorf("%+v, %v", out, err)
	}
}

func TestFiguresAreShownOnce(t *testing.T) {
	s := scientific(t)
	images := func(c *cell) (n int) {
		t.Helper()
		for _, d := range append(c.displays(), c.shown(python.KindResult)...) {
			if _, ok := d.Bundle["image/png"]; ok {
				wantPNG(t, s, d)
				n++
			}
		}
		return n
	}
	s.ok("import matplotlib.pyplot as plt")
	for name, code := range map[string]string{
		"at the end":       "plt.plot([1, 2]);",
		"by show":          "plt.plot([1, 2]); plt.show()",
		"by display":       "fig, ax = plt.subplots(); ax.plot([1]); display(fig)",
		"as a result":      "fig, ax = plt.subplots(); ax.plot([1]); fig",
		"displayed closed": "fig, ax = plt.subplots(); plt.close(fig); display(fig)",
	} {
		if n := images(s.ok(code)); n != 1 {
			t.Errorf("%s: %d images", name, n)
		}
	}
	if n := images(s.exec("plt.plot([3])\n1 / 0").want(spool.TurnError)); n != 1 {
		t.Errorf("after an error: %d images", n)
	}
	if n := images(s.ok("plt.figure(); plt.plot([1]); plt.figure(); plt.plot([2]);")); n != 2 {
		t.Errorf("two figures: %d images", n)
	}
	if n := images(s.ok("plt.get_fignums()")); n != 0 {
		t.Errorf("none: %d images", n)
	}
}

func TestNumpySeedsDifferBetweenForks(t *testing.T) {
	l := sharedLab(t)
	l.interpreter = pytest.Python(t)
	preload := config(func(c *python.KernelConfig) { c.Preload, c.Zygote = []string{"numpy"}, python.ZygoteWait })
	seen := make(map[string]bool)
	for range 3 {
		s := l.start(t, preload)
		got := s.ok("import numpy as np, random, uuid\n(np.random.rand(), random.random(), uuid.uuid4(), np.linalg.det(np.eye(50)))").result()
		if seen[got] || !strings.Contains(got, "1.0") {
			t.Errorf("%s", got)
		}
		seen[got] = true
	}
}

// The functions of IPython.display show what ours do: outside of an IPython shell
// they would print the text of an object, and its image would be lost.
func TestIPythonDisplay(t *testing.T) {
	s := scientific(t)
	c := s.ok(`
from IPython.display import display, Image, HTML, Markdown, clear_output, update_display, publish_display_data
import IPython.display as d, matplotlib.pyplot as plt, io
fig, ax = plt.subplots(); ax.plot([1, 2]); buffer = io.BytesIO(); fig.savefig(buffer); plt.close(fig)
display(Image(buffer.getvalue()))
d.display(fig)
h = display(HTML("<b>bold</b>"), display_id="x")
h.update(Markdown("*it*"))
update_display(HTML("<i>"), display_id="x")
publish_display_data({"text/plain": "raw"})
clear_output(wait=True)`)
	c.wantOutput("")
	all := c.displays()
	if len(all) != 7 {
		t.Fatalf("%d displays: %s", len(all), c)
	}
	for i, d := range all[:2] {
		if _, err := png.Decode(bytes.NewReader(value(t, s, d, "image/png"))); err != nil {
			t.Errorf("display %d: %v", i, err)
		}
	}
	if d := all[2]; string(value(t, s, d, "text/html")) != "<b>bold</b>" || d.ID != "x" || d.Update {
		t.Errorf("%+v", d)
	}
	for i, mime := range map[int]string{3: "text/markdown", 4: "text/html"} {
		if d := all[i]; d.ID != "x" || !d.Update || d.Bundle[mime] == nil {
			t.Errorf("%+v", d)
		}
	}
	if plainText(t, all[5]) != "raw" || !all[6].Clear || !all[6].Wait {
		t.Errorf("%+v, %+v", all[5], all[6])
	}
	s.ok("Image(buffer.getvalue())") // as a result, too
}
