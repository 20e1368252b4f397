package backendtest

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
)

func replaysAfterClose(t *testing.T, b spool.Backend) {
	r := start(t, b, sh("echo a; echo b >&2; exit 3"))
	live := collect(t, r)
	var paged []spool.Event
	var next spool.Seq
	for {
		p, err := r.Read(t.Context(), spool.Query{After: next, MaxBytes: 1, Wait: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		paged = append(paged, p.Events...)
		next = p.Next
		if p.End() {
			break
		}
	}
	if diff := cmp.Diff(live, paged); diff != "" {
		t.Errorf("paged replay differs: %s", diff)
	}
	if diff := cmp.Diff(live, collect(t, r)); diff != "" {
		t.Errorf("followed replay differs: %s", diff)
	}
}

func preservesQueuedEvents(t *testing.T, b spool.Backend) {
	r := start(t, b, sh("printf 'queued output\\n'"))
	if _, err := r.Wait(t.Context()); err != nil { // no reader has read so far
		t.Fatal(err)
	}
	want := []string{`1 output stdout "queued output\n"`, "2 exited exited 0", "3 closed"}
	if diff := cmp.Diff(want, summary(collect(t, r))); diff != "" {
		t.Error(diff)
	}
}

func longPoll(t *testing.T, b spool.Backend) {
	spec := sh("read x; echo \"$x\"; read x")
	spec.Stdin = true
	r := start(t, b, spec)
	p, err := r.Read(t.Context(), spool.Query{Wait: time.Millisecond})
	if err != nil || len(p.Events) != 0 || p.Next != 0 {
		t.Fatalf("page %+v, %v; want nothing yet", p, err)
	}
	type answer struct {
		page spool.Page
		err  error
	}
	got := make(chan answer, 1)
	go func() {
		p, err := r.Read(t.Context(), spool.Query{Wait: time.Minute})
		got <- answer{p, err}
	}()
	w := r.Stdin(t.Context())
	if _, err := w.Write([]byte("hi\n")); err != nil {
		t.Fatal(err)
	}
	if a := <-got; a.err != nil || output(a.page.Events, spool.Stdout) != "hi\n" {
		t.Errorf("long poll: %+v", a)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	collect(t, r)
	// A read with a cursor beyond the end of a finished log does not wait.
	if p, err := r.Read(t.Context(), spool.Query{After: 1 << 40, Wait: time.Hour}); err != nil || len(p.Events) != 0 || !p.End() {
		t.Errorf("past the end: %+v, %v", p, err)
	}
}

func pages(t *testing.T, b spool.Backend) {
	r := start(t, b, sh("i=0; while [ $i -lt 300 ]; do echo line $i; echo err $i >&2; i=$((i+1)); done"))
	whole := collect(t, r)
	for _, maxBytes := range []int{1, 100, 5000, 1 << 20} {
		var got []spool.Event
		var next spool.Seq
		for {
			p, err := r.Read(t.Context(), spool.Query{After: next, MaxBytes: maxBytes})
			if err != nil {
				t.Fatal(err)
			}
			size := 0
			for i := range p.Events {
				size += p.Events[i].Size()
			}
			if size > maxBytes && len(p.Events) > 1 {
				t.Fatalf("a page of %d events has %d bytes, limit %d", len(p.Events), size, maxBytes)
			}
			got = append(got, p.Events...)
			next = p.Next
			if p.End() {
				break
			}
		}
		if diff := cmp.Diff(whole, got); diff != "" {
			t.Fatalf("maxBytes %d: %s", maxBytes, diff)
		}
	}
}

func randomBytes(t *testing.T, b spool.Backend) {
	const size = 50 << 20
	path := filepath.Join(t.TempDir(), "random")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	want := sha256.New()
	src := rand.NewChaCha8([32]byte{1})
	if _, err := io.CopyN(io.MultiWriter(f, want), src, size); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for _, tty := range []bool{false, true} {
		t.Run(fmt.Sprintf("tty=%v", tty), func(t *testing.T) {
			spec := sh("cat " + path)
			stream := spool.Stdout
			if tty {
				spec = sh("stty raw -echo; cat " + path)
				spec.TTY, stream = &spool.Size{Rows: 24, Cols: 80}, spool.PTY
			}
			r := start(t, b, spec)
			got, n := sha256.New(), 0
			for e, err := range r.Events(t.Context(), 0) {
				if err != nil {
					t.Fatal(err)
				}
				if e.Kind == spool.KindOutput && e.Stream == stream {
					got.Write(e.Bytes)
					n += len(e.Bytes)
				}
			}
			if n != size || !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
				outcome, err := r.Wait(t.Context()) // a full disk, for example
				t.Errorf("%d bytes arrived, want %d; the same: %v; the run: %v, %v", n, size, bytes.Equal(got.Sum(nil), want.Sum(nil)), outcome, err)
			}
		})
	}
}

func stalledReader(t *testing.T, b spool.Backend) {
	const size = 64 << 20
	r := start(t, b, sh(fmt.Sprintf("head -c %d /dev/zero", size)))
	stalled := make(chan struct{})
	release := make(chan struct{})
	total := make(chan int, 1)
	go func() {
		n, first := 0, true
		for e, err := range r.Events(t.Context(), 0) {
			if err != nil {
				break
			}
			if first {
				first = false
				close(stalled)
				<-release
			}
			n += len(e.Bytes)
		}
		total <- n
	}()
	<-stalled
	// While one reader is stuck on its first event, another sees the child
	// write everything and exit.
	n := 0
	for e, err := range r.Events(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		n += len(e.Bytes)
	}
	if n != size {
		t.Errorf("the other reader got %d bytes, want %d", n, size)
	}
	close(release)
	if n := <-total; n != size {
		t.Errorf("the stalled reader got %d bytes, want %d", n, size)
	}
}

// saidAsNewAsEvents checks that the state of a run is as new as its events: a
// page whose last event is closed describes a closed run.
func saidAsNewAsEvents(t *testing.T, b spool.Backend) {
	for range 30 {
		r := start(t, b, spool.Spec{Argv: []string{"true"}, Env: map[string]string{"PATH": os.Getenv("PATH")}})
		for closed := false; !closed; {
			stat, err := r.Info(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			page, err := r.Read(t.Context(), spool.Query{After: 1})
			if err != nil {
				t.Fatal(err)
			}
			for _, info := range []spool.Info{stat, page.Info} {
				if info.Last >= 1 && info.Outcome == nil || info.Last >= 2 && info.State != spool.StateClosed {
					t.Fatalf("after event %d it is %s with outcome %v", info.Last, info.State, info.Outcome)
				}
			}
			closed = page.Info.State == spool.StateClosed
		}
	}
}
