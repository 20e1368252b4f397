package client

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/servertest"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// dialServer starts a server and connects to it, for tests that look into the client.
func dialServer(t *testing.T) *Client {
	t.Helper()
	c, err := Dial(t.Context(), servertest.Start(t, t.TempDir()).URL, Options{Dial: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// opened is how many streams the connection had so far.
func (l *connection) opened() uint32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.nextID
}

// A start is one request: who follows the run or waits for it makes no other, and a
// run of which nobody reads sends little.
func TestStartSendsAhead(t *testing.T) {
	c := dialServer(t)
	const size = 3 << 20
	r, err := spool.Start(t.Context(), c, spool.Spec{Argv: []string{"/bin/sh", "-c", "head -c 3145728 /dev/zero"}})
	if err != nil {
		t.Fatal(err)
	}
	s := c.conn.ahead[0]
	held := func() (n int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, f := range s.frames {
			n += len(f)
		}
		return n
	}
	polltest.Until(t, "events came ahead", func() bool { return held() >= aheadBytes })
	if info, err := r.Info(t.Context()); err != nil || held() > 2*aheadBytes+1<<20 {
		t.Errorf("%d bytes came ahead of a reader, %v, %v", held(), info, err)
	}
	if out, err := r.Output(t.Context()); err != nil || len(out) != size {
		t.Errorf("%d bytes of output, %v", len(out), err)
	}
	r, err = spool.Start(t.Context(), c, spool.Spec{Argv: []string{"/bin/sh", "-c", "exit 3"}})
	if err != nil {
		t.Fatal(err)
	}
	if o, err := r.Wait(t.Context()); err != nil || o.ExitCode() != 3 {
		t.Errorf("the outcome is %v, %v", o, err)
	}
	if n := c.conn.opened(); n != 2 || len(c.conn.ahead) != 0 {
		t.Errorf("%d streams for two runs, %d wait for a reader", n, len(c.conn.ahead))
	}
	// What a reader took is there for the next.
	if o, err := r.Wait(t.Context()); err != nil || o.ExitCode() != 3 {
		t.Errorf("the outcome is %v, %v when asked again", o, err)
	}
}

// Wait does not take the end of what was sent ahead for the end of the run.
func TestWaitAfterWhatWasSentAhead(t *testing.T) {
	c := dialServer(t)
	r, err := spool.Start(t.Context(), c, spool.Spec{Argv: []string{"/bin/sh", "-c", "head -c 3145728 /dev/zero; exit 4"}})
	if err != nil {
		t.Fatal(err)
	}
	if o, err := r.Wait(t.Context()); err != nil || o.ExitCode() != 4 {
		t.Errorf("the outcome is %v, %v", o, err)
	}
}

// The oldest streams of runs that nobody follows end.
func TestStreamsAheadAreBounded(t *testing.T) {
	c := dialServer(t)
	var runs []*spool.Run
	for range aheadStreams + 4 {
		r, err := spool.Start(t.Context(), c, spool.Spec{Argv: []string{"/bin/echo", "hi"}})
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, r)
	}
	c.conn.mu.Lock()
	ahead, streams := len(c.conn.ahead), len(c.conn.streams)
	c.conn.mu.Unlock()
	if ahead != aheadStreams || streams != aheadStreams {
		t.Errorf("%d streams wait for a reader, %d are open", ahead, streams)
	}
	for _, r := range runs {
		if out, err := r.Output(t.Context()); err != nil || string(out) != "hi\n" {
			t.Errorf("output %q, %v", out, err)
		}
	}
	// A run that is removed is not there for a reader, either.
	r, err := spool.Start(t.Context(), c, spool.Spec{Argv: []string{"/bin/true"}})
	if err != nil {
		t.Fatal(err)
	}
	polltest.Until(t, "the run ended", func() bool {
		info, err := r.Info(t.Context())
		return err == nil && info.State == spool.StateClosed
	})
	if _, err := c.Remove(t.Context(), []spool.RunID{r.ID()}, false); err != nil {
		t.Fatal(err)
	}
	for _, err := range r.Events(t.Context(), 0) {
		if err == nil {
			t.Error("a removed run has events")
		}
	}
}

// oldServer knows run/start alone.
type oldServer struct{ methods []string }

func (s *oldServer) Request(r *rpc.Request) {
	s.methods = append(s.methods, r.Method)
	if r.Method == "run/start" {
		r.Reply(spool.Info{ID: "r"}, nil)
		return
	}
	r.Reply(nil, rpc.Errorf(rpc.CodeMethodNotFound, "unknown method"))
}

func (s *oldServer) Notification(string, json.RawMessage) error { return nil }
func (s *oldServer) Malformed(err error) error                  { return err }

// A server that does not know run/start_follow is asked once.
func TestStartOnAnOlderServer(t *testing.T) {
	toServer, fromClient := io.Pipe()
	toClient, fromServer := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	old := &oldServer{}
	server := rpc.NewConn(rpc.Lines(toServer, fromServer, "server"))
	l := &connection{rpc: rpc.NewConn(rpc.Lines(toClient, fromClient, "client")), streams: make(map[uint32]*stream)}
	served := make(chan struct{}, 2)
	go func() { _ = server.Serve(ctx, old); served <- struct{}{} }()
	go func() { _ = l.rpc.Serve(ctx, l); served <- struct{}{} }()
	for range 2 {
		if info, err := l.start(t.Context(), spool.Spec{}, 1<<20); err != nil || info.ID != "r" {
			t.Errorf("started %v, %v", info.ID, err)
		}
	}
	cancel()
	for _, p := range []io.Closer{fromClient, fromServer} {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	<-served
	<-served
	if want := []string{"run/start_follow", "run/start", "run/start"}; !slices.Equal(old.methods, want) {
		t.Errorf("the server was asked %v", old.methods)
	}
	if len(l.streams) != 0 {
		t.Errorf("%d streams are left", len(l.streams))
	}
}
