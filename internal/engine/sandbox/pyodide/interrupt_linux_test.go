package pyodide

import (
	"context"
	"testing"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
)

// waitingHost is a host that has neither input nor answers. It tells when a
// script waits for one.
type waitingHost struct {
	*testHost
	waits chan struct{}
}

func (h *waitingHost) Read(ctx context.Context, _ []byte) (int, error) {
	h.waits <- struct{}{}
	<-ctx.Done()
	return 0, ctx.Err()
}

func (h *waitingHost) Ask(ctx context.Context, _ string, _ []byte) []byte {
	h.waits <- struct{}{}
	<-ctx.Done()
	return guest.Reply{Error: &guest.ReplyError{Code: "EINTR", Message: "interrupted"}}.Encode()
}

// An interrupt ends the wait for the host, and the interpreter goes on.
func TestInterruptWhileItWaits(t *testing.T) {
	c := open(t, real(t), nil)
	prints(t, c, "x = 1\nimport spool", "")
	for _, code := range []string{"input()", "spool.fs.read('/x')", "input()"} {
		h := &waitingHost{newHost(), make(chan struct{}, 1)}
		go func() {
			<-h.waits
			if err := c.Interrupt(); err != nil {
				t.Error(err)
			}
		}()
		r, err := c.Run(testContext(t), guest.Script{Code: code}, h)
		if err != nil || r.Lost || r.ExitCode != 130 || r.Exception == nil || r.Exception.Name != "KeyboardInterrupt" {
			t.Errorf("%s: %+v, %v: %s", code, r, err, h.stderr())
		}
		prints(t, c, "print(x)", "1\n")
	}
}

// Python may take an interrupt in and wait before it raises the exception: the
// wait that comes next ends at once. One whose exception was raised waits on.
func TestInterruptBeforeAWait(t *testing.T) {
	for before, want := range map[bool]int{true: 0, false: 1} {
		turn, called := &turn{}, 0
		if before {
			turn.interrupt()
		}
		ok := turn.wait(t.Context(), func(context.Context) { called++ })
		if ok == before || called != want {
			t.Errorf("interrupted before %v: %v, %d calls", before, ok, called)
		}
		if !turn.wait(t.Context(), func(context.Context) { called++ }) || called != want+1 {
			t.Errorf("interrupted before %v: the wait after it did not happen", before)
		}
	}
	turn := &turn{}
	if turn.wait(t.Context(), func(ctx context.Context) { turn.interrupt(); <-ctx.Done() }) {
		t.Error("a wait that was interrupted was not")
	}
}
