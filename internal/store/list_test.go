package store

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// finish writes a complete run with size bytes of output.
func finish(t testing.TB, s *Store, id spool.RunID, created, ended time.Time, size int) spool.Info {
	t.Helper()
	info := spool.Info{ID: id, Engine: "process", Argv: []string{"true"}, Created: created, State: spool.StateRunning}
	j, err := s.Create(info)
	if err != nil {
		t.Fatal(err)
	}
	appendSizes(t, j, size)
	appendAll(t, j, spool.Event{Seq: 2, Time: ended, Kind: spool.KindClosed})
	info.State, info.Ended, info.Outcome = spool.StateClosed, ended, &spool.Outcome{Kind: spool.Exited, Code: 3}
	if err := j.Seal(info); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return j.Info()
}

func TestList(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{SegmentBytes: 1000})
	at := func(m int) time.Time { return epoch.Add(time.Duration(m) * time.Minute) }

	oldest := finish(t, s, "oldest", at(1), at(9), 50)
	newest := finish(t, s, "newest", at(5), at(6), 5000)

	noted := testInfo("noted")
	noted.Created = at(3)
	j, err := s.Create(noted)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	noted.Pid = 12
	appendSizes(t, j, 900, 900)
	if err := j.Note(noted); err != nil {
		t.Fatal(err)
	}
	appendSizes(t, j, 10)
	noted.Last, noted.Bytes = 3, 1810

	begun := testInfo("begun")
	begun.Created = at(2)
	b, err := s.Create(begun)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()

	finish(t, s, "damaged", at(4), at(6), 500)
	path := segmentFiles(t, s, "damaged")[0]
	raw := mustRead(t, path)
	raw[len(raw)-1] ^= 1
	raw[len(raw)-60] ^= 1
	mustWrite(t, path, raw)
	mustWrite(t, filepath.Join(s.runsDir(), "README"), []byte("not a run"))
	mustWrite(t, filepath.Join(s.runsDir(), "x.1.seg"), []byte("not a run"))

	var got []spool.Info
	var bad []spool.RunID
	for info, err := range s.List() {
		var corrupt *CorruptError
		switch {
		case errors.As(err, &corrupt):
			bad = append(bad, info.ID)
		case err != nil:
			t.Errorf("list: %v", err)
		default:
			got = append(got, info)
		}
	}
	if d := cmp.Diff([]spool.Info{newest, noted, begun, oldest}, got); d != "" {
		t.Errorf("list (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]spool.RunID{"damaged"}, bad); d != "" {
		t.Errorf("damaged runs (-want +got):\n%s", d)
	}
	for range s.List() { // a loop may end early
		break
	}
}

// TestListSinceCoarseTime checks that a list finds a run whose file was written at once
// and has the time of the last tick of the clock, before the run was created.
func TestListSinceCoarseTime(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	created := time.Now()
	finish(t, s, "quick", created, created, 10)
	tick := created.Add(-4 * time.Millisecond)
	if err := os.Chtimes(segmentFiles(t, s, "quick")[0], tick, tick); err != nil {
		t.Fatal(err)
	}
	var got []spool.RunID
	for info, err := range s.Select(spool.Filter{Since: created}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, info.ID)
	}
	if !slices.Equal(got, []spool.RunID{"quick"}) {
		t.Errorf("since it was created: %v", got)
	}
}

func TestListLargeDescription(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	j := create(t, s, "r")
	info := testInfo("r")
	for i := range 10000 {
		info.Argv = append(info.Argv, fmt.Sprint("argument ", i))
	}
	if err := j.Seal(info); err != nil {
		t.Fatal(err)
	}
	for got, err := range s.List() {
		if d := cmp.Diff(info, got); err != nil || d != "" {
			t.Errorf("%v (-want +got):\n%s", err, d)
		}
	}
}

func TestListNoDirectory(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	if err := os.RemoveAll(s.Dir()); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, err := range s.List() {
		if n++; err == nil {
			t.Error("no error")
		}
	}
	if n != 1 {
		t.Errorf("%d errors", n)
	}
}
