package execserver_test

import (
	"context"
	"io"
	"iter"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/internal/wire/execserver"
)

// bursting is a backend that panics while it is armed.
type bursting struct {
	spool.Backend
	armed atomic.Bool
}

func (b *bursting) burst() {
	if b.armed.Load() {
		panic("armed")
	}
}

func (b *bursting) Stat(ctx context.Context, id spool.RunID) (spool.Info, error) {
	b.burst()
	return b.Backend.Stat(ctx, id)
}

func (b *bursting) List(ctx context.Context, f spool.Filter) iter.Seq2[spool.Info, error] {
	b.burst()
	return b.Backend.List(ctx, f)
}

func (b *bursting) Read(ctx context.Context, id spool.RunID, q spool.Query) (spool.Page, error) {
	b.burst()
	return b.Backend.Read(ctx, id, q)
}

func (b *bursting) Follow(ctx context.Context, id spool.RunID, after spool.Seq) iter.Seq2[spool.Event, error] {
	return func(yield func(spool.Event, error) bool) {
		for e, err := range b.Backend.Follow(ctx, id, after) {
			b.burst()
			if !yield(e, err) {
				return
			}
		}
	}
}

// lockedText is text that several goroutines write.
type lockedText struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// untilClosed reads what the server sends until it closes the connection.
func (c *rawClient) untilClosed(t *testing.T) string {
	t.Helper()
	b, err := io.ReadAll(c.r)
	if err != nil && !strings.Contains(err.Error(), "reset") {
		t.Fatal(err)
	}
	return string(b)
}

// TestPanicEndsOneConnection has the goroutines of connections panic: the one that reads,
// that of a request, and that of a reader. Only their connection ends, and the log says
// where it was.
func TestPanicEndsOneConnection(t *testing.T) {
	h := newHost(t)
	b := &bursting{Backend: h}
	said := new(lockedText)
	url := serveBackend(t, execserver.Options{Backend: b, Logger: slog.New(slog.NewTextHandler(said, nil))})
	other, err := client.Dial(t.Context(), url, client.Options{Reconnect: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	run, err := spool.Start(t.Context(), other, spool.Spec{Argv: []string{"cat"}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		burst func(c *rawClient)
		want  string // what the client is told
	}{
		{"the goroutine that reads", func(c *rawClient) {
			b.armed.Store(true)
			c.send(t, `{"id":1,"method":"initialize","params":{"clientName":"raw","resumeSessionId":"none"}}`)
		}, ""},
		{"a request", func(c *rawClient) {
			c.initialize(t)
			b.armed.Store(true)
			c.send(t, `{"id":1,"method":"run/stat","params":{"run":"none"}}`)
		}, `"message":"internal error"`},
		{"a reader", func(c *rawClient) {
			c.initialize(t)
			c.send(t, `{"id":1,"method":"run/follow","params":{"run":"`+string(run.ID())+`","follow":1,"after":0}}`)
			c.message(t)
			b.armed.Store(true)
			if _, err := h.Send(t.Context(), run.ID(), spool.Input{Kind: spool.InputStdin, Bytes: []byte("x\n")}); err != nil {
				t.Fatal(err)
			}
		}, ""},
	} {
		raw := dialRaw(t, url)
		c.burst(raw)
		if got := raw.untilClosed(t); !strings.Contains(got, c.want) {
			t.Errorf("%s: the client is told %q", c.name, got)
		}
		b.armed.Store(false)
		if _, err := other.Stat(t.Context(), run.ID()); err != nil {
			t.Errorf("%s: another connection: %v", c.name, err)
		}
	}
	if n := strings.Count(said.String(), "execserver_test.(*bursting)"); n < 3 {
		t.Errorf("the log has %d stacks: %s", n, said.String())
	}
}
