package agent

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
)

func newLocks(t *testing.T, dir string) *Locks {
	t.Helper()
	l, err := NewLocks(dir)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func mustQueue(t *testing.T, l *Locks, token Token, run string) *Ticket {
	t.Helper()
	k, err := l.Queue(token, run)
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
	token := Token{"codex", "t1"}
	const n = 20
	var tickets []*Ticket
	for i := range n {
		tickets = append(tickets, mustQueue(t, []*Locks{a, b}[i%2], token, fmt.Sprint(i)))
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
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 || left[0].Name() != "gate" {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestOtherConversationsDoNotWait(t *testing.T) {
	l := newLocks(t, t.TempDir())
	for _, token := range []Token{{"codex", "a"}, {"codex", "b"}, {"claude", "a"}, {"codex", "a:b"}} {
		k := mustQueue(t, l, token, "")
		if err := k.Wait(t.Context(), func(h LockHolder) { t.Errorf("%v waits for %v", token, h) }); err != nil {
			t.Error(err)
		}
	}
}

func TestWaitingTicketIsGivenUp(t *testing.T) {
	l := newLocks(t, t.TempDir())
	token := Token{"pi", "x"}
	first, second, third := mustQueue(t, l, token, "run1"), mustQueue(t, l, token, "run2"), mustQueue(t, l, token, "run3")
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	err := second.Wait(ctx, func(h LockHolder) {
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
	if h, held, err := l.Holder(token); err != nil || !held || h.Run != "run3" {
		t.Errorf("held by %v, %v, %v", h, held, err)
	}
	third.Release()
	if h, held, err := l.Holder(token); err != nil || held {
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
	k, err := l.Queue(Token{"codex", "shared"}, "child")
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
	mine := mustQueue(t, l, Token{"codex", "shared"}, "test")
	if h, held, err := l.Holder(Token{"codex", "shared"}); err != nil || !held || h.Pid != holder.Process.Pid {
		t.Errorf("held by %v, %v, %v", h, held, err)
	}
	// A holder that is killed leaves its ticket behind, unlocked.
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait()
	say(nextSays, "mine")
	waits, done := make(chan LockHolder, 1), make(chan error)
	go func() { done <- mine.Wait(t.Context(), func(h LockHolder) { waits <- h }) }()
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
	files, _ := filepath.Glob(filepath.Join(dir, "*.*"))
	if len(files) != 1 || !strings.HasSuffix(files[0], ".3") {
		t.Errorf("tickets left: %v", files)
	}
}
