package agents

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/enginetest"
)

// newEngine returns an engine with a directory of its own.
func newEngine(t testing.TB) *Engine {
	t.Helper()
	e, err := New(Options{Dir: t.TempDir()})
	if runtime.GOOS != "linux" && errors.Is(err, spool.ErrUnsupported) {
		skipped.Store(true)
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("close engine: %v", err)
		}
	})
	return e
}

// fakeCLI writes an agent as an executable: a shell script, as a person would
// write it to reproduce something.
func fakeCLI(t testing.TB, script string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "agent")
	// A process that is just being forked would hold the file open, and a
	// file that is open for writing cannot be executed.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

// lines makes a script that prints lines.
func printLines(lines ...string) string {
	return "cat <<'END-OF-LINES'\n" + strings.Join(lines, "\n") + "\nEND-OF-LINES\n"
}

// chat is a run and its log.
type chat struct {
	t   testing.TB
	s   engine.Session
	log *enginetest.Log
}

// converse starts a run of a fake agent.
func converse(t testing.TB, e engine.Engine, c agent.Config) *chat {
	t.Helper()
	r, err := tryConverse(t, e, c, spool.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func tryConverse(t testing.TB, e engine.Engine, c agent.Config, l spool.Limits) (*chat, error) {
	t.Helper()
	config, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	log := enginetest.NewLog()
	s, err := e.Start(context.Background(), spool.Spec{
		Engine: agent.Engine, Config: config, Cwd: t.TempDir(), Limits: l,
		Env: map[string]string{"PATH": os.Getenv("PATH"), "HOME": t.TempDir()},
	}, log)
	if err != nil {
		return nil, err
	}
	r := &chat{t, s, log}
	t.Cleanup(func() {
		if err := s.Control(context.Background(), spool.Control{Op: spool.ControlKill}); err != nil && !errors.Is(err, spool.ErrEnded) {
			t.Errorf("kill: %v", err)
		}
		s.Wait()
	})
	return r, nil
}

// say gives a prompt and returns its turn, as a host does.
func (r *chat) say(text string) spool.Seq {
	r.t.Helper()
	return r.show(spool.Prompt{Text: text})
}

// show gives the run a prompt.
func (r *chat) show(p spool.Prompt) spool.Seq {
	r.t.Helper()
	data, err := json.Marshal(p)
	if err != nil {
		r.t.Fatal(err)
	}
	in := spool.Input{Kind: spool.InputPrompt, Data: data}
	if err := r.s.Takes(in); err != nil {
		r.t.Fatalf("takes prompt: %v", err)
	}
	said, err := json.Marshal(spool.Said{Kind: in.Kind, Data: data})
	if err != nil {
		r.t.Fatal(err)
	}
	if in.Seq, err = r.log.Append(spool.Event{Kind: spool.KindInput, Data: said}); err != nil {
		r.t.Fatal(err)
	}
	if err := r.s.Send(context.Background(), in); err != nil {
		r.t.Fatalf("send prompt: %v", err)
	}
	return in.Seq
}

// answer answers an ask.
func (r *chat) answer(ask spool.Seq, value any) {
	r.t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		r.t.Fatal(err)
	}
	if data, err = json.Marshal(spool.Answer{Ask: ask, Data: data, By: "test"}); err != nil {
		r.t.Fatal(err)
	}
	in := spool.Input{Kind: spool.InputAnswer, Data: data}
	if in.Seq, err = r.log.Append(spool.Event{Kind: spool.KindInput, Data: data}); err != nil {
		r.t.Fatal(err)
	}
	if err := r.s.Send(context.Background(), in); err != nil {
		r.t.Fatalf("send answer: %v", err)
	}
}

// eof says that no prompt comes any more.
func (r *chat) eof() {
	r.t.Helper()
	if err := r.s.Send(context.Background(), spool.Input{Kind: spool.InputEOF}); err != nil {
		r.t.Fatalf("send end of input: %v", err)
	}
}

func (r *chat) control(c spool.Control) {
	r.t.Helper()
	if err := r.s.Control(context.Background(), c); err != nil {
		r.t.Fatalf("control %s: %v", c.Op, err)
	}
}

// done waits for the end of a turn.
func (r *chat) done(turn spool.Seq) spool.Done {
	r.t.Helper()
	e := r.log.Until(r.t, "the end of the turn", func(e spool.Event) bool { return e.Kind == spool.KindDone && e.Turn == turn })
	return enginetest.Data[spool.Done](r.t, e)
}

// until waits for an event of a kind.
func (r *chat) until(kind spool.Kind) spool.Event {
	r.t.Helper()
	return r.log.Until(r.t, string(kind), func(e spool.Event) bool { return e.Kind == kind })
}

// ask gives one prompt, ends the run, and returns how the turn ended.
func (r *chat) ask(text string) spool.Done {
	r.t.Helper()
	turn := r.say(text)
	r.eof()
	d := r.done(turn)
	enginetest.Wait(r.t, r.s)
	return d
}

// events are those of the log with a kind, decoded.
func events[T any](t testing.TB, log *enginetest.Log, kind spool.Kind) []T {
	t.Helper()
	var list []T
	for _, e := range log.All(t) {
		if e.Kind == kind {
			list = append(list, enginetest.Data[T](t, e))
		}
	}
	return list
}

// kinds are those of the log, without inputs.
func kinds(t testing.TB, log *enginetest.Log) []spool.Kind {
	t.Helper()
	var list []spool.Kind
	for _, e := range log.All(t) {
		if e.Kind != spool.KindInput {
			list = append(list, e.Kind)
		}
	}
	return list
}

func mustJSON(t testing.TB, v any) json.RawMessage {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
