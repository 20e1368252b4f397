package wasipy

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/engine/sandbox/vfs"
)

// lanes returns the two ends of a lane with a window.
func lanes(t *testing.T) (parent, worker *lane) {
	t.Helper()
	a, b, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	ours, fd, err := newWindow()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	theirs, err := openWindow(fd)
	if err != nil {
		t.Fatal(err)
	}
	if parent, err = newLane(a, ours, true); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(parent.close)
	if worker, err = newLane(b, theirs, false); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(worker.close)
	return parent, worker
}

// serveEcho answers each call with its request until the worker is gone, and
// calls slow before each answer through the window. It returns how it ended.
func serveEcho(l *lane, p patience, slow func()) error {
	var request []byte
	for {
		kind, b, err := l.recv(p)
		if err != nil {
			return err
		}
		switch kind {
		case frameFile:
			err = l.send(frameAnswer, b)
		case frameBell:
			if !l.window.pending() {
				continue
			}
			request = l.window.take(request[:0])
			slow()
			answer := request
			if len(request) == 1 { // asks for more than a window holds
				answer = bytes.Repeat(request, windowMost+1)
			}
			given, ring := l.window.give(answer)
			if !given {
				err = l.send(frameAnswer, answer)
			} else if ring {
				err = l.send(frameBell)
			}
		}
		if err != nil {
			return err
		}
	}
}

// until waits until the other end does not look any more.
func until(word *uint32, is uint32) {
	for atomic.LoadUint32(word) != is {
		yield()
	}
}

// Every call gets its own answer, through the window and through the lane, and
// with either end asleep.
func TestWindowHammer(t *testing.T) {
	for name, p := range map[string]patience{"hot": hot, "patient": patient} {
		t.Run(name, func(t *testing.T) {
			parent, worker := lanes(t)
			ended := make(chan error, 1)
			go func() {
				ended <- serveEcho(parent, p, func() {
					if rand.IntN(10) == 0 {
						until(parent.window.word(windowAsleep), 1)
					}
				})
			}()
			r := &remote{lane: worker}
			for i := range 2000 {
				request := bytes.Repeat([]byte{byte(i)}, []int{1, 2, 100, windowMost, windowMost + 1}[rand.IntN(5)])
				want := request
				if len(request) == 1 {
					want = bytes.Repeat(request, windowMost+1)
				}
				if rand.IntN(10) == 0 {
					until(worker.window.word(windowLooking), 0)
				}
				got, err := r.File(request)
				if err != nil || !bytes.Equal(got, want) {
					t.Fatalf("call %d of %d bytes: %d bytes, %v", i, len(request), len(got), err)
				}
			}
			worker.close()
			<-ended
		})
	}
}

// A worker that never stops calling is not listened to for longer than was
// said.
func TestWindowDeadline(t *testing.T) {
	parent, worker := lanes(t)
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		r := &remote{lane: worker}
		for {
			select {
			case <-stop:
				return
			default:
				if _, err := r.File([]byte("more")); err != nil {
					return
				}
			}
		}
	}()
	if err := parent.file.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if err := serveEcho(parent, hot, func() {}); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("it ended by %v", err)
	}
	close(stop)
	parent.close()
	<-done
}

// A window cannot be truncated, which would crash the processes that map it.
func TestWindowIsSealed(t *testing.T) {
	_, fd, err := newWindow()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for _, size := range []int64{0, windowSize - 1, windowSize + 1} {
		if err := unix.Ftruncate(fd, size); !errors.Is(err, unix.EPERM) {
			t.Errorf("truncate to %d: %v, want EPERM", size, err)
		}
	}
}

// A worker that says its request is larger than the window is believed to have
// filled it.
func TestWindowBoundsLengths(t *testing.T) {
	parent, worker := lanes(t)
	w := worker.window
	w.put(windowRequest, []byte("x"))
	for i := range 4 {
		w.mem[windowRequest+i] = 0xff
	}
	w.number++
	*w.word(windowCall) = w.number
	if got := parent.window.take(nil); len(got) != windowMost {
		t.Errorf("%d bytes were taken, want %d", len(got), windowMost)
	}
}

// A call that a script left behind is not one of the next.
func TestWindowForgets(t *testing.T) {
	parent, worker := lanes(t)
	if asked, _ := worker.window.ask([]byte("unlink")); !asked {
		t.Fatal("a small call does not go through the window")
	}
	parent.window.forget()
	if parent.called() {
		t.Error("the call is still there")
	}
	worker.window.ask([]byte("stat"))
	if got := parent.window.take(nil); string(got) != "stat" {
		t.Errorf("the next call is %q", got)
	}
	parent.window.give([]byte("yes"))
	if got := worker.window.answer(nil); !worker.window.answered() || string(got) != "yes" {
		t.Errorf("its answer is %q", got)
	}
}

// A worker that sends a malformed file call is not answered, whichever way the
// call takes.
func TestMalformedFileCallsEndTheConversation(t *testing.T) {
	parent, worker := lanes(t)
	files := vfs.NewServer(vfs.NewTree(vfs.NewMemory(nil)), 1)
	defer files.Close()
	c := &conversation{use: &use{lane: parent}, files: files}
	if err := c.serve(frameFile, []byte{vfs.OpStat}); !errors.Is(err, vfs.ErrMalformed) {
		t.Errorf("on the lane: %v, want ErrMalformed", err)
	}
	if asked, _ := worker.window.ask([]byte{vfs.OpStat}); !asked {
		t.Fatal("the window takes no call")
	}
	if err := c.serve(frameBell, nil); !errors.Is(err, vfs.ErrMalformed) {
		t.Errorf("through the window: %v, want ErrMalformed", err)
	}
}
