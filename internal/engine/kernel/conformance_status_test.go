//go:build linux

package kernel_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/kernel"
	"github.com/spool-run/spool/python"
)

// noticed waits for a notice.
func (s *session) noticed(code string) {
	s.t.Helper()
	for e, err := range s.run.Events(s.ctx, 0) {
		if err != nil {
			s.t.Fatalf("no notice %s: %v", code, err)
		}
		var n spool.Notice
		if e.Kind == spool.KindNotice && json.Unmarshal(e.Data, &n) == nil && n.Code == code {
			return
		}
	}
	s.t.Fatalf("no notice %s", code)
}

func details(t *testing.T, s *session) python.Details {
	t.Helper()
	info, err := s.run.Info(s.ctx)
	if err != nil {
		t.Fatal(err)
	}
	var d python.Details
	if err := json.Unmarshal(info.Details, &d); err != nil {
		t.Fatalf("details %s: %v", info.Details, err)
	}
	return d
}

// The description of a run names its interpreter, its configuration and what it
// does now. A cell that had to wait says when it began.
func TestStatusOfAKernel(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := mkfifo(fifo); err != nil {
		t.Fatal(err)
	}
	s := one(t, usual, config(func(c *python.KernelConfig) { c.CellTimeoutMs, c.StartTimeoutMs = 60_000, 0 }))
	s.alive("import sys; [sys.executable, sys.version.split()[0]]", fmt.Sprintf("['%s', '%s']", details(t, s).Interpreter, details(t, s).Version))
	d := details(t, s)
	var c python.KernelConfig
	if err := json.Unmarshal(d.Config, &c); err != nil || c.CellTimeoutMs != 60_000 || c.StartTimeoutMs != 60_000 || c.KillMs != 5000 {
		t.Errorf("configuration %s, %v", d.Config, err)
	}
	if d.Turn != 0 || d.Queued != 0 {
		t.Errorf("an idle kernel: %+v", d)
	}
	first := s.begin(spool.Cell{Code: fmt.Sprintf("print('ready', flush=True)\nopen(%q).read()", fifo)})
	second, third := s.begin(spool.Cell{Code: "2"}), s.begin(spool.Cell{Code: "3"})
	s.see(first, "ready")
	s.queued(2)
	if d := details(t, s); d.Turn != first.Seq() || d.Queued != 2 {
		t.Errorf("a busy kernel: %+v", d)
	}
	if err := os.WriteFile(fifo, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for turn, waited := range map[*spool.Turn]bool{first: false, second: true, third: true} {
		c := s.await(turn).want(spool.TurnOK)
		var n spool.Notice
		began := c.events[0].Kind == spool.KindNotice && json.Unmarshal(c.events[0].Data, &n) == nil && n.Code == python.NoticeTurnBegan
		if began != waited {
			t.Errorf("turn %d says that it began: %v; %s", turn.Seq(), began, c)
		}
	}
	s.end()
	if d := details(t, s); d.Interpreter == "" || len(d.Config) == 0 || d.Turn != 0 {
		t.Errorf("after the end: %+v", d)
	}
}

// Init code runs before the first cell of every interpreter.
func TestInitCode(t *testing.T) {
	for _, mode := range []python.ZygoteMode{python.ZygoteOff, python.ZygoteWait} {
		s := one(t, config(func(c *python.KernelConfig) {
			c.Zygote, c.Init = mode, "import math\ndef area(r): return math.pi * r\nprint('initialised')"
		}))
		s.alive("area(0)", "0.0")
		s.see(nil, "initialised")
		if err := s.run.Control(s.ctx, spool.Control{Op: spool.ControlRestart}); err != nil {
			t.Fatal(err)
		}
		s.noticed(kernel.NoticeRestarted)
		s.alive("area(0)", "0.0")

		_, err := sharedLab(t).tryStart(t, config(func(c *python.KernelConfig) { c.Zygote, c.Init = mode, "x = 1\n1/0" }))
		var start *spool.StartError
		if !errors.As(err, &start) || start.Reason != engine.StartInvalid || !strings.Contains(err.Error(), `File "<init>", line 2`) || !strings.Contains(err.Error(), "ZeroDivisionError") {
			t.Errorf("%s: error %v", mode, err)
		}
	}
}

// A trace has the messages of the protocol, and no secret.
func TestTrace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "trace")
	s := one(t, asking, config(func(c *python.KernelConfig) { c.Trace = file }))
	turn := s.begin(spool.Cell{Code: "import getpass; len(getpass.getpass())"})
	seq, _ := s.asked(turn)
	if err := s.run.Answer(s.ctx, spool.Answer{Ask: seq, Data: []byte(`"hunter2"`)}, true); err != nil {
		t.Fatal(err)
	}
	s.await(turn).want(spool.TurnOK).wantResult("7")
	s.end()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	var kinds []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var line struct {
			Time      time.Time
			Direction string
			Message   map[string]any
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil || line.Time.IsZero() {
			t.Fatalf("line %s: %v", lines.Bytes(), err)
		}
		if strings.Contains(lines.Text(), "hunter2") {
			t.Errorf("the trace has the secret: %s", lines.Text())
		}
		kinds = append(kinds, fmt.Sprint(line.Direction, " ", line.Message["t"]))
	}
	if got := strings.Join(kinds, ", "); got != "started <nil>, to cell, from ask, to answer, from result, from done" {
		t.Errorf("the trace has %s", got)
	}
	_, err = sharedLab(t).tryStart(t, config(func(c *python.KernelConfig) { c.Trace = "/none/such" }))
	if err == nil || !strings.Contains(err.Error(), "open the trace") {
		t.Errorf("a trace that cannot be written: %v", err)
	}
}

// No character is cut in two between events.
func TestOutputEventsAreText(t *testing.T) {
	s := one(t)
	want := strings.Repeat("😀", 90_000)
	c := s.ok("print('😀' * 90_000)")
	c.wantOutput(want+"\n", spool.Stdout)
	for _, e := range c.events {
		if e.Kind == spool.KindOutput && !utf8.Valid(e.Bytes) {
			t.Fatalf("event %d of %d bytes is not text", e.Seq, len(e.Bytes))
		}
	}
	// The halves of a character that is written in two parts are one event.
	for apart := time.Minute; apart >= kernel.PartialWait; { // until they are written within the time
		c = s.ok("import os, time\nbegun = time.monotonic(); os.write(1, b'a\\xf0\\x9f'); time.sleep(0.01); os.write(1, b'\\x98\\x80b'); time.monotonic() - begun")
		c.wantOutput("a😀b", spool.Stdout)
		seconds, err := strconv.ParseFloat(c.result(), 64)
		if err != nil {
			t.Fatal(err)
		}
		apart = time.Duration(seconds * float64(time.Second))
	}
	for _, e := range c.events {
		if e.Kind == spool.KindOutput && !utf8.Valid(e.Bytes) {
			t.Errorf("event %d is %q", e.Seq, e.Bytes)
		}
	}
	// What is no text is there, and in order, also if nothing follows it.
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := mkfifo(fifo); err != nil {
		t.Fatal(err)
	}
	turn := s.begin(spool.Cell{Code: fmt.Sprintf("os.write(1, b'x\\xf0\\x9f'); os.write(2, b'err'); open(%q).read(); os.write(1, b'\\xff\\xf0')", fifo)})
	s.see(turn, "x\xf0\x9ferr")
	if err := os.WriteFile(fifo, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.await(turn).want(spool.TurnOK).wantOutput("x\xf0\x9ferr\xff\xf0")
	turn = s.begin(spool.Cell{Code: "os.write(1, b'\\xe2\\x82'); input()"})
	s.see(turn, "\xe2\x82")
	s.await(turn)
}

// A limit of the output holds to the byte, also inside a character.
func TestOutputLimitInsideACharacter(t *testing.T) {
	s := one(t, spec(func(s *spool.Spec) { s.Limits.OutputBytes, s.Limits.OutputPolicy = 10, "block" }))
	turn := s.begin(spool.Cell{Code: "import os\nos.write(1, 'ä😀'.encode()[:4]); os.write(1, '😀'.encode() * 20_000)"})
	s.noticed(kernel.NoticeOutputLimit)
	if err := turn.Interrupt(s.ctx, 0); err != nil {
		t.Fatal(err)
	}
	if out := s.await(turn).output(); out != "ä😀"[:4]+"😀😀"[:6] {
		t.Errorf("output %q", out)
	}
}

// The done event of a cell that timed out says how long it had.
func TestTimeoutNamesItsLimit(t *testing.T) {
	s := one(t, hasty)
	for _, code := range []string{"while True: pass", "import signal, time\nfor n in (2, 15): signal.signal(n, signal.SIG_IGN)\nwhile True: time.sleep(1)"} {
		c := s.await(s.begin(spool.Cell{Code: code, TimeoutMs: 150})).want(spool.TurnTimeout)
		if c.done.LimitMs != 150 {
			t.Errorf("%s: %+v", code, c.done)
		}
	}
}
