// Package sandboxtest holds a back end of the sandbox engine to what every one
// of them must do, through the engine and a host: the contract, attempts to
// escape, runaways, and many contexts at once.
package sandboxtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/sandbox"
	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/python"
)

// Subject is a back end to be tested.
type Subject struct {
	// Config is what a run needs to be one of the subject's.
	Config python.SandboxConfig
	// New makes the back end. The engine closes it.
	New func() (guest.Backend, error)
	// CacheDir is where prepared things are kept between tests; empty lets
	// the back end choose.
	CacheDir string
	// Contexts is how many are open at once in the test of isolation; zero
	// means 100.
	Contexts int
	// Skip names tests that the subject has no part in, and why. It is for
	// what a back end does not have, not for what it does not do well.
	Skip map[string]string

	// shared is the host of all tests that do not need their own: what one
	// does must not hurt the next.
	shared *host.Host
}

// Run runs all tests on a subject.
func Run(t *testing.T, s Subject) {
	t.Setenv(secretName, secretValue) // before any process of a back end starts
	s.shared = newHost(t, s)
	for _, group := range []struct {
		name  string
		tests []test
	}{
		{"contract", contract}, {"escape", escapes}, {"runaway", runaways}, {"isolation", isolation},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, test := range group.tests {
				t.Run(test.name, func(t *testing.T) {
					if why, ok := s.Skip[test.name]; ok {
						t.Skip(why)
					}
					test.run(t, s)
				})
			}
		})
	}
}

type test struct {
	name string
	run  func(t *testing.T, s Subject)
}

// patience bounds a whole test, which takes seconds; the first use of a back
// end on a busy machine, more.
const patience = 6 * time.Minute

// lab is a host with the engine.
type lab struct {
	t    *testing.T
	ctx  context.Context
	host *host.Host
	subj Subject
}

func newLab(t *testing.T, s Subject) *lab {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	h := s.shared
	if h == nil {
		h = newHost(t, s)
	}
	return &lab{t, ctx, h, s}
}

// newHost opens a host with an engine that has only the subject.
func newHost(t *testing.T, s Subject) *host.Host {
	t.Helper()
	h, err := host.Open(host.Options{Dir: t.TempDir(), Engines: map[string]host.NewEngine{
		python.EngineSandbox: func(string) (engine.Engine, error) {
			return sandbox.New(sandbox.Options{
				CacheDir: s.CacheDir,
				Backends: map[string]func() (guest.Backend, error){s.Config.Backend: s.New},
			})
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

// box is a run.
type box struct {
	*lab
	run *spool.Run
}

// start starts a run with a configuration made from the subject's.
func (l *lab) start(change func(spec *spool.Spec, c *python.SandboxConfig)) *box {
	l.t.Helper()
	run, err := l.tryStart(change)
	if err != nil {
		l.t.Fatalf("start: %v", err)
	}
	return &box{l, run}
}

func (l *lab) tryStart(change func(spec *spool.Spec, c *python.SandboxConfig)) (*spool.Run, error) {
	spec := spool.Spec{Engine: python.EngineSandbox}
	c := l.subj.Config
	if change != nil {
		change(&spec, &c)
	}
	var err error
	if spec.Config, err = json.Marshal(c); err != nil {
		return nil, err
	}
	run, err := spool.Start(l.ctx, l.host, spec)
	if err == nil {
		l.t.Cleanup(func() {
			if err := run.Kill(context.Background()); err != nil && !errors.Is(err, spool.ErrEnded) {
				l.t.Errorf("kill: %v", err)
			}
		})
	}
	return run, err
}

// exec begins a cell.
func (b *box) exec(cell spool.Cell) *spool.Turn {
	b.t.Helper()
	turn, err := b.run.Exec(b.ctx, "", cell)
	if err != nil {
		b.t.Fatalf("exec: %v", err)
	}
	return turn
}

// ended is what came of a cell.
type ended struct {
	stdout, stderr string
	events         []spool.Event
	done           spool.Done
	took           time.Duration // from the input to the end
}

// wait collects what a turn does until it ends.
func (b *box) wait(turn *spool.Turn) ended {
	b.t.Helper()
	var out ended
	began := time.Time{}
	for e, err := range b.run.Events(b.ctx, turn.Seq()-1) {
		if err != nil {
			b.t.Fatalf("turn %d: %v", turn.Seq(), err)
		}
		if e.Seq == turn.Seq() {
			began = e.Time
			continue
		}
		if o, ok := e.Outcome(); ok {
			b.t.Fatalf("the run ended during turn %d: %v", turn.Seq(), o)
		}
		if e.Turn != turn.Seq() {
			continue
		}
		out.events = append(out.events, e)
		switch e.Kind {
		case spool.KindOutput:
			if e.Stream == spool.Stdout {
				out.stdout += string(e.Bytes)
			} else {
				out.stderr += string(e.Bytes)
			}
		case spool.KindDone:
			if err := json.Unmarshal(e.Data, &out.done); err != nil {
				b.t.Fatal(err)
			}
			out.took = e.Time.Sub(began)
			return out
		}
	}
	b.t.Fatalf("the log ends before turn %d does", turn.Seq())
	return out
}

// do runs code to its end.
func (b *box) do(code string) ended {
	b.t.Helper()
	return b.wait(b.exec(spool.Cell{Code: code}))
}

// prints runs code that must end well and print that.
func (b *box) prints(code, want string) {
	b.t.Helper()
	e := b.do(code)
	if e.stdout != want || e.done.Outcome != spool.TurnOK {
		b.t.Errorf("%s\nprints %q, want %q; stderr %q; done %+v", code, e.stdout, want, e.stderr, e.done)
	}
}

// alive fails unless the run goes on working.
func (b *box) alive() {
	b.t.Helper()
	b.prints("print('alive')", "alive\n")
}

// next returns the next event of a turn that matches, starting after a seq.
func (b *box) next(turn *spool.Turn, after spool.Seq, match func(*spool.Event) bool) spool.Event {
	b.t.Helper()
	for e, err := range b.run.Events(b.ctx, after) {
		if err != nil {
			b.t.Fatal(err)
		}
		if e.Turn == turn.Seq() && match(&e) {
			return e
		}
		if e.Turn == turn.Seq() && e.Kind == spool.KindDone {
			b.t.Fatalf("turn %d ended before that: %s", turn.Seq(), e.Data)
		}
	}
	b.t.Fatal("the log ended before that")
	return spool.Event{}
}

// said waits until a turn has written a text to stdout since a seq, and
// returns the seq of its end.
func (b *box) said(turn *spool.Turn, after spool.Seq, text string) spool.Seq {
	b.t.Helper()
	got := ""
	e := b.next(turn, after, func(e *spool.Event) bool {
		if e.Kind == spool.KindOutput && e.Stream == spool.Stdout {
			got += string(e.Bytes)
		}
		return strings.Contains(got, text)
	})
	return e.Seq
}

func (b *box) type_(text string) { //nolint:revive // type is taken
	b.t.Helper()
	if _, err := b.run.Send(b.ctx, spool.Input{Kind: spool.InputStdin, Bytes: []byte(text)}); err != nil {
		b.t.Fatalf("send stdin: %v", err)
	}
}

func (b *box) eof() {
	b.t.Helper()
	if _, err := b.run.Send(b.ctx, spool.Input{Kind: spool.InputEOF}); err != nil {
		b.t.Fatalf("send end of file: %v", err)
	}
}

// stop ends the run and returns how that went.
func (b *box) stop() spool.Outcome {
	b.t.Helper()
	if err := b.run.Stop(b.ctx); err != nil && !errors.Is(err, spool.ErrEnded) {
		b.t.Fatal(err)
	}
	o, err := b.run.Wait(b.ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	return o
}

// metrics returns the payloads of the metrics notices of a run.
func (b *box) metrics() []sandbox.Metrics {
	b.t.Helper()
	var all []sandbox.Metrics
	page, err := b.run.Read(b.ctx, spool.Query{MaxBytes: 64 << 20})
	if err != nil {
		b.t.Fatal(err)
	}
	for _, e := range page.Events {
		var n spool.Notice
		if e.Kind != spool.KindNotice || json.Unmarshal(e.Data, &n) != nil || n.Code != sandbox.NoticeMetrics {
			continue
		}
		var m sandbox.Metrics
		if err := json.Unmarshal(n.Data, &m); err != nil {
			b.t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}
