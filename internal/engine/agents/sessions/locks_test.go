package sessions

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func newLocks(t *testing.T, dir string) *Locks {
	t.Helper()
	l, err := NewLocks(dir)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func mustQueue(t *testing.T, l *Locks, session, run string) *Ticket {
	t.Helper()
	k, err := l.Queue(session, run)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Release)
	return k
}

// Two Locks on one directory are two processes as far as flock can tell.
func TestTicketsAreServedInOrder(t *testing.T) {
	dir := t.TempDir()
	a, b := newLocks(t, dir), newLocks(t, dir)
	session := "codex:t1"
	const n = 20
	var tickets []*Ticket
	for i := range n {
		tickets = append(tickets, mustQueue(t, []*Locks{a, b}[i%2], session, fmt.Sprint(i)))
	}
	var order []int
	var inside atomic.Int32
	var wg sync.WaitGroup
	for i, k := range tickets {
		wg.Go(func() {
			if err := k.Wait(t.Context(), nil); err != nil {
				t.Error(err)
			}
			if inside.Add(1) != 1 {
				t.Error("two at once")
			}
			order = append(order, i)
			inside.Add(-1)
			k.Release()
		})
	}
	wg.Wait()
	for i, got := range order {
		if i != got {
			t.Fatalf("served in the order %v", order)
		}
	}
	if left := ticketFiles(t, dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func ticketFiles(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.[0-9]*"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestStampTellsWhetherSomebodyWasThere(t *testing.T) {
	dir := t.TempDir()
	a, b := newLocks(t, dir), newLocks(t, dir)
	stamp := func(l *Locks) uint64 {
		t.Helper()
		k, err := l.Lock(t.Context(), "pi:s")
		if err != nil {
			t.Fatal(err)
		}
		defer k.Release()
		return k.Stamp()
	}
	first := stamp(a)
	if n := stamp(a); n != first+1 {
		t.Errorf("nobody was there: %d after %d", n, first)
	}
	if n := stamp(b); n != first+2 {
		t.Errorf("somebody was there: %d after %d", n, first)
	}
	// A ticket that was only waited for is nobody's visit.
	holder, waiter := mustQueue(t, a, "pi:s", ""), mustQueue(t, b, "pi:s", "")
	if err := holder.Wait(t.Context(), nil); err != nil || holder.Stamp() != first+3 {
		t.Errorf("%d, %v", holder.Stamp(), err)
	}
	waiter.Release()
	holder.Release()
	if n := stamp(a); n != first+4 {
		t.Errorf("%d after %d", n, first+3)
	}
	// What was forgotten is not mistaken for silence.
	if err := a.sweep(time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if n := stamp(a); n <= first+5 {
		t.Errorf("%d after %d was forgotten", n, first+4)
	}
}

// However processes come and go, one has the conversation at a time, and nobody
// fails because somebody else has just left.
func TestLocksHammered(t *testing.T) {
	dir := t.TempDir()
	var inside, visits atomic.Int32
	var wg sync.WaitGroup
	for range 4 {
		l := newLocks(t, dir) // as if it were another process
		for range 4 {
			wg.Go(func() {
				for range 6 {
					k, err := l.Lock(t.Context(), "pi:s")
					if err != nil {
						t.Error(err)
						return
					}
					if inside.Add(1) != 1 {
						t.Error("two at once")
					}
					visits.Add(1)
					inside.Add(-1)
					k.Release()
				}
			})
		}
	}
	wg.Wait()
	if n := visits.Load(); n != 96 {
		t.Errorf("%d of 96 visits", n)
	}
	if left := ticketFiles(t, dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestOtherConversationsDoNotWait(t *testing.T) {
	l := newLocks(t, t.TempDir())
	for _, session := range []string{"codex:a", "codex:b", "claude:a", "codex:a:b"} {
		k := mustQueue(t, l, session, "")
		if err := k.Wait(t.Context(), func(h Holder) { t.Errorf("%s waits for %v", session, h) }); err != nil {
			t.Error(err)
		}
	}
}

func TestWaitingTicketIsGivenUp(t *testing.T) {
	l := newLocks(t, t.TempDir())
	session := "pi:x"
	first, second, third := mustQueue(t, l, session, "run1"), mustQueue(t, l, session, "run2"), mustQueue(t, l, session, "run3")
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	err := second.Wait(ctx, func(h Holder) {
		if h.Run != "run1" || h.Pid != os.Getpid() {
			t.Errorf("waits for %v", h)
		}
		cancel(gone)
	})
	if !errors.Is(err, gone) {
		t.Errorf("gave up with %v", err)
	}
	second.Release()
	second.Release()
	first.Release()
	if err := third.Wait(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if h, held, err := l.Holder(session); err != nil || !held || h.Run != "run3" {
		t.Errorf("held by %v, %v, %v", h, held, err)
	}
	third.Release()
	if h, held, err := l.Holder(session); err != nil || held {
		t.Errorf("held by %v, %v, %v", h, held, err)
	}
}

// The test binary has a role in which it only holds a lock.
func init() {
	if dir := os.Getenv("SPOOL_TEST_LOCK_DIR"); dir != "" {
		lockChild(dir)
		os.Exit(0)
	}
}

// lockChild takes a ticket, says so, and holds it until its input ends.
func lockChild(dir string) {
	l, err := NewLocks(dir)
	if err != nil {
		panic(err)
	}
	k, err := l.Queue("codex:shared", "child")
	if err != nil {
		panic(err)
	}
	fmt.Println("queued")
	if err := k.Wait(context.Background(), nil); err != nil {
		panic(err)
	}
	fmt.Println("mine")
	_, _ = io.Copy(io.Discard, os.Stdin)
	k.Release()
	fmt.Println("released")
}

func TestLocksHoldAcrossProcesses(t *testing.T) {
	dir := t.TempDir()
	start := func() (*exec.Cmd, io.WriteCloser, *bufio.Scanner) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "SPOOL_TEST_LOCK_DIR="+dir)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd, in, bufio.NewScanner(out)
	}
	say := func(s *bufio.Scanner, want string) {
		t.Helper()
		if !s.Scan() || s.Text() != want {
			t.Fatalf("child said %q, %v; want %q", s.Text(), s.Err(), want)
		}
	}
	holder, _, holderSays := start()
	say(holderSays, "queued")
	say(holderSays, "mine")
	next, nextIn, nextSays := start()
	say(nextSays, "queued")

	l := newLocks(t, dir)
	mine := mustQueue(t, l, "codex:shared", "test")
	if h, held, err := l.Holder("codex:shared"); err != nil || !held || h.Pid != holder.Process.Pid {
		t.Errorf("held by %v, %v, %v", h, held, err)
	}
	// A holder that is killed leaves its ticket behind, unlocked.
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait()
	say(nextSays, "mine")
	waits, done := make(chan Holder, 1), make(chan error)
	go func() { done <- mine.Wait(t.Context(), func(h Holder) { waits <- h }) }()
	if h := <-waits; h.Pid != next.Process.Pid || h.Run != "child" {
		t.Errorf("waits for %v", h)
	}
	if err := nextIn.Close(); err != nil {
		t.Fatal(err)
	}
	say(nextSays, "released")
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := next.Wait(); err != nil {
		t.Error(err)
	}
	if files := ticketFiles(t, dir); len(files) != 1 || !strings.HasSuffix(files[0], ".3") {
		t.Errorf("tickets left: %v", files)
	}
}
