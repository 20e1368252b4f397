package natsd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/spool-run/spool/internal/cluster"
	"github.com/spool-run/spool/internal/leaktest"
	"github.com/spool-run/spool/internal/polltest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// open starts a store and connects to it.
func open(t *testing.T, dir string) (*Server, *Facts) {
	t.Helper()
	s, err := Start(ServerOptions{Name: "test", Dir: dir, Client: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	f, err := Connect(Options{Server: s, Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.Close()
		s.Close()
	})
	return s, f
}

// TestFacts checks what the store promises: of writes of one fact that name the same
// revision one happens, and everybody sees which.
func TestFacts(t *testing.T) {
	s, f := open(t, t.TempDir())
	if got := s.s.StoreDir(); got == "" || s.s.JetStreamConfig().MaxStore != MaxStore || s.s.JetStreamConfig().MaxMemory != MaxMemory {
		t.Errorf("the store has the limits %+v", s.s.JetStreamConfig())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var mu sync.Mutex
	told := make(map[string]string)
	stop, err := f.Watch("node.", func(fact cluster.Fact) {
		mu.Lock()
		defer mu.Unlock()
		told[fact.Key] = string(fact.Data)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if _, err := f.Get(ctx, "node.x"); !errors.Is(err, cluster.ErrNoFact) {
		t.Errorf("a fact that is not there: %v", err)
	}
	var wg sync.WaitGroup
	won := make(map[string]uint64)
	for i := range 8 {
		wg.Go(func() {
			data := fmt.Sprint("writer ", i)
			rev, err := f.Put(ctx, cluster.Fact{Key: "node.x", Data: []byte(data)}, 0, 0)
			if err == nil {
				mu.Lock()
				won[data] = rev
				mu.Unlock()
			} else if !errors.Is(err, cluster.ErrConflict) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	is, err := f.Get(ctx, "node.x")
	if err != nil || len(won) != 1 || won[string(is.Data)] != is.Rev {
		t.Fatalf("%v won, and the fact is %q of revision %d, %v", won, is.Data, is.Rev, err)
	}
	next, err := f.Put(ctx, cluster.Fact{Key: "node.x", Data: []byte("next")}, is.Rev, 0)
	if err != nil || next <= is.Rev {
		t.Fatalf("revision %d, %v", next, err)
	}
	if _, err := f.Put(ctx, cluster.Fact{Key: "node.x", Data: []byte("stale")}, is.Rev, 0); !errors.Is(err, cluster.ErrConflict) {
		t.Errorf("a write of an old revision: %v", err)
	}
	if _, err := f.Put(ctx, cluster.Fact{Key: "run.x", Data: make([]byte, maxFact+1)}, 0, 0); err == nil || errors.Is(err, cluster.ErrConflict) || errors.Is(err, cluster.ErrUndecided) {
		t.Errorf("a fact that is too large: %v", err)
	}
	for i := range 20 {
		if _, err := f.Put(ctx, cluster.Fact{Key: fmt.Sprint("run.", i), Data: []byte("run")}, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	all := make(map[string]bool)
	for fact, err := range f.All(ctx, "run.") {
		if err != nil {
			t.Fatal(err)
		}
		all[fact.Key] = true
	}
	if len(all) != 20 || !all["run.7"] {
		t.Errorf("the store has %v", all)
	}
	for fact, err := range f.All(ctx, "name.") {
		t.Errorf("there is %+v, %v", fact, err)
	}
	polltest.Until(t, "the watcher told", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return told["node.x"] == "next"
	})
}

// TestFactsLeave checks that a fact leaves the store when its time is over, that the
// others outlive the server, and that what is not answered is no conflict.
func TestFactsLeave(t *testing.T) {
	dir := t.TempDir()
	s, f := open(t, dir)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	rev, err := f.Put(ctx, cluster.Fact{Key: "run.kept", Data: []byte("kept")}, 0, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Put(ctx, cluster.Fact{Key: "run.gone", Data: []byte("gone")}, 0, time.Second); err != nil {
		t.Fatal(err)
	}
	polltest.Until(t, "the fact gone", func() bool {
		_, err := f.Get(ctx, "run.gone")
		return errors.Is(err, cluster.ErrNoFact)
	})
	s.Close()
	short, stop := context.WithTimeout(ctx, 50*time.Millisecond)
	defer stop()
	if _, err := f.Put(short, cluster.Fact{Key: "run.kept", Data: []byte("new")}, rev, 0); !errors.Is(err, cluster.ErrUndecided) {
		t.Errorf("a write without a store: %v", err)
	}
	_, again := open(t, dir)
	is, err := again.Get(ctx, "run.kept")
	if err != nil || string(is.Data) != "kept" || is.Rev != rev {
		t.Errorf("after a restart the fact is %q of revision %d, %v", is.Data, is.Rev, err)
	}
}

// TestManyReads reads all facts more often than a stream has consumers.
func TestManyReads(t *testing.T) {
	_, f := open(t, t.TempDir())
	for i := range few + 1 {
		if _, err := f.Put(t.Context(), cluster.Fact{Key: fmt.Sprint("queue.", i), Data: []byte("1")}, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, prefix := range []string{"queue.", "node."} { // with facts, and without one
		for i := range 2 * maxConsumers {
			for _, err := range f.All(t.Context(), prefix) {
				if err != nil {
					t.Fatalf("reading %s for the %dth time: %v", prefix, i+1, err)
				}
			}
		}
	}
}

// TestAll reads numbers of facts about the one up to which they are read one by one, some
// of which were written again: each comes once, as it is, and a reader may leave.
func TestAll(t *testing.T) {
	_, f := open(t, t.TempDir())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	want := make(map[string]string)
	for n := range few + 3 {
		key := fmt.Sprint("run.", n)
		rev, err := f.Put(ctx, cluster.Fact{Key: key, Data: []byte("old")}, 0, 0)
		if err == nil && n%3 == 0 {
			_, err = f.Put(ctx, cluster.Fact{Key: key, Data: []byte("new")}, rev, 0)
			want[key] = "new"
		} else {
			want[key] = "old"
		}
		if err != nil {
			t.Fatal(err)
		}
		if n < few-2 {
			continue
		}
		got, last := make(map[string]string), uint64(0)
		for fact, err := range f.All(ctx, "run.") {
			if err != nil {
				t.Fatal(err)
			}
			if _, twice := got[fact.Key]; twice || fact.Rev <= last {
				t.Errorf("%s came twice, or after a later one", fact.Key)
			}
			got[fact.Key], last = string(fact.Data), fact.Rev
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%d facts: got %v, want %v", n+1, got, want)
		}
		left := 0
		for range f.All(ctx, "run.") {
			if left++; left == n {
				break
			}
		}
		if left != n {
			t.Errorf("read %d facts, want %d", left, n)
		}
	}
}
