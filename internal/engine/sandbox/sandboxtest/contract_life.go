package sandboxtest

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/sandbox"
	"github.com/spool-run/spool/python"
)

func waitTimeoutCleansUp(t *testing.T, s Subject) {
	b := newLab(t, s).start(func(spec *spool.Spec, _ *python.SandboxConfig) { spec.Stdin = true })
	for _, code := range []string{"while True: pass", "import time; time.sleep(1000)", "import sys; sys.stdin.read()"} {
		e := b.wait(b.exec(spool.Cell{Code: "print('began')\n" + code, TimeoutMs: 100}))
		if e.done.Outcome != spool.TurnTimeout || e.done.EndedBy != "timeout" || e.done.LimitMs != 100 ||
			e.done.Error != "timed out after 100ms" || *e.done.ExitCode != 124 {
			t.Errorf("%s: done %s", code, text(e.done))
		}
		b.alive()
	}
}

func usesConfiguredDefaultTimeout(t *testing.T, s Subject) {
	b := newLab(t, s).start(func(_ *spool.Spec, c *python.SandboxConfig) { c.Limits.WallMs = 150 })
	b.do("pass") // so that what follows measures the limit
	for own, want := range map[int64]int64{0: 150, 60_000: 150, 80: 80} {
		e := b.wait(b.exec(spool.Cell{Code: "while True: pass", TimeoutMs: own}))
		if e.done.LimitMs != want || e.done.EndedBy != "timeout" || e.done.Error != fmt.Sprintf("timed out after %dms", want) {
			t.Errorf("with a limit of %d of its own: done %s, want a limit of %d", own, text(e.done), want)
		}
	}
	inSpec := b.start(func(spec *spool.Spec, c *python.SandboxConfig) {
		spec.Limits.Wall = 120e6
		c.Limits.WallMs = 60_000
	})
	if e := inSpec.do("while True: pass"); e.done.LimitMs != 120 {
		t.Errorf("with a limit in the spec: done %s", text(e.done))
	}
}

func idleLimit(t *testing.T, s Subject) {
	b := newLab(t, s).start(func(_ *spool.Spec, c *python.SandboxConfig) { c.Limits.IdleMs = 1500 })
	b.do("pass") // so that what follows measures the limit
	// Together the sleeps are longer than the limit, and each is much shorter.
	e := b.do("import time\nfor i in range(8):\n    time.sleep(0.2)\n    print(i)\nwhile True: pass")
	lines := "0\n1\n2\n3\n4\n5\n6\n7\n"
	if !strings.HasPrefix(lines, e.stdout) || e.done.LimitMs != 1500 || e.done.EndedBy != "timeout" || !strings.Contains(e.done.Error, "without") {
		t.Errorf("stdout %q, done %s", e.stdout, text(e.done))
	}
	// The limit counts from the last output, which on a busy machine need not be
	// the last line. From the beginning it would come 200 ms after a line.
	var last time.Time
	for _, ev := range e.events {
		switch ev.Kind {
		case spool.KindOutput:
			last = ev.Time
		case spool.KindDone:
			if silent := ev.Time.Sub(last); !last.IsZero() && silent < 750*time.Millisecond {
				t.Errorf("it ended %v after output", silent)
			}
		}
	}
}

func surfacesRuntimeStderr(t *testing.T, s Subject) {
	b := newLab(t, s).start(nil)
	e := b.do("def broken():\n    raise ValueError('boom')\nbroken()")
	want := []string{"Traceback (most recent call last):", "line 2, in broken", "raise ValueError('boom')", "ValueError: boom\n"}
	for _, w := range want {
		if !strings.Contains(e.stderr, w) {
			t.Errorf("stderr lacks %q:\n%s", w, e.stderr)
		}
	}
	if strings.Contains(e.stderr, "_spool_boot") {
		t.Errorf("the traceback shows how the script is run:\n%s", e.stderr)
	}
	if *e.done.ExitCode != 1 || e.done.Outcome != spool.TurnError || e.done.ErrorClass != "ValueError" || e.done.EndedBy != "" {
		t.Errorf("done %s", text(e.done))
	}
	if e := b.do("def f(:"); *e.done.ExitCode != 1 || !strings.Contains(e.stderr, "SyntaxError") {
		t.Errorf("done %s, stderr %q", text(e.done), e.stderr)
	}
}

func exitCodes(t *testing.T, s Subject) {
	b := newLab(t, s).start(nil)
	for code, want := range map[string]int{
		"pass": 0, "import sys; sys.exit()": 0, "import sys; sys.exit(0)": 0, "import sys; sys.exit(3)": 3,
		"raise SystemExit(255)": 255, "import sys; sys.exit('bye')": 1, "1/0": 1, "exit(7)": 7,
	} {
		e := b.do(code)
		if *e.done.ExitCode != want || (e.done.Outcome == spool.TurnOK) != (want == 0) {
			t.Errorf("%s: done %s, want exit code %d", code, text(e.done), want)
		}
		if strings.Contains(code, "bye") && e.stderr != "bye\n" {
			t.Errorf("%s: stderr %q", code, e.stderr)
		}
	}
}

func killStopsInflight(t *testing.T, s Subject) {
	b := newLab(t, s).start(func(spec *spool.Spec, _ *python.SandboxConfig) { spec.Stdin = true })
	for _, code := range []string{"while True: pass", "import time; time.sleep(1000)", "input()"} {
		turn := b.exec(spool.Cell{Code: "print('ready')\n" + code})
		var waiting *spool.Turn
		if !strings.Contains(code, "input") { // a turn after it would end its input
			waiting = b.exec(spool.Cell{Code: "print('next')"})
		}
		b.said(turn, turn.Seq(), "ready")
		if err := b.run.Control(b.ctx, spool.Control{Op: spool.ControlKill, Turn: turn.Seq()}); err != nil {
			t.Fatal(err)
		}
		e := b.wait(turn)
		if e.done.Outcome != spool.TurnKilled || e.done.EndedBy != "kill" || *e.done.ExitCode != 137 {
			t.Errorf("%s: done %s", code, text(e.done))
		}
		if waiting == nil {
			waiting = b.exec(spool.Cell{Code: "print('next')"})
		}
		if e := b.wait(waiting); e.stdout != "next\n" {
			t.Errorf("the turn after it printed %q; done %s", e.stdout, text(e.done))
		}
	}
	// One that waits can be killed too, and one that is over is left alone.
	busy := b.exec(spool.Cell{Code: "while True: pass"})
	waiting := b.exec(spool.Cell{Code: "print('never')", TimeoutMs: 5000})
	if err := b.run.Control(b.ctx, spool.Control{Op: spool.ControlKill, Turn: waiting.Seq()}); err != nil {
		t.Fatal(err)
	}
	if err := b.run.Control(b.ctx, spool.Control{Op: spool.ControlKill, Turn: busy.Seq()}); err != nil {
		t.Fatal(err)
	}
	b.wait(busy)
	if e := b.wait(waiting); e.stdout != "" || e.done.EndedBy != "kill" {
		t.Errorf("a turn that was killed before it began printed %q; done %s", e.stdout, text(e.done))
	}
	if err := b.run.Control(b.ctx, spool.Control{Op: spool.ControlKill, Turn: busy.Seq()}); err != nil {
		t.Errorf("kill a turn that is over: %v", err)
	}
	b.alive()
}

func killOfTheRun(t *testing.T, s Subject) {
	b := newLab(t, s).start(nil)
	turn := b.exec(spool.Cell{Code: "print('ready')\nwhile True: pass"})
	waiting := b.exec(spool.Cell{Code: "print('never')"})
	b.said(turn, turn.Seq(), "ready")
	if err := b.run.Kill(b.ctx); err != nil {
		t.Fatal(err)
	}
	o, err := b.run.Wait(b.ctx)
	if err != nil || o.Kind != spool.Exited || o.Code != 137 || o.Signal != "SIGKILL" {
		t.Errorf("the run ended %v, %v", o, err)
	}
	for _, turn := range []*spool.Turn{turn, waiting} {
		if d, err := turn.Wait(b.ctx); err != nil || d.Outcome != spool.TurnKilled {
			t.Errorf("turn %d ended %s, %v", turn.Seq(), text(d), err)
		}
	}
	if _, err := b.run.Exec(b.ctx, "", spool.Cell{Code: "1"}); err == nil {
		t.Error("a run that was killed took a cell")
	}
}

// undeliveredInput kills a run in which a cell waits behind standard input that
// no turn reads. The cell has one done event, before the closed event.
func undeliveredInput(t *testing.T, s Subject) {
	b := newLab(t, s).start(func(spec *spool.Spec, _ *python.SandboxConfig) { spec.Stdin = true })
	turn := b.exec(spool.Cell{Code: "print('ready')\nwhile True: pass"})
	b.said(turn, turn.Seq(), "ready")
	b.type_(strings.Repeat("x", sandbox.MaxStdin))
	b.type_("more")
	stuck := b.exec(spool.Cell{Code: "print('never')"})
	if err := b.run.Kill(b.ctx); err != nil {
		t.Fatal(err)
	}
	ends := make(map[spool.Seq]int)
	for e, err := range b.run.Events(b.ctx, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == spool.KindDone {
			ends[e.Turn]++
		}
	}
	if ends[turn.Seq()] != 1 || ends[stuck.Seq()] != 1 {
		t.Errorf("turns %d and %d have these ends: %v", turn.Seq(), stuck.Seq(), ends)
	}
	if d, err := stuck.Wait(b.ctx); err != nil || d.Outcome != spool.TurnKilled || d.ErrorClass != engine.ClassNotRun {
		t.Errorf("the cell ended %s, %v", text(d), err)
	}
}

func interruptRaises(t *testing.T, s Subject) {
	b := newLab(t, s).start(func(spec *spool.Spec, _ *python.SandboxConfig) { spec.Stdin = true })
	turn := b.exec(spool.Cell{Code: "print('ready')\nwhile True: pass"})
	b.said(turn, turn.Seq(), "ready")
	if err := turn.Interrupt(b.ctx, 0); err != nil {
		t.Fatal(err)
	}
	e := b.wait(turn)
	if e.done.Outcome != spool.TurnInterrupted || e.done.EndedBy != "interrupt" {
		t.Errorf("done %s, stderr %q", text(e.done), e.stderr)
	}
	// One that waits is interrupted, too, and keeps its variables.
	b.prints("x = 1\nimport time", "")
	for _, code := range []string{"input()", "time.sleep(1000)"} {
		turn = b.exec(spool.Cell{Code: "print('ready')\n" + code})
		b.said(turn, turn.Seq(), "ready")
		if err := turn.Interrupt(b.ctx, time.Minute); err != nil {
			t.Fatal(err)
		}
		if e := b.wait(turn); e.done.Outcome != spool.TurnInterrupted || !strings.Contains(e.stderr, "KeyboardInterrupt") {
			t.Errorf("%s: done %s, stderr %q", code, text(e.done), e.stderr)
		}
		b.prints("print(x)", "1\n")
	}
	// What does not listen is stopped.
	turn = b.exec(spool.Cell{Code: "print('ready')\nwhile True:\n    try:\n        while True: pass\n    except BaseException: pass"})
	b.said(turn, turn.Seq(), "ready")
	if err := turn.Interrupt(b.ctx, 50e6); err != nil {
		t.Fatal(err)
	}
	if e := b.wait(turn); e.done.Outcome != spool.TurnInterrupted {
		t.Errorf("done %s", text(e.done))
	}
	b.alive()
}

func statefulAndFresh(t *testing.T, s Subject) {
	l := newLab(t, s)
	b := l.start(nil)
	b.prints("x = 41; import os; open('kept.txt', 'w').write('file')", "")
	b.prints("print(x + 1, open('kept.txt').read())", "42 file\n")
	e := b.wait(b.exec(spool.Cell{Code: "while True: pass", TimeoutMs: 100}))
	lost := false
	for _, ev := range e.events {
		lost = lost || ev.Kind == spool.KindNotice && strings.Contains(string(ev.Data), sandbox.NoticeStateLost)
	}
	after := b.do("print('x' in globals(), open('kept.txt').read())")
	if want := fmt.Sprintf("%v file\n", map[bool]string{true: "False", false: "True"}[lost]); after.stdout != want {
		t.Errorf("after a turn that was stopped (state lost: %v): %q, want %q", lost, after.stdout, want)
	}
	fresh := l.start(func(_ *spool.Spec, c *python.SandboxConfig) { c.Fresh = true })
	fresh.prints("x = 41; import sys; sys.modules['json'].dumps = None; open('kept.txt', 'w').write('file')", "")
	fresh.prints("import json; print('x' in globals(), json.dumps([1]), open('kept.txt').read())", "False [1] file\n")
}

func restartBeginsFresh(t *testing.T, s Subject) {
	b := newLab(t, s).start(nil)
	b.prints("x = 1; open('f', 'w').write('kept')", "")
	if err := b.run.Control(b.ctx, spool.Control{Op: spool.ControlRestart}); err != nil {
		t.Fatal(err)
	}
	b.prints("print('x' in globals(), open('f').read())", "False kept\n")
}

func cellsHaveResults(t *testing.T, s Subject) {
	l := newLab(t, s)
	b := l.start(nil)
	result := func(e ended) (got python.Display, ok bool) {
		for _, ev := range e.events {
			if ev.Kind == python.KindResult {
				if err := json.Unmarshal(ev.Data, &got); err != nil {
					t.Fatal(err)
				}
				return got, true
			}
		}
		return got, false
	}
	e := b.do("x = 20\nx + 1")
	if d, ok := result(e); !ok || string(d.Bundle["text/plain"]) != `"21"` || d.Count != 1 || e.done.ExecutionCount != 1 {
		t.Errorf("result %s, done %s", text(d), text(e.done))
	}
	if d, ok := result(b.do("_ * 2")); !ok || string(d.Bundle["text/plain"]) != `"42"` || d.Count != 2 {
		t.Errorf("result %s", text(d))
	}
	for _, cell := range []spool.Cell{{Code: "None"}, {Code: "x = 1"}, {Code: "x;"}, {Code: "x", Silent: true}} {
		if d, ok := result(b.wait(b.exec(cell))); ok {
			t.Errorf("%s has the result %s", text(cell), text(d))
		}
	}
	e = b.do("1/0")
	var x python.Exception
	for _, ev := range e.events {
		if ev.Kind == python.KindException {
			if err := json.Unmarshal(ev.Data, &x); err != nil {
				t.Fatal(err)
			}
		}
	}
	if x.Name != "ZeroDivisionError" || x.Message == "" || x.Traceback != e.stderr || !x.Printed {
		t.Errorf("exception %s, stderr %q", text(x), e.stderr)
	}
	script := l.start(func(_ *spool.Spec, c *python.SandboxConfig) { c.Script = true })
	if d, ok := result(script.do("21")); ok {
		t.Errorf("a script has the result %s", text(d))
	}
}

func filesAreShared(t *testing.T, s Subject) {
	ro, rw, over := t.TempDir(), t.TempDir(), t.TempDir()
	for _, dir := range []string{ro, rw, over} {
		if err := os.WriteFile(filepath.Join(dir, "f.txt"), []byte("from the host"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b := newLab(t, s).start(func(_ *spool.Spec, c *python.SandboxConfig) {
		c.Mounts = []python.Mount{
			{Host: ro, Guest: "/ro"}, {Host: rw, Guest: "/rw", Mode: python.MountReadWrite}, {Host: over, Guest: "/over", Mode: python.MountOverlay},
		}
	})
	b.prints(`
import os, errno
for d in ("/ro", "/rw", "/over"):
    print(d, open(d + "/f.txt").read(), os.listdir(d))
    try:
        with open(d + "/f.txt", "r+") as f:
            f.seek(5); f.write("THE")
        with open(d + "/f.txt", "a") as f:
            f.write("!")
        os.mkdir(d + "/sub")
        with open(d + "/sub/x", "wb") as f:
            f.write(b"0123456789"); f.truncate(4)
        os.rename(d + "/sub/x", d + "/sub/y")
        os.symlink("y", d + "/sub/link")
        print(open(d + "/sub/link").read(), open(d + "/f.txt").read(), sorted(os.listdir(d + "/sub")))
        fd = os.open(d + "/sub/y", os.O_RDWR)
        os.lseek(fd, 2, 0); os.write(fd, b"ab")
        os.lseek(fd, 1, 0); print(os.read(fd, 2)); os.close(fd)
        os.unlink(d + "/sub/link"); os.unlink(d + "/sub/y"); os.rmdir(d + "/sub")
    except OSError as e:
        print(errno.errorcode[e.errno])
for path, flags in (("/ro/none", os.O_RDONLY), ("/rw", os.O_WRONLY), ("/rw/f.txt", os.O_WRONLY | os.O_CREAT | os.O_EXCL), ("/rw/f.txt/x", os.O_RDONLY)):
    try:
        os.open(path, flags)
    except OSError as e:
        print(path, errno.errorcode[e.errno])
`, `/ro from the host ['f.txt']
EROFS
/rw from the host ['f.txt']
0123 from THE host! ['link', 'y']
b'1a'
/over from the host ['f.txt']
0123 from THE host! ['link', 'y']
b'1a'
/ro/none ENOENT
/rw EISDIR
/rw/f.txt EEXIST
/rw/f.txt/x ENOTDIR
`)
	for dir, want := range map[string]string{ro: "from the host", rw: "from THE host!", over: "from the host"} {
		content, err := os.ReadFile(filepath.Join(dir, "f.txt"))
		if err != nil || string(content) != want {
			t.Errorf("the host's file is %q, %v, want %q", content, err, want)
		}
	}
}

func overlaysHandOut(t *testing.T, s Subject) {
	dir := t.TempDir()
	for _, name := range []string{"kept.txt", "gone.txt", "changed.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("old"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b := newLab(t, s).start(func(_ *spool.Spec, c *python.SandboxConfig) {
		c.Mounts = []python.Mount{{Host: dir, Guest: "/work", Mode: python.MountOverlay}}
	})
	b.prints("import os\nos.chdir('/work')\nos.unlink('gone.txt')\nopen('changed.txt', 'w').write('new')\nos.mkdir('d')\nopen('d/added.bin', 'wb').write(bytes(3))\nprint(sorted(os.listdir('.')))",
		"['changed.txt', 'd', 'kept.txt']\n")
	b.stop()
	var got sandbox.Changes
	for e, err := range b.run.Events(b.ctx, 0) {
		if err != nil {
			t.Fatal(err)
		}
		var n spool.Notice
		if e.Kind == spool.KindNotice && json.Unmarshal(e.Data, &n) == nil && n.Code == sandbox.NoticeChanges {
			if err := json.Unmarshal(n.Data, &got); err != nil {
				t.Fatal(err)
			}
		}
	}
	var list []string
	for _, c := range got.Changes {
		line := string(c.Kind) + " " + c.Path
		if c.Blob != nil {
			r, err := b.run.Blob(b.ctx, c.Blob.Digest)
			if err != nil {
				t.Fatal(err)
			}
			content, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = r.Close()
			line += fmt.Sprintf(" %q", content)
		}
		list = append(list, line)
	}
	want := []string{`modified changed.txt "new"`, "added d", `added d/added.bin "\x00\x00\x00"`, "removed gone.txt"}
	if got.Mount != "/work" || !slices.Equal(list, want) {
		t.Errorf("changed below %s: %q, want %q", got.Mount, list, want)
	}
	if content, err := os.ReadFile(filepath.Join(dir, "changed.txt")); err != nil || string(content) != "old" {
		t.Errorf("the host's file is %q, %v", content, err)
	}
}

func scriptsKnowTheirFile(t *testing.T, s Subject) {
	b := newLab(t, s).start(func(spec *spool.Spec, c *python.SandboxConfig) {
		spec.Argv = []string{"main.py", "--size", "3"}
		c.File, c.Script = "/app/main.py", true
		c.Files = []python.File{{Path: "/app/main.py", Text: "import sys\nprint(sys.argv, __file__, __name__)\nsys.exit(5) if len(sys.argv) > 9 else None\n1/0\n"}}
	})
	e := b.do("")
	if e.stdout != "['/app/main.py', '--size', '3'] /app/main.py __main__\n" || !strings.Contains(e.stderr, `File "/app/main.py", line 4`) {
		t.Errorf("stdout %q, stderr %q", e.stdout, e.stderr)
	}
	importsBesideScripts(t, s)
}

// importsBesideScripts checks that sys.path begins as Python has it.
func importsBesideScripts(t *testing.T, s Subject) {
	t.Helper()
	files := []python.File{{Path: "/app/helper.py", Text: "value = 5\n"}, {Path: "/workspace/near.py", Text: "value = 6\n"},
		{Path: "/workspace/pkg/__main__.py", Text: "import sys\nprint(sys.path[0], sys.argv, __name__, __package__)\n"}}
	b := newLab(t, s).start(func(_ *spool.Spec, c *python.SandboxConfig) { c.Files = files })
	b.prints("import sys, near\nprint(repr(sys.path[0]), sys.argv, near.value)", "'' [''] 6\n")
	script := spool.Cell{Code: "import sys, helper\nprint(sys.path[0], sys.argv, __file__, helper.value)\n7", File: "/app/main.py", Args: []string{"main.py", "x"}}
	for range 2 {
		if e := b.wait(b.exec(script)); e.stdout != "/app ['/app/main.py', 'x'] /app/main.py 5\n" || e.done.Outcome != spool.TurnOK {
			t.Errorf("stdout %q, stderr %q", e.stdout, e.stderr)
		}
		b.prints("print(repr(sys.path[0]), helper.value)", "'' 5\n")
	}
	for _, tt := range []struct {
		cell spool.Cell
		want string
	}{
		{spool.Cell{Module: "pkg", Args: []string{"-m", "x"}}, "/workspace ['/workspace/pkg/__main__.py', 'x'] __main__ pkg\n"},
		{spool.Cell{Module: "__main__", File: "/workspace/pkg", Args: []string{"pkg"}}, "/workspace/pkg ['/workspace/pkg'] __main__ \n"},
	} {
		if e := b.wait(b.exec(tt.cell)); e.stdout != tt.want || e.done.Outcome != spool.TurnOK {
			t.Errorf("module %s of %q: stdout %q, stderr %q", tt.cell.Module, tt.cell.File, e.stdout, e.stderr)
		}
		b.prints("print(repr(sys.path[0]), helper.value)", "'' 5\n")
	}
	b.prints("sys.path.insert(0, '/mine')", "")
	b.prints("print(sys.path[0])", "/mine\n")
}

func onceEnds(t *testing.T, s Subject) {
	l := newLab(t, s)
	for code, want := range map[string]int{"print(1)": 0, "import sys; sys.exit(9)": 9, "1/0": 1} {
		b := l.start(func(_ *spool.Spec, c *python.SandboxConfig) { c.Once = true })
		b.exec(spool.Cell{Code: code})
		if o, err := b.run.Wait(b.ctx); err != nil || o.Kind != spool.Exited || o.Code != want {
			t.Errorf("%s: the run ended %v, %v, want %d", code, o, err, want)
		}
	}
}

func entropyIsReal(t *testing.T, s Subject) {
	l := newLab(t, s)
	code := "import os, random, uuid, time, tempfile\nprint(os.urandom(8).hex(), random.random(), uuid.uuid4(), hash('x'), next(tempfile._get_candidate_names()))"
	seen := make(map[string]string)
	for i := range 4 {
		b := l.start(func(_ *spool.Spec, c *python.SandboxConfig) { c.Fresh = i%2 == 0 })
		for n, field := range strings.Fields(b.do(code).stdout) {
			key := fmt.Sprint(n, " ", field)
			if where, ok := seen[key]; ok && n != 3 { // a hash may repeat within one copy's life
				t.Errorf("field %d is %s in two interpreters (%s)", n, field, where)
			}
			seen[key] = fmt.Sprint(i)
		}
	}
	b := l.start(nil)
	b.prints("import time\na = time.time(); m = time.monotonic(); time.sleep(0.05)\nprint(0.04 < time.time() - a < 5, 0.04 < time.monotonic() - m < 5, a > 1.7e9)", "True True True\n")
}

func asyncioWorks(t *testing.T, s Subject) {
	b := newLab(t, s).start(nil)
	b.prints(`
import asyncio
async def work(n):
    await asyncio.sleep(0.01 * n)
    return n
async def main():
    return await asyncio.gather(*(work(n) for n in (3, 1, 2)))
print(asyncio.run(main()))
`, "[3, 1, 2]\n")
	b.prints("import asyncio\nawait asyncio.sleep(0)\nprint('awaited')", "awaited\n")
}

func memoryCap(t *testing.T, s Subject) {
	b := newLab(t, s).start(func(_ *spool.Spec, c *python.SandboxConfig) { c.Limits.MemoryBytes = 128 << 20 })
	e := b.do("x = []\nwhile True: x.append(bytearray(1 << 20))")
	clean := e.done.ErrorClass == "MemoryError" || e.done.EndedBy == "memory"
	if !clean || *e.done.ExitCode == 0 {
		t.Errorf("done %s, stderr %q", text(e.done), e.stderr)
	}
	b.prints("x = None\nprint('caught')", "caught\n")
	b.prints("try:\n    y = bytearray(1 << 30)\nexcept MemoryError:\n    print('refused')", "refused\n")
	b.alive()
}

// ledgerHasProcessorTime is about runs that end, also after a restart and with an
// interpreter for every cell. A back end that executes scripts in the process of its
// host does not know.
func ledgerHasProcessorTime(t *testing.T, s Subject) {
	l := newLab(t, s)
	known := s.Config.Backend == python.BackendPyodide || s.Config.Isolation != python.IsolateNone
	for _, fresh := range []bool{false, true} {
		b := l.start(func(_ *spool.Spec, c *python.SandboxConfig) { c.Fresh = fresh })
		b.do("sum(range(300_000))")
		if !fresh {
			if err := b.run.Control(b.ctx, spool.Control{Op: spool.ControlRestart}); err != nil {
				t.Fatal(err)
			}
		}
		b.do("pass")
		b.stop()
		info, err := b.run.Info(b.ctx)
		if err != nil {
			t.Fatal(err)
		}
		// Adding up takes longer than a millisecond.
		if l := info.Ledger; l == nil || (l.Processes != nil) != known || known && l.Processes.UserUs+l.Processes.SystemUs < 1000 {
			t.Errorf("fresh %v: the ledger is %s", fresh, text(l))
		}
	}
}
