package host_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/launch"
)

// Limits of memory.
const (
	slowReaders     = 1000
	slowReaderHeap  = 256 << 20 // while all readers are behind a run that writes a lot
	finishedRuns    = 1600
	finishedHeap    = 4 << 20 // for all of them together
	liveRuns        = 1000
	bytesPerLiveRun = raceWeight * 64 << 10
)

// heapInUse returns the size of the heap after a garbage collection.
func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}

// TestThousandSlowReaders checks that blocked readers cost the memory of a
// cursor each, whatever the run writes meanwhile, and miss nothing.
func TestThousandSlowReaders(t *testing.T) {
	o := options(t.TempDir(), launch.TreeAuto)
	o.SegmentBytes = 0
	h := openWith(t, o)
	const size = 256 << 20 / raceWeight
	begin(t, h, "r", fmt.Sprintf("echo first; read line; exec head -c %d /dev/zero", size))

	var stuck, done sync.WaitGroup
	release := make(chan struct{})
	sums := make([][2]int64, slowReaders) // of bytes, and of seqs weighted by size
	for i := range sums {
		stuck.Add(1)
		done.Go(func() {
			first := true
			for e, err := range h.Follow(t.Context(), "r", 0) {
				if err != nil {
					t.Errorf("reader %d: %v", i, err)
					return
				}
				sums[i][0] += int64(len(e.Bytes))
				sums[i][1] += int64(e.Seq) * int64(1+e.Size())
				if first {
					first = false
					stuck.Done()
					<-release
				}
			}
		})
	}
	stuck.Wait()
	say(t, h, "r", "go")
	var most uint64
	for {
		info, err := h.Stat(t.Context(), "r")
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, heapInUse())
		if info.State == spool.StateClosed {
			break
		}
	}
	began := time.Now()
	close(release)
	ended := make(chan struct{})
	go func() { done.Wait(); close(ended) }()
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		select {
		case <-tick.C:
			most = max(most, heapInUse())
			continue
		case <-ended:
			tick.Stop()
		}
		break
	}
	t.Logf("heap %d MiB at most; %d readers caught up in %v", most>>20, slowReaders, time.Since(began))
	if most > slowReaderHeap {
		t.Errorf("the heap took %d MiB, want no more than %d", most>>20, slowReaderHeap>>20)
	}
	for i, sum := range sums {
		if sum != sums[0] || sum[0] != size+int64(len("first\n")) {
			t.Fatalf("reader %d has %v, the first %v", i, sum, sums[0])
		}
	}
}

// TestThousandLiveRuns measures a host with many live runs in its own process.
func TestThousandLiveRuns(t *testing.T) {
	cmd := child("weigh", t.TempDir(), launch.TreeAuto, "")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var perRun, rss int
	if _, err := fmt.Sscan(string(out), &perRun, &rss); err != nil {
		t.Fatalf("%v: %q", err, out)
	}
	t.Logf("%d bytes for each of %d live runs; %d KiB in all", perRun, liveRuns, rss>>10)
	if perRun > bytesPerLiveRun {
		t.Errorf("a live run takes %d bytes, want no more than %d", perRun, bytesPerLiveRun)
	}
}

// weigh prints the memory of a live run.
func weigh(o host.Options) error {
	h, err := host.Open(o)
	if err != nil {
		return err
	}
	start := func(n int) error {
		_, err := h.Start(context.Background(), spool.Spec{ID: spool.RunID(fmt.Sprint("r", n)), Argv: []string{"sleep", "1000"}, Stdin: n%2 == 0})
		return err
	}
	for n := range 10 {
		if err := start(n); err != nil {
			return err
		}
	}
	before, err := resident()
	if err != nil {
		return err
	}
	for n := range liveRuns {
		if err := start(10 + n); err != nil {
			return err
		}
	}
	after, err := resident()
	if err != nil {
		return err
	}
	fmt.Println((after-before)/liveRuns, after)
	return h.Close()
}

// resident returns the resident memory of this process after a garbage
// collection.
func resident() (int, error) {
	debug.FreeOSMemory()
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "VmRSS:"); ok {
			kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("no VmRSS in %s", f.Name())
}

// TestBusyHostKeepsFewFinishedRuns checks that a host that starts one run after
// the other keeps few finished runs in memory, and forgets none.
func TestBusyHostKeepsFewFinishedRuns(t *testing.T) {
	h := openWith(t, options(t.TempDir(), launch.TreeAuto))
	start := func(id int) {
		r, err := spool.Start(t.Context(), h, spool.Spec{ID: spool.RunID("r" + strconv.Itoa(id)), Argv: []string{"/bin/true"}, Labels: map[string]string{"k": "v"}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	start(0)
	before := heapInUse()
	for i := range finishedRuns {
		start(1 + i)
	}
	after := heapInUse()
	t.Logf("%d bytes", int64(after)-int64(before))
	if int64(after)-int64(before) > finishedHeap*raceWeight {
		t.Errorf("%d bytes for %d finished runs, want at most %d", after-before, finishedRuns, finishedHeap*raceWeight)
	}
	for _, id := range []spool.RunID{"r0", "r1", spool.RunID("r" + strconv.Itoa(finishedRuns))} {
		if info, err := h.Stat(t.Context(), id); err != nil || info.State != spool.StateClosed {
			t.Errorf("run %s is %s: %v", id, info.State, err)
		}
	}
}
