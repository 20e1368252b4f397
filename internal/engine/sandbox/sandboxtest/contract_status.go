package sandboxtest

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/python"
)

// infoShowsConfiguration checks what the description of a run says.
func infoShowsConfiguration(t *testing.T, s Subject) {
	b := newLab(t, s).start(func(spec *spool.Spec, c *python.SandboxConfig) {
		spec.Stdin = true
		c.Limits.WallMs = 60_000
		c.Files = []python.File{{Path: "/data/x.txt", Text: "content"}}
		c.Offer = []string{"fs.read"}
	})
	details := func() python.Details {
		t.Helper()
		info, err := b.run.Info(b.ctx)
		if err != nil {
			t.Fatal(err)
		}
		var d python.Details
		if err := json.Unmarshal(info.Details, &d); err != nil {
			t.Fatalf("details %s: %v", info.Details, err)
		}
		return d
	}
	b.alive()
	d := details()
	var c python.SandboxConfig
	if err := json.Unmarshal(d.Config, &c); err != nil {
		t.Fatal(err)
	}
	if c.Backend != s.Config.Backend || c.Limits.WallMs != 60_000 || c.Limits.MemoryBytes != 256<<20 || c.Limits.AskMs != 30_000 || len(c.Offer) != 1 {
		t.Errorf("configuration %s", d.Config)
	}
	if len(c.Files) != 1 || c.Files[0].Path != "/data/x.txt" || strings.Contains(string(d.Config), "content") {
		t.Errorf("files %s", d.Config)
	}
	if d.Interpreter != s.Config.Backend || d.Version == "" || d.Turn != 0 || d.Queued != 0 {
		t.Errorf("an idle sandbox: %s", text(d))
	}
	first := b.exec(spool.Cell{Code: "print('ready')\nwhile True: pass"})
	second := b.exec(spool.Cell{Code: "print('second')"})
	b.said(first, first.Seq(), "ready")
	// The second turn is in the log, and reaches the engine in its own time.
	polltest.Until(t, "a busy sandbox with one turn that waits", func() bool {
		d := details()
		return d.Turn == first.Seq() && d.Queued == 1
	})
	if err := b.run.Control(b.ctx, spool.Control{Op: spool.ControlKill, Turn: first.Seq()}); err != nil {
		t.Fatal(err)
	}
	for turn, waited := range map[*spool.Turn]bool{first: false, second: true} {
		e := b.wait(turn)
		var n spool.Notice
		began := e.events[0].Kind == spool.KindNotice && json.Unmarshal(e.events[0].Data, &n) == nil && n.Code == python.NoticeTurnBegan
		if began != waited {
			t.Errorf("turn %d says that it began: %v", turn.Seq(), began)
		}
	}
}

// outputIsText checks that no event of a text ends inside a character.
func outputIsText(t *testing.T, s Subject) {
	b := newLab(t, s).start(nil)
	e := b.do("print('😀' * 90_000)")
	if e.stdout != strings.Repeat("😀", 90_000)+"\n" {
		t.Errorf("%d bytes", len(e.stdout))
	}
	for _, ev := range e.events {
		if ev.Kind == spool.KindOutput && !utf8.Valid(ev.Bytes) {
			t.Fatalf("an event of %d bytes is not text", len(ev.Bytes))
		}
	}
	e = b.do("import os, time\nos.write(1, b'a\\xf0\\x9f'); time.sleep(0.01); os.write(1, b'\\x98\\x80b')")
	if e.stdout != "a😀b" {
		t.Errorf("stdout %q", e.stdout)
	}
	// The beginning of a character is an event only if the rest did not come for a
	// while, as on a busy machine.
	const wait = 50 * time.Millisecond
	for i, ev := range e.events {
		if ev.Kind != spool.KindOutput || utf8.Valid(ev.Bytes) {
			continue
		}
		if i == 0 || ev.Time.Sub(e.events[i-1].Time) < wait {
			t.Errorf("an event is %q", ev.Bytes)
		}
		break
	}
	// What is no text arrives, and in order.
	e = b.do("os.write(1, b'x\\xf0\\x9f'); os.write(2, b'err'); time.sleep(0.1); os.write(1, b'\\xff\\xf0')")
	if e.stdout != "x\xf0\x9f\xff\xf0" || e.stderr != "err" {
		t.Errorf("stdout %q, stderr %q", e.stdout, e.stderr)
	}
}
