package client_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/host/backendtest"
	"github.com/spool-run/spool/internal/netcut"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/servertest"
)

var sh, start = backendtest.Shell, backendtest.Start

func proxied(t *testing.T, url string) (*netcut.Proxy, string) {
	t.Helper()
	p, err := netcut.NewProxy(strings.TrimPrefix(url, "ws://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p, "ws://" + p.Addr()
}

// TestResumeLosesAndRepeatsNothing cuts the connection ten times in the middle
// of 100 MB, at places that fall inside frames.
func TestResumeLosesAndRepeatsNothing(t *testing.T) {
	const script = "seq 1 14500000" // about 100 MB, no two lines alike
	sum := sha256.New()
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Stdout = sum
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	proxy, url := proxied(t, servertest.Start(t, t.TempDir()).URL)
	r := start(t, dial(t, url, client.Options{}), sh(script))

	got, size, next, cuts := sha256.New(), 0, spool.Seq(1), 0
	proxy.CutAfter(netcut.ToClient, 1_234_567)
	for e, err := range r.Events(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Seq != next {
			t.Fatalf("event %d, want %d", e.Seq, next)
		}
		next++
		got.Write(e.Bytes)
		size += len(e.Bytes)
		if size > (cuts+1)*9_000_000 && cuts < 10 {
			cuts++
			proxy.CutAfter(netcut.ToClient, int64(1000+cuts*777))
		}
	}
	if a, b := hex.EncodeToString(got.Sum(nil)), hex.EncodeToString(sum.Sum(nil)); a != b {
		t.Errorf("%d bytes with sum %s, want %s", size, a, b)
	}
	if proxy.Count() < 10 {
		t.Errorf("%d connections: the cuts did not happen", proxy.Count())
	}
}

// TestReportsTransportDisconnect kills the server for good.
func TestReportsTransportDisconnect(t *testing.T) {
	server := servertest.Start(t, t.TempDir(), "--listen", servertest.OwnAddress()) // no other server takes its port
	c := dial(t, server.URL, client.Options{Reconnect: 100 * time.Millisecond})
	r := start(t, c, sh("echo ready; exec sleep 1000"))
	const want = "exec-server transport disconnected"

	var events []spool.Event
	for e, err := range r.Events(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
		if len(events) == 1 {
			server.Kill()
		}
	}
	n := len(events)
	if n != 3 || events[n-1].Kind != spool.KindClosed {
		t.Fatalf("events %v", events)
	}
	o, ok := events[n-2].Outcome()
	if !ok || o.Kind != spool.Unknown || !strings.HasPrefix(o.Reason, want) {
		t.Errorf("the event before closed gives %v", o)
	}
	page, err := r.Read(t.Context(), spool.Query{After: 1, Wait: time.Hour})
	if err != nil || !strings.HasPrefix(page.Failure, want) || !page.End() || page.Info.State != spool.StateClosed {
		t.Errorf("read: %+v, %v", page, err)
	}
	var lost *client.DisconnectedError
	if _, err := r.Info(t.Context()); !errors.As(err, &lost) {
		t.Errorf("stat: %v", err)
	}
}

// TestEveryOpenHandleHearsOfTheLoss has many readers and callers wait when the
// server dies.
func TestEveryOpenHandleHearsOfTheLoss(t *testing.T) {
	server := servertest.Start(t, t.TempDir(), "--listen", servertest.OwnAddress()) // no other server takes its port
	c := dial(t, server.URL, client.Options{Reconnect: 100 * time.Millisecond})
	const n = 20
	done := make(chan error, 2*n)
	ready := make(chan struct{}, n)
	for range n {
		r := start(t, c, sh("echo ready; exec sleep 1000"))
		go func() {
			var last spool.Event
			for e, err := range r.Events(t.Context(), 0) {
				if err != nil {
					done <- err
					return
				}
				if e.Kind == spool.KindOutput {
					ready <- struct{}{}
				}
				last = e
			}
			if last.Kind != spool.KindClosed {
				done <- fmt.Errorf("the last event is %v", last)
			}
			done <- nil
		}()
		go func() {
			p, err := r.Read(t.Context(), spool.Query{After: 1, Wait: time.Hour})
			if err == nil && p.Failure == "" {
				err = fmt.Errorf("page %+v without a failure", p)
			}
			done <- err
		}()
	}
	for range n {
		<-ready
	}
	server.Kill()
	for range 2 * n {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestServerRestart kills the server and starts another on the same state and
// port while the client holds on to its handles.
func TestServerRestart(t *testing.T) {
	state := t.TempDir()
	server := servertest.Start(t, state, "--listen", servertest.OwnAddress())
	c := dial(t, server.URL, client.Options{})
	finished := start(t, c, sh("echo one; echo two >&2; exit 4"))
	collect := func(r *spool.Run) (events []spool.Event) {
		t.Helper()
		for e, err := range r.Events(t.Context(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			events = append(events, e)
		}
		return events
	}
	before := collect(finished)
	spec := sh("echo alive; read x; echo \"$x\"; exit 6")
	spec.Stdin = true
	live := start(t, c, spec)
	var events []spool.Event
	for e, err := range live.Events(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
		if len(events) == 1 {
			server.Kill()
			servertest.Start(t, state, "--listen", server.URL)
			if _, err := live.Stdin(t.Context()).Write([]byte("back\n")); err != nil {
				t.Fatal(err)
			}
		}
	}
	var got []string
	for _, e := range events {
		got = append(got, fmt.Sprintf("%d %s %s", e.Seq, e.Kind, e.Bytes))
	}
	want := []string{"1 output alive\n", "2 output back\n", "3 exited ", "4 closed "}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(before, collect(finished)); diff != "" {
		t.Errorf("the log of the finished run changed: %s", diff)
	}
}

// TestKeeperDeath kills the process that has the runs: how they ended is then
// unknown, their readers are told, and they do not run on.
func TestKeeperDeath(t *testing.T) {
	state := t.TempDir()
	c := dial(t, servertest.Start(t, state).URL, client.Options{})
	mark := fmt.Sprintf("100%d", time.Now().UnixNano())
	run := start(t, c, sh("echo alive; exec sleep "+mark))
	var events []spool.Event
	for e, err := range run.Events(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
		if len(events) == 1 {
			owners, err := host.Owners(state)
			if err != nil || len(owners) != 1 {
				t.Fatalf("owners %v, %v", owners, err)
			}
			if err := syscall.Kill(owners[0].Pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(events) != 3 || events[2].Kind != spool.KindClosed || events[2].Seq != 3 {
		t.Fatalf("events %v", events)
	}
	if o, ok := events[1].Outcome(); !ok || o.Kind != spool.Unknown || !strings.Contains(o.Reason, "died") {
		t.Errorf("outcome %v", o)
	}
	// A killed process takes a moment to end.
	polltest.Until(t, "the end of the process of the dead keeper", func() bool {
		return exec.Command("pgrep", "-f", "sleep "+mark).Run() != nil
	})
	// The next run has a new keeper.
	if o, err := start(t, c, sh("exit 3")).Wait(t.Context()); err != nil || o.Code != 3 {
		t.Errorf("after that: %v, %v", o, err)
	}
}

// TestUnreachable gives up at once, with the cause.
func TestUnreachable(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := client.Dial(ctx, "ws://127.0.0.1:1", client.Options{})
	if err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("dial: %v", err)
	}
}
