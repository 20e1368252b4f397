package render_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/leaktest"
	"github.com/spool-run/spool/python"
	"github.com/spool-run/spool/render"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func event(kind spool.Kind, payload any) *spool.Event {
	data, err := json.Marshal(payload)
	if err != nil {
		panic(err)
	}
	return &spool.Event{Kind: kind, Data: data}
}

func output(text string) *spool.Event {
	return &spool.Event{Kind: spool.KindOutput, Stream: spool.Stdout, Bytes: []byte(text)}
}

func shown(pairs ...string) *spool.Event {
	d := python.Display{Bundle: map[string]json.RawMessage{}}
	for i := 0; i < len(pairs); i += 2 {
		d.Bundle[pairs[i]] = json.RawMessage(pairs[i+1])
	}
	return event(python.KindDisplay, d)
}

// blobs is a store of blobs.
type blobs map[spool.Digest][]byte

func (b blobs) Blob(_ context.Context, d spool.Digest) (io.ReadCloser, error) {
	content, ok := b[d]
	if !ok {
		return nil, errors.New("no such blob")
	}
	return io.NopCloser(bytes.NewReader(content)), nil
}

const digest = "sha256:0000000000000000000000000000000000000000000000000000000000000001"

func TestChoiceOfText(t *testing.T) {
	tests := []struct {
		name  string
		event *spool.Event
		want  render.Output
	}{
		{"markdown before plain and HTML", shown("text/html", `"<b>h</b>"`, "text/plain", `"p"`, "text/markdown", `"*m*"`),
			render.Output{Text: "*m*", Markdown: true}},
		{"plain before HTML", shown("text/html", `"<b>h</b>"`, "text/plain", `"p"`), render.Output{Text: "p"}},
		{"HTML becomes Markdown", shown("text/html", `"<h1>T</h1><p>a <b>b</b></p>"`), render.Output{Text: "# T\n\na **b**", Markdown: true}},
		{"table becomes Markdown", shown("text/html", `"<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>"`),
			render.Output{Text: "| a | b |\n|---|---|\n| 1 | 2 |", Markdown: true}},
		{"latex if there is nothing else", shown("text/latex", `"$x$"`, "image/svg+xml", `"<svg/>"`), render.Output{Text: "$x$"}},
		{"a status has no text", shown(python.MIMEStatus, `{"op":"read"}`, "text/plain", `"p"`), render.Output{}},
		{"an image stands beside the text", shown("text/plain", `"<Figure>"`, "image/png", `"`+base64.StdEncoding.EncodeToString([]byte("png"))+`"`),
			render.Output{Text: "<Figure>", Images: []render.Value{{MIME: "image/png", Bytes: []byte("png")}}}},
		{"PNG and JPEG", shown("image/jpeg", `"anBn"`, "image/png", `"cG5n"`),
			render.Output{Images: []render.Value{{MIME: "image/png", Bytes: []byte("png")}, {MIME: "image/jpeg", Bytes: []byte("jpg")}}}},
		{"JSON stands beside the text", shown("application/json", `{"a":1}`, "text/plain", `"{'a': 1}"`),
			render.Output{Text: "{'a': 1}", Data: []render.Value{{MIME: "application/json", Bytes: []byte(`{"a":1}`)}}}},
		{"an image in a blob", shown("image/png", `{"blob":"`+digest+`","size_bytes":7}`),
			render.Output{Images: []render.Value{{MIME: "image/png", Blob: &spool.Blob{Digest: digest, Size: 7, MIME: "image/png"}}}}},
		{"invalid base64 as an image", shown("image/png", `"%%%"`, "text/plain", `"p"`), render.Output{Text: "p"}},
		{"lines of a notebook", shown("text/plain", `["a\n","b"]`), render.Output{Text: "a\nb"}},
		{"a number as text", shown("text/plain", `7`), render.Output{Text: "[text/plain that could not be decoded]"}},
		{"an invalid display", &spool.Event{Kind: python.KindDisplay, Data: []byte(`7`)},
			render.Output{Text: "a display that could not be decoded", Aside: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := render.Renderer{}.Event(t.Context(), tt.event)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestOtherEvents(t *testing.T) {
	tests := []struct {
		name  string
		event *spool.Event
		want  render.Output
	}{
		{"output unchanged", output("a\xff\n"), render.Output{Text: "a\xff\n"}},
		{"traceback", event(python.KindException, python.Exception{Name: "E", Message: "m", Traceback: "Traceback:\nE: m\n"}),
			render.Output{Text: "Traceback:\nE: m", Failure: true}},
		{"exception without a traceback", event(python.KindException, python.Exception{Name: "E", Message: "m"}), render.Output{Text: "E: m", Failure: true}},
		{"prompt", event(spool.KindAsk, spool.Ask{Kind: spool.AskInput, Prompt: "Name? "}), render.Output{Text: "Name? "}},
		{"a tool call has no text", event(spool.KindAsk, spool.Ask{Kind: spool.AskTool, Name: "t"}), render.Output{}},
		{"notice", event(spool.KindNotice, spool.Notice{Code: "c", Text: "note"}), render.Output{Text: "note", Aside: true}},
		{"a closed ask has no text", event(spool.KindNotice, spool.Notice{Code: spool.NoticeAskClosed, Text: "note"}), render.Output{}},
		{"a notice for programs", event(spool.KindNotice, spool.Notice{Code: "c", Text: "note", Level: "debug"}), render.Output{}},
		{"gap", event(spool.KindTruncated, spool.Truncation{From: 2, To: 5}), render.Output{Text: "events 2 to 5 have been deleted", Aside: true}},
		{"truncation", event(spool.KindTruncated, spool.Truncation{DroppedBytes: map[spool.Stream]int64{spool.Stdout: 3, spool.Stderr: 4}, LimitBytes: 9}),
			render.Output{Text: "7 bytes of output were dropped here, beyond the limit of 9", Aside: true}},
		{"done well", event(spool.KindDone, spool.Done{Outcome: spool.TurnOK}), render.Output{}},
		{"done with an error, which was shown", event(spool.KindDone, spool.Done{Outcome: spool.TurnError, Error: "E: m"}), render.Output{}},
		{"done by force", event(spool.KindDone, spool.Done{Outcome: spool.TurnKilled, Error: "it did not listen"}),
			render.Output{Text: "killed: it did not listen", Aside: true}},
		{"input", event(spool.KindInput, spool.Said{Kind: spool.InputCell}), render.Output{}},
		{"an unknown kind", &spool.Event{Kind: "tomorrow", Data: []byte("1")}, render.Output{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := render.Renderer{}.Event(t.Context(), tt.event)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTextInBlob(t *testing.T) {
	e := shown("text/plain", `{"blob":"`+digest+`","size_bytes":11}`)
	r := render.Renderer{Blobs: blobs{digest: []byte("aaaaäbbbbb")}, MaxText: 5}
	got, err := r.Event(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	if want := "aaaa\n[7 more bytes]"; got.Text != want {
		t.Errorf("text %q, want %q", got.Text, want)
	}
	r.MaxText = 0
	if got, _ := r.Event(t.Context(), e); got.Text != "aaaaäbbbbb" {
		t.Errorf("text %q", got.Text)
	}
	named := "[text/plain of 11 bytes: " + digest + "]"
	got, err = render.Renderer{}.Event(t.Context(), e)
	if err != nil || got.Text != named {
		t.Errorf("without blobs: %q, %v", got.Text, err)
	}
	got, err = render.Renderer{Blobs: blobs{}}.Event(t.Context(), e)
	if err == nil || got.Text != named {
		t.Errorf("with a missing blob: %q, %v", got.Text, err)
	}
}

func TestHTMLIsBounded(t *testing.T) {
	for name, html := range map[string]string{
		"long": strings.Repeat("<p>a</p>", 1<<16),
		"deep": strings.Repeat("<div>", 40_000),
		"wide": "<table><tr><td colspan=99999999>a</td></tr></table>",
		"tall": "<table>" + strings.Repeat("<tr><td rowspan=&#57;&#57;999 colspan='99'>a</td></tr>", 100) + "</table>",
		"both": "<table><tr>" + strings.Repeat("<td>", 20_000) + strings.Repeat("<tr>", 20_000) + "</table>",
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := json.Marshal(html)
			if err != nil {
				t.Fatal(err)
			}
			got, err := render.Renderer{MaxText: 16 << 20}.Event(t.Context(), shown("text/html", string(raw)))
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Text) > len(html)+1000 {
				t.Errorf("%d bytes of HTML became %d", len(html), len(got.Text))
			}
		})
	}
}

func TestValueOpens(t *testing.T) {
	for _, v := range []render.Value{{Bytes: []byte("png")}, {Blob: &spool.Blob{Digest: digest, Size: 3}}} {
		f, err := v.Open(t.Context(), blobs{digest: []byte("png")})
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(f)
		if err != nil || string(b) != "png" || v.Size() != 3 {
			t.Errorf("%q, %v, size %d", b, err, v.Size())
		}
	}
	if _, err := (render.Value{Blob: &spool.Blob{Digest: digest}}).Open(t.Context(), nil); !errors.Is(err, spool.ErrUnsupported) {
		t.Errorf("error %v", err)
	}
}
