//go:build linux

package kernel_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/kernel"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/servertest"
	"github.com/spool-run/spool/python"
)

// settleIn bounds every wait of a test: nothing may wait for ever.
const settleIn = 3 * time.Minute

// lab is where the tests of one interpreter run: a backend with kernels.
type lab struct {
	backend     spool.Backend
	interpreter string // empty lets the engine find one
	options     []option
}

// openHost opens a host with kernels in this process.
func openHost(t *testing.T, o kernel.Options) *host.Host {
	t.Helper()
	h, err := host.Open(host.Options{Dir: t.TempDir(), Engines: map[string]host.NewEngine{
		python.EngineKernel: func(owner string) (engine.Engine, error) {
			o.Owner = owner
			return kernel.New(o)
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return h
}

// openServer starts the real server and connects with it.
func openServer(t *testing.T) spool.Backend {
	t.Helper()
	s := servertest.Start(t, t.TempDir())
	ctx, cancel := context.WithTimeout(t.Context(), settleIn)
	defer cancel()
	c, err := client.Dial(ctx, s.URL, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

// pythons returns the oldest and the newest Python of those that are supported
// and installed here, and that of the system; with SPOOL_TEST_ALL_PYTHONS all.
var pythons = sync.OnceValue(func() []string {
	home, _ := os.UserHomeDir()
	versions := make(map[int]string)
	for _, pattern := range []string{
		filepath.Join(home, ".pyenv/versions/3.*/bin/python3"), "/usr/bin/python3", "/usr/bin/python3.*", "/usr/local/bin/python3.*", "/opt/*/bin/python3.*",
	} {
		files, _ := filepath.Glob(pattern)
		for _, f := range files {
			out, err := exec.Command(f, "-c", "import sys; print(sys.version_info[1])").Output()
			minor, convErr := strconv.Atoi(strings.TrimSpace(string(out)))
			if err == nil && convErr == nil && minor >= 9 && versions[minor] == "" {
				versions[minor] = f
			}
		}
	}
	var minors []int
	for v := range versions {
		minors = append(minors, v)
	}
	slices.Sort(minors)
	var found []string
	if os.Getenv("SPOOL_TEST_ALL_PYTHONS") != "" {
		for _, v := range minors {
			found = append(found, versions[v])
		}
		return found
	}
	if n := len(minors); n > 0 {
		found = append(found, versions[minors[0]])
		if n > 1 {
			found = append(found, versions[minors[n-1]])
		}
	}
	if _, err := os.Stat("/usr/bin/python3"); err == nil && !slices.Contains(found, "/usr/bin/python3") {
		found = append(found, "/usr/bin/python3")
	}
	return found
})

// session is a run and what a test does with it.
type session struct {
	t    *testing.T
	run  *spool.Run
	ctx  context.Context
	once *sync.Once // of its end
}

// option changes what is started.
type option func(*spool.Spec, *python.KernelConfig)

// start starts a kernel that is killed at the end of the test.
func (l lab) start(t *testing.T, options ...option) *session {
	t.Helper()
	s, err := l.tryStart(t, options...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (l lab) tryStart(t *testing.T, options ...option) (*session, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), settleIn)
	t.Cleanup(cancel)
	spec := spool.Spec{Engine: python.EngineKernel, Cwd: t.TempDir()}
	// However busy the machine is, an interrupt is enough for a cell that listens.
	cfg := python.KernelConfig{Interpreter: l.interpreter, StartTimeoutMs: settleIn.Milliseconds(), TerminateMs: settleIn.Milliseconds()}
	for _, o := range append(slices.Clone(l.options), options...) {
		o(&spec, &cfg)
	}
	var err error
	if spec.Config, err = json.Marshal(cfg); err != nil {
		t.Fatal(err)
	}
	run, err := spool.Start(ctx, l.backend, spec)
	if err != nil {
		return nil, err
	}
	s := &session{t, run, ctx, new(sync.Once)}
	t.Cleanup(s.end)
	return s, nil
}

// end kills the kernel, once.
func (s *session) end() {
	s.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), settleIn)
		defer cancel()
		if err := s.run.Kill(ctx); err != nil {
			s.t.Errorf("kill: %v", err)
		}
		if _, err := s.run.Wait(ctx); err != nil {
			s.t.Errorf("wait after kill: %v", err)
		}
	})
}

func config(f func(*python.KernelConfig)) option {
	return func(_ *spool.Spec, c *python.KernelConfig) { f(c) }
}

func spec(f func(*spool.Spec)) option {
	return func(s *spool.Spec, _ *python.KernelConfig) { f(s) }
}

// hasty is a schedule that a test can wait for.
var hasty = config(func(c *python.KernelConfig) { c.AgainMs, c.TerminateMs, c.KillMs = 100, 200, 300 })

// usual is the schedule that everybody has.
var usual = config(func(c *python.KernelConfig) { c.AgainMs, c.TerminateMs, c.KillMs = 0, 0, 0 })

// once interrupts a cell once.
var once = config(func(c *python.KernelConfig) { c.AgainMs = settleIn.Milliseconds() })

// slowly grants the end of a run as much time as a busy machine needs.
var slowly = spec(func(s *spool.Spec) { s.Limits.Grace = settleIn })

var asking = config(func(c *python.KernelConfig) { c.Input = python.InputAsk })

// begin sends a cell.
func (s *session) begin(cell spool.Cell) *spool.Turn {
	s.t.Helper()
	turn, err := s.run.Exec(s.ctx, "", cell)
	if err != nil {
		s.t.Fatalf("send cell: %v", err)
	}
	return turn
}

// exec runs code and returns what came of it.
func (s *session) exec(code string) *cell {
	s.t.Helper()
	return s.await(s.begin(spool.Cell{Code: code}))
}

// ok runs code that must work.
func (s *session) ok(code string) *cell {
	s.t.Helper()
	c := s.exec(code)
	c.want(spool.TurnOK)
	return c
}

// await waits for the end of a turn.
func (s *session) await(turn *spool.Turn) *cell {
	s.t.Helper()
	c := &cell{t: s.t}
	for e, err := range turn.Events(s.ctx) {
		if err != nil {
			s.t.Fatalf("turn %d: %v; so far %s", turn.Seq(), err, c)
		}
		c.events = append(c.events, e)
		if e.Kind == spool.KindDone {
			if err := json.Unmarshal(e.Data, &c.done); err != nil {
				s.t.Fatal(err)
			}
			return c
		}
	}
	s.t.Fatalf("turn %d has no end: %s", turn.Seq(), c)
	return nil
}

// see waits until a turn, or the run if that is nil, has written a text.
func (s *session) see(turn *spool.Turn, text string) {
	s.t.Helper()
	var seen strings.Builder
	events := s.run.Events(s.ctx, 0)
	if turn != nil {
		events = turn.Events(s.ctx)
	}
	for e, err := range events {
		if err != nil {
			s.t.Fatalf("%q is not written: %v, but %q", text, err, seen.String())
		}
		if e.Kind == spool.KindOutput && (turn != nil || e.Turn == 0) {
			seen.Write(e.Bytes)
			if strings.Contains(seen.String(), text) {
				return
			}
		}
		if e.Kind == spool.KindDone && turn != nil {
			break
		}
	}
	s.t.Fatalf("%q was not written, but %q", text, seen.String())
}

// asked waits for the first ask of a turn.
func (s *session) asked(turn *spool.Turn) (spool.Seq, spool.Ask) {
	s.t.Helper()
	for e, err := range turn.Events(s.ctx) {
		if err != nil {
			s.t.Fatal(err)
		}
		if e.Kind == spool.KindAsk {
			var a spool.Ask
			if err := json.Unmarshal(e.Data, &a); err != nil {
				s.t.Fatal(err)
			}
			return e.Seq, a
		}
	}
	s.t.Fatal("nothing was asked")
	return 0, spool.Ask{}
}

// queued waits until so many cells wait in the engine: a cell that was sent reaches
// it later.
func (s *session) queued(n int) {
	s.t.Helper()
	polltest.Until(s.t, fmt.Sprintf("%d cells that wait", n), func() bool { return details(s.t, s).Queued == n })
}

// notices returns the codes of the notices of the run so far.
func (s *session) notices() []string {
	s.t.Helper()
	var codes []string
	for _, e := range s.log() {
		var n spool.Notice
		if e.Kind == spool.KindNotice && json.Unmarshal(e.Data, &n) == nil {
			codes = append(codes, n.Code)
		}
	}
	return codes
}

// log returns the events so far.
func (s *session) log() []spool.Event {
	s.t.Helper()
	info, err := s.run.Info(s.ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	var all []spool.Event
	for after := spool.Seq(0); after < info.Last; {
		p, err := s.run.Read(s.ctx, spool.Query{After: after})
		if err != nil {
			s.t.Fatal(err)
		}
		all = append(all, p.Events...)
		after = p.Next
	}
	return all
}

// cell is a turn that ended.
type cell struct {
	t      *testing.T
	events []spool.Event
	done   spool.Done
}

func (c *cell) want(o spool.TurnOutcome) *cell {
	c.t.Helper()
	if c.done.Outcome != o {
		c.t.Fatalf("outcome %q, want %q: %s", c.done.Outcome, o, c)
	}
	return c
}

// String shows what happened, for the message of a test that fails.
func (c *cell) String() string {
	var b strings.Builder
	for _, e := range c.events {
		text := string(e.Bytes)
		if len(e.Data) > 0 {
			text = string(e.Data)
		}
		if len(text) > 2000 {
			text = text[:2000] + "…"
		}
		fmt.Fprintf(&b, "\n\t%d %s %s %q", e.Seq, e.Kind, e.Stream, text)
	}
	return b.String()
}

// output is what was written to the streams, in order; to both if none is
// named.
func (c *cell) output(streams ...spool.Stream) string {
	var b strings.Builder
	for _, e := range c.events {
		if e.Kind == spool.KindOutput && (len(streams) == 0 || slices.Contains(streams, e.Stream)) {
			b.Write(e.Bytes)
		}
	}
	return b.String()
}

func (c *cell) wantOutput(want string, streams ...spool.Stream) {
	c.t.Helper()
	if got := c.output(streams...); got != want {
		c.t.Errorf("output %q, want %q; %s", got, want, c)
	}
}

// displays returns what was displayed, not the result.
func (c *cell) displays() []python.Display { return c.shown(python.KindDisplay) }

func (c *cell) shown(kind spool.Kind) []python.Display {
	c.t.Helper()
	var all []python.Display
	for _, e := range c.events {
		if e.Kind != kind {
			continue
		}
		var d python.Display
		if err := json.Unmarshal(e.Data, &d); err != nil {
			c.t.Fatalf("%s: %v", e.Data, err)
		}
		if _, status := d.Bundle[python.MIMEStatus]; !status {
			all = append(all, d)
		}
	}
	return all
}

// result is the plain text of the result; empty if there is none.
func (c *cell) result() string {
	c.t.Helper()
	all := c.shown(python.KindResult)
	if len(all) == 0 {
		return ""
	}
	return plainText(c.t, all[len(all)-1])
}

func (c *cell) wantResult(want string) {
	c.t.Helper()
	if got := c.result(); got != want {
		c.t.Errorf("result %q, want %q; %s", got, want, c)
	}
}

func plainText(t *testing.T, d python.Display) string {
	t.Helper()
	var text string
	if raw, ok := d.Bundle["text/plain"]; ok {
		if err := json.Unmarshal(raw, &text); err != nil {
			t.Fatalf("text %s: %v", raw, err)
		}
	}
	return text
}

// exception returns what was raised.
func (c *cell) exception() python.Exception {
	c.t.Helper()
	for _, e := range c.events {
		if e.Kind == python.KindException {
			var x python.Exception
			if err := json.Unmarshal(e.Data, &x); err != nil {
				c.t.Fatal(err)
			}
			return x
		}
	}
	c.t.Fatalf("nothing was raised: %s", c)
	return python.Exception{}
}

func (c *cell) wantException(name, message string) python.Exception {
	c.t.Helper()
	x := c.exception()
	if x.Name != name || !strings.Contains(x.Message, message) {
		c.t.Errorf("%s: %q, want %s with %q", x.Name, x.Message, name, message)
	}
	return x
}

// alive checks that the state is kept and the next cell runs.
func (s *session) alive(expression, want string) {
	s.t.Helper()
	s.ok(expression).wantResult(want)
}
