package export_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/export"
	"github.com/spool-run/spool/python"
)

var update = flag.Bool("update", false, "write the golden files")

// logOf is a backend with one run, whose log is in memory.
type logOf struct {
	spool.Backend // has no other methods
	events        []spool.Event
	info          spool.Info
	blobs         map[spool.Digest]string
}

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newLog(info spool.Info) *logOf {
	info.ID, info.Created = "r1", epoch
	return &logOf{info: info, blobs: make(map[spool.Digest]string)}
}

func (l *logOf) add(kind spool.Kind, turn spool.Seq, data any) spool.Seq {
	b, err := json.Marshal(data)
	if err != nil {
		panic(err)
	}
	return l.put(spool.Event{Kind: kind, Turn: turn, Data: b})
}

func (l *logOf) put(e spool.Event) spool.Seq {
	e.Run, e.Seq = l.info.ID, spool.Seq(len(l.events)+1)
	e.Time = epoch.Add(time.Duration(e.Seq) * 100 * time.Millisecond)
	l.events = append(l.events, e)
	l.info.Last = e.Seq
	return e.Seq
}

func (l *logOf) output(turn spool.Seq, s spool.Stream, text string) {
	l.put(spool.Event{Kind: spool.KindOutput, Turn: turn, Stream: s, Bytes: []byte(text)})
}

func (l *logOf) say(kind spool.InputKind, data any) spool.Seq {
	b, err := json.Marshal(data)
	if err != nil {
		panic(err)
	}
	return l.add(spool.KindInput, 0, spool.Said{Kind: kind, Data: b})
}

func (l *logOf) end(code int) {
	o := spool.Outcome{Kind: spool.Exited, Code: code}
	l.put(o.Event())
	l.put(spool.Event{Kind: spool.KindClosed})
	l.info.State, l.info.Outcome, l.info.Ended = spool.StateClosed, &o, epoch.Add(time.Minute)
}

func (l *logOf) Stat(context.Context, spool.RunID) (spool.Info, error) { return l.info, nil }

func (l *logOf) Read(ctx context.Context, _ spool.RunID, q spool.Query) (spool.Page, error) {
	page := spool.Page{Next: q.After, Info: l.info}
	for size := 0; int(page.Next) < len(l.events) && size < 200; { // short pages
		e := l.events[page.Next]
		page.Events, page.Next = append(page.Events, e), e.Seq
		if size += e.Size(); size > q.MaxBytes {
			break
		}
	}
	return page, ctx.Err()
}

func (l *logOf) Blob(_ context.Context, _ spool.RunID, d spool.Digest) (io.ReadCloser, error) {
	text, ok := l.blobs[d]
	if !ok {
		return nil, spool.ErrNotFound
	}
	return io.NopCloser(strings.NewReader(text)), nil
}

// terminalLog is a run with a terminal.
func terminalLog() *logOf {
	l := newLog(spool.Info{Engine: spool.EngineProcess, Name: "my shell", Argv: []string{"/bin/sh", "-i"}, Cwd: "/src", TTY: true, FirstSize: spool.Size{Rows: 24, Cols: 80}})
	l.output(0, spool.PTY, "$ \x1b[1mls\x1b[0m\r\n")
	l.output(0, spool.PTY, "caf\xc3")
	l.output(0, spool.PTY, "\xa9 <b>\r\n")
	l.add(spool.KindResized, 0, spool.Resized{Size: spool.Size{Rows: 30, Cols: 100}})
	l.add(spool.KindTruncated, 0, spool.Truncation{From: 5, To: 9})
	l.output(0, spool.PTY, "10%\r20%\r100%\r\n~~~~~~~~\r\nbad \xff byte\r\n")
	l.end(3)
	return l
}

// pipeLog is a run without a terminal.
func pipeLog() *logOf {
	l := newLog(spool.Info{Engine: spool.EngineProcess, Argv: []string{"make"}})
	l.output(0, spool.Stdout, "one\ntw")
	l.output(0, spool.Stderr, "warning\r")
	l.output(0, spool.Stderr, "\n")
	l.output(0, spool.Stdout, "o\n")
	l.add(spool.KindTruncated, 0, spool.Truncation{LimitBytes: 10, DroppedBytes: map[spool.Stream]int64{spool.Stdout: 7}})
	l.end(0)
	return l
}

// kernelLog is a kernel with displays that change, and cells that wait.
func kernelLog() *logOf {
	l := newLog(spool.Info{Engine: python.EngineKernel, Name: "scratch", State: spool.StateRunning})
	text := func(s string) map[string]json.RawMessage {
		b, _ := json.Marshal(s)
		return map[string]json.RawMessage{"text/plain": b}
	}
	a := l.say(spool.InputCell, spool.Cell{Code: "print('<a>')\nplot()"})
	b := l.say(spool.InputCell, spool.Cell{Code: "1/0"})
	l.output(a, spool.Stdout, "half a ch\xc3")
	l.output(a, spool.Stdout, "\xa4racter \"q\"\n")
	l.output(a, spool.Stderr, "careful\n")
	l.add(python.KindDisplay, a, python.Display{ID: "d1", Bundle: text("first state")})
	l.blobs["sha256:1"] = "an image"
	image, _ := json.Marshal(spool.Blob{Digest: "sha256:1", Size: 8, MIME: "image/png"})
	l.add(python.KindDisplay, a, python.Display{Bundle: map[string]json.RawMessage{"image/png": image}})
	l.add(python.KindResult, a, python.Display{Bundle: map[string]json.RawMessage{"text/plain": json.RawMessage(`"42"`), "application/json": json.RawMessage(`{"x":[1]}`)}, Count: 1})
	l.add(spool.KindDone, a, spool.Done{Outcome: spool.TurnOK, ExecutionCount: 1})
	l.output(0, spool.Stdout, "a thread\n")
	l.output(b, spool.Stdout, "taken back\n")
	l.add(python.KindDisplay, b, python.Display{Clear: true, Wait: true})
	l.add(python.KindDisplay, b, python.Display{ID: "d1", Update: true, Bundle: text("last state")})
	l.add(python.KindException, b, python.Exception{Name: "ZeroDivisionError", Message: "division by zero", Traceback: "Traceback:\nZeroDivisionError: division by zero\n"})
	l.add(spool.KindDone, b, spool.Done{Outcome: spool.TurnError, ExecutionCount: 2})
	l.say(spool.InputCell, spool.Cell{Code: "never ran"})
	return l
}

// agentLog is a conversation, in which hostile text is tried.
func agentLog() *logOf {
	l := newLog(spool.Info{Engine: agent.Engine, Name: "</title><script>alert(1)</script>"})
	l.add(spool.KindStarted, 0, agent.Started{Agent: "codex", Model: "m"})
	p := l.say(spool.InputPrompt, spool.Prompt{Text: "Fix the <tests>.\nNow."})
	l.add(agent.KindMessage, p, agent.Message{Text: "de", Delta: true})
	l.add(agent.KindMessage, p, agent.Message{Text: "# Plan\n\nI look at `x`:\n\n```go\nif a < b {\n```\n\n<img src=x onerror=alert(1)> [x](javascript:alert(1))"})
	yes := true
	l.add(agent.KindAction, p, agent.Action{ID: "1", Kind: agent.ActionCommand, Phase: agent.ActionStarted, Title: "make test"})
	l.add(agent.KindAction, p, agent.Action{ID: "1", Kind: agent.ActionCommand, Phase: agent.ActionCompleted, Title: "make test", OK: &yes, DurationMs: 1500, Output: "\x1b[32mok\x1b[0m </pre><script>alert(1)</script>\n"})
	l.add(spool.KindDone, p, spool.Done{Outcome: spool.TurnOK, DurationMs: 2000, Answer: "done"})
	l.end(0)
	return l
}

// TestFormats compares every format of some logs with files, which -update writes.
func TestFormats(t *testing.T) {
	for name, l := range map[string]*logOf{"terminal": terminalLog(), "pipe": pipeLog(), "kernel": kernelLog(), "agent": agentLog()} {
		for _, f := range export.Formats {
			t.Run(name+"."+string(f), func(t *testing.T) {
				var b bytes.Buffer
				err := export.Write(t.Context(), &b, spool.Attach(l, "r1"), f)
				if unsupported := f.Check(&l.info); unsupported != nil {
					if !errors.Is(err, spool.ErrUnsupported) || b.Len() > 0 {
						t.Errorf("%d bytes, %v", b.Len(), err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				path := filepath.Join("testdata", name+"."+string(f))
				if *update {
					if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(string(want), b.String()); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
				check(t, f, b.Bytes())
			})
		}
	}
}

// check checks that a file is what others expect of its format.
func check(t *testing.T, f export.Format, b []byte) {
	t.Helper()
	switch f {
	case export.JSONL, export.Cast, export.Cast2:
		for line := range bytes.Lines(b) {
			if !json.Valid(line) {
				t.Errorf("no JSON: %s", line)
			}
		}
	case export.Notebook:
		if !json.Valid(b) {
			t.Error("no JSON")
		}
	case export.HTML:
		inert(t, b)
	}
}

// inert checks that a page has no scripts, and loads nothing.
func inert(t *testing.T, b []byte) {
	t.Helper()
	root, err := html.Parse(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	for n := range root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		switch n.Data {
		case "script", "iframe", "object", "embed", "link", "a", "form", "base":
			t.Errorf("the page has the element %s", n.Data)
		}
		for _, a := range n.Attr {
			if strings.HasPrefix(a.Key, "on") || a.Key == "src" && !strings.HasPrefix(a.Val, "data:image/") {
				t.Errorf("the page has the attribute %s=%q", a.Key, a.Val)
			}
		}
	}
}

// TestLongLogsAreStreamed exports a log that is much larger than what an export may
// hold, and whose output has no newline.
func TestLongLogsAreStreamed(t *testing.T) {
	l := newLog(spool.Info{Engine: spool.EngineProcess})
	piece := strings.Repeat("x", 64<<10)
	for range 64 {
		l.output(0, spool.Stdout, piece)
	}
	l.end(0)
	for _, f := range []export.Format{export.JSONL, export.Cast, export.Markdown, export.HTML, export.Text} {
		w := &largest{}
		if err := export.Write(t.Context(), w, spool.Attach(l, "r1"), f); err != nil {
			t.Fatal(err)
		}
		if w.total < 64*len(piece) || w.one > 3*len(piece) {
			t.Errorf("%s: %d bytes, at most %d at once", f, w.total, w.one)
		}
	}
}

// largest counts what is written.
type largest struct{ total, one int }

func (w *largest) Write(p []byte) (int, error) {
	w.total, w.one = w.total+len(p), max(w.one, len(p))
	return len(p), nil
}

// TestErrors exports a display whose image is gone, and meets errors of the file and
// of the log.
func TestErrors(t *testing.T) {
	l := kernelLog()
	clear(l.blobs)
	for _, f := range []export.Format{export.Notebook, export.HTML, export.Markdown, export.Text} {
		var b bytes.Buffer
		if err := export.Write(t.Context(), &b, spool.Attach(l, "r1"), f); err != nil {
			t.Errorf("%s: %v", f, err)
		}
		if f != export.Text && !strings.Contains(b.String(), "which cannot be read") {
			t.Errorf("%s does not tell that an image is gone", f)
		}
		if err := export.Write(t.Context(), broken{}, spool.Attach(l, "r1"), f); !errors.Is(err, errBroken) {
			t.Errorf("%s: %v", f, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := export.Write(ctx, &b, spool.Attach(l, "r1"), f); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", f, err)
		}
	}
	if err := export.Write(t.Context(), io.Discard, spool.Attach(l, "r1"), "pdf"); !errors.Is(err, spool.ErrInvalid) {
		t.Errorf("pdf: %v", err)
	}
}

var errBroken = errors.New("no space")

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errBroken }

// TestFileNames checks that the name of a run does no harm in that of a file.
func TestFileNames(t *testing.T) {
	for name, want := range map[string]string{"": "r1.cast", "build": "build.cast", "../a b\"\r\nX": "---a-b---X.cast", "ä": "-.cast"} {
		if got := export.Cast2.FileName(&spool.Info{ID: "r1", Name: name}); got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
}

func ExampleWrite() {
	l := newLog(spool.Info{Engine: spool.EngineProcess})
	l.output(0, spool.Stdout, "hello\n")
	l.end(0)
	var b bytes.Buffer
	err := export.Write(context.Background(), &b, spool.Attach(l, "r1"), export.Cast)
	fmt.Print(b.String(), err)
	// Output:
	// {"version":3,"term":{"cols":80,"rows":24},"timestamp":1767323045}
	// [0.100000, "o", "hello\r\n"]
	// [0.100000, "x", "0"]
	// <nil>
}
