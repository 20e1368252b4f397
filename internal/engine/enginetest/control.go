package enginetest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
)

func reportsSignals(t *testing.T, e engine.Engine) {
	for _, tty := range []*spool.Size{nil, {Rows: 24, Cols: 80}} {
		for _, sig := range []struct {
			name   string
			number int
			full   string
		}{{"SIGHUP", 1, "SIGHUP"}, {"term", 15, "SIGTERM"}, {"9", 9, "SIGKILL"}, {"USR1", 10, "SIGUSR1"}} {
			// One process: a shell that is starting another when the signal
			// comes may die without it.
			spec := shell("echo ready; exec sleep 1000")
			spec.TTY = tty
			s, log := start(t, e, spec)
			log.Until(t, "output", func(e spool.Event) bool { return e.Kind == spool.KindOutput })
			if err := s.Control(t.Context(), spool.Control{Op: spool.ControlSignal, Signal: sig.name}); err != nil {
				t.Fatal(err)
			}
			want := spool.Outcome{Kind: spool.Exited, Code: 128 + sig.number, Signal: sig.full}
			if got := Wait(t, s); got != want {
				t.Errorf("outcome is %v, want %v", got, want)
			}
		}
	}
	s, _ := start(t, e, shell("sleep 1000"))
	for _, name := range []string{"", "SIGNOTHING", "0", "65", "-1"} {
		if err := s.Control(t.Context(), spool.Control{Op: spool.ControlSignal, Signal: name}); !errors.Is(err, spool.ErrInvalid) {
			t.Errorf("signal %q: %v, want %v", name, err, spool.ErrInvalid)
		}
	}
}

func interrupts(t *testing.T, e engine.Engine) {
	for _, tty := range []*spool.Size{nil, {Rows: 24, Cols: 80}} {
		spec := shell(`trap 'exit 3' INT; echo ready; read x`)
		spec.Stdin, spec.TTY = true, tty
		s, log := start(t, e, spec)
		log.Until(t, "output", func(e spool.Event) bool { return e.Kind == spool.KindOutput })
		if err := s.Control(t.Context(), spool.Control{Op: spool.ControlInterrupt}); err != nil {
			t.Fatal(err)
		}
		endRead(t, s)
		if got := Wait(t, s); got.Code != 3 {
			t.Errorf("tty %v: outcome is %v", tty != nil, got)
		}
	}
}

// endRead ends the read of a shell that got a signal. A signal that comes just
// before the shell waits for input does not end the wait: the trap runs after it.
func endRead(t *testing.T, s engine.Session) {
	_ = s.Send(t.Context(), spool.Input{Kind: spool.InputStdin, Bytes: []byte("\n")}) // fails if the shell has ended
}

func resizes(t *testing.T, e engine.Engine) {
	spec := shell("stty size; read x; stty size")
	spec.TTY = &spool.Size{Rows: 30, Cols: 100}
	s, log := start(t, e, spec)
	log.UntilOutput(t, spool.PTY, "30 100")
	if err := s.Control(t.Context(), spool.Control{Op: spool.ControlResize, Size: spool.Size{Rows: 50, Cols: 132}, By: "anna"}); err != nil {
		t.Fatal(err)
	}
	// The log says so once: the second resize changes nothing.
	if err := s.Control(t.Context(), spool.Control{Op: spool.ControlResize, Size: spool.Size{Rows: 50, Cols: 132}}); err != nil {
		t.Fatal(err)
	}
	send(t, s, "\n")
	log.UntilOutput(t, spool.PTY, "50 132")
	Wait(t, s)
	resized := slices.DeleteFunc(log.All(t), func(e spool.Event) bool { return e.Kind != spool.KindResized })
	if len(resized) != 1 || string(resized[0].Data) != `{"rows":50,"cols":132,"was":{"rows":30,"cols":100},"by":"anna"}` {
		t.Errorf("the log has the resized events %v", resized)
	}

	s, _ = start(t, e, shell("sleep 1000"))
	if err := s.Control(t.Context(), spool.Control{Op: spool.ControlResize, Size: spool.Size{Rows: 50, Cols: 132}}); !errors.Is(err, spool.ErrUnsupported) {
		t.Errorf("resize without a terminal: %v, want %v", err, spool.ErrUnsupported)
	}
}

func stopGrantsGrace(t *testing.T, e engine.Engine) {
	spec := shell(`trap 'echo bye; exit 4' TERM; echo ready; read x`)
	spec.Stdin = true
	s, log := start(t, e, spec)
	log.UntilOutput(t, spool.Stdout, "ready")
	if err := s.Control(t.Context(), spool.Control{Op: spool.ControlStop, Grace: Patience}); err != nil {
		t.Fatal(err)
	}
	endRead(t, s)
	if got := Wait(t, s); got.Code != 4 {
		t.Errorf("outcome is %v", got)
	}
	if got := string(log.Output(t, spool.Stdout)); got != "ready\nbye\n" {
		t.Errorf("output is %q", got)
	}
}

func stopKillsAfterGrace(t *testing.T, e engine.Engine) {
	spec := shell(`trap '' TERM; echo ready; read x`)
	spec.Stdin = true
	s, log := start(t, e, spec)
	log.UntilOutput(t, spool.Stdout, "ready")
	begin := time.Now()
	const grace = 50 * time.Millisecond
	if err := s.Control(t.Context(), spool.Control{Op: spool.ControlStop, Grace: grace}); err != nil {
		t.Fatal(err)
	}
	want := spool.Outcome{Kind: spool.Exited, Code: 137, Signal: "SIGKILL"}
	if got := Wait(t, s); got != want {
		t.Errorf("outcome is %v, want %v", got, want)
	}
	if took := time.Since(begin); took < grace {
		t.Errorf("killed after %v, before the grace of %v", took, grace)
	}
}

func controlIsIdempotent(t *testing.T, e engine.Engine) {
	s, _ := start(t, e, shell("sleep 1000"))
	for range 3 {
		for _, op := range []spool.ControlOp{spool.ControlStop, spool.ControlKill} {
			if err := s.Control(t.Context(), spool.Control{Op: op}); err != nil {
				t.Errorf("%s: %v", op, err)
			}
		}
	}
	Wait(t, s)
	for _, op := range []spool.ControlOp{spool.ControlStop, spool.ControlKill} {
		if err := s.Control(t.Context(), spool.Control{Op: op}); err != nil {
			t.Errorf("%s after the end: %v", op, err)
		}
	}
	for _, c := range []spool.Control{{Op: spool.ControlInterrupt}, {Op: spool.ControlSignal, Signal: "TERM"}} {
		if err := s.Control(t.Context(), c); !errors.Is(err, spool.ErrEnded) {
			t.Errorf("%s after the end: %v, want %v", c.Op, err, spool.ErrEnded)
		}
	}
	if err := s.Control(t.Context(), spool.Control{Op: "dance"}); !errors.Is(err, spool.ErrUnsupported) {
		t.Errorf("unknown control: %v, want %v", err, spool.ErrUnsupported)
	}
}
