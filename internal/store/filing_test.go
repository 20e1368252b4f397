package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/failpoint"
	"github.com/spool-run/spool/internal/store/index"
)

// later is after the files of any run in a test were written.
func later() time.Time { return time.Now().Add(time.Hour) }

// file files all complete runs.
func file(t testing.TB, s *Store) {
	t.Helper()
	for more := true; more; {
		var err error
		if _, more, err = s.File(t.Context(), later()); err != nil {
			t.Fatal(err)
		}
	}
}

// infos lists all runs.
func infos(t testing.TB, s *Store) []spool.Info {
	t.Helper()
	var all []spool.Info
	for info, err := range s.List() {
		if err != nil {
			t.Fatalf("list: %v", err)
		}
		all = append(all, info)
	}
	return all
}

// unfiled returns the names of the files in the directory runs.
func unfiled(t testing.TB, s *Store) []string {
	t.Helper()
	entries, err := os.ReadDir(s.runsDir())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

// indexed returns the ids in the index.
func indexed(t testing.TB, s *Store) []string {
	t.Helper()
	snapshot, err := index.Open(s.indexDir())
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for e := range snapshot.Select(index.Query{}) {
		ids = append(ids, e.ID)
	}
	slices.Sort(ids)
	if n := snapshot.Len(); n != len(ids) {
		t.Errorf("the index counts %d runs and has %d", n, len(ids))
	}
	if err := snapshot.Close(); err != nil {
		t.Error(err)
	}
	return ids
}

// someRuns writes complete runs, of which some have several segments or were
// renamed, and one that is not complete.
func someRuns(t testing.TB, s *Store, n int) {
	t.Helper()
	for i := range n {
		id := spool.RunID(fmt.Sprintf("run%d", i))
		at := epoch.Add(time.Duration(i) * time.Minute)
		size := 10
		if i%3 == 1 {
			size = 3000
		}
		finish(t, s, id, at, at.Add(time.Second), size)
		if i%4 == 2 {
			if err := s.Rename(id, fmt.Sprint("name", i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	appendSizes(t, create(t, s, "live"), 10)
}

func TestFile(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{SegmentBytes: 1000})
	someRuns(t, s, 9)
	before := infos(t, s)
	size, err := s.Storage("")
	if err != nil {
		t.Fatal(err)
	}
	reader, err := s.Open("run1") // which goes on to read
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	events := readAll(t, reader, 100)
	if _, more, err := s.File(t.Context(), time.Now().Add(-time.Hour)); err != nil || !more {
		t.Fatalf("file runs that were completed an hour ago: more %v, %v", more, err)
	}
	if got := unfiled(t, s); len(got) < 9 {
		t.Fatalf("filed too early: %v", got)
	}
	file(t, s)
	if got := unfiled(t, s); len(got) != 1 {
		t.Errorf("not filed: %v", got)
	}
	if d := cmp.Diff(before, infos(t, s)); d != "" {
		t.Errorf("list (-before +after):\n%s", d)
	}
	after, err := s.Storage("")
	if err != nil || after.IndexBytes == 0 {
		t.Errorf("storage %+v, %v", after, err)
	}
	after.IndexBytes = 0
	if d := cmp.Diff(size, after); d != "" {
		t.Errorf("storage (-before +after):\n%s", d)
	}
	wantEvents(t, "run1", readAll(t, reader, 100), events)
	again, err := s.Open("run1")
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	wantEvents(t, "run1", readAll(t, again, 100), events)
	records, last, err := again.ReadRecords(nil, 0, 1<<20)
	if err != nil || len(records) == 0 || last == 0 {
		t.Errorf("records: %d bytes up to %d, %v", len(records), last, err)
	}
	if _, err := s.Create(testInfo("run0")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("create a run that is filed: %v", err)
	}
	if got := unfiled(t, s); len(got) != 1 {
		t.Errorf("left by the create: %v", got)
	}
	if d := cmp.Diff(before, infos(t, s)); d != "" {
		t.Errorf("list after the create (-before +after):\n%s", d)
	}
}

// TestFileFilters compares the lists of every kind of filter with what the filter
// says, for runs that are filed and others.
func TestFileFilters(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 80 {
		at := epoch.Add(time.Duration(r.IntN(30)) * time.Minute)
		info := spool.Info{
			ID: spool.RunID(fmt.Sprintf("%c%c%d", 'a'+rune(r.IntN(3)), 'a'+rune(r.IntN(3)), i)), Engine: []string{"process", "kernel"}[r.IntN(2)],
			Name: []string{"", "x", "y"}[r.IntN(3)], Created: at, State: spool.StateRunning,
			Labels: map[string]string{"a": fmt.Sprint(r.IntN(3)), "b": fmt.Sprint(r.IntN(3))},
		}
		if r.IntN(3) == 0 {
			info.Labels["c"] = []string{"", "1"}[r.IntN(2)]
		}
		j, err := s.Create(info)
		if err != nil {
			t.Fatal(err)
		}
		if r.IntN(10) > 0 {
			info.State, info.Ended = spool.StateClosed, at.Add(time.Duration(r.IntN(9000))*time.Second)
			info.Outcome = &spool.Outcome{Kind: []spool.OutcomeKind{spool.Exited, spool.Unknown}[r.IntN(2)]}
			if err := j.Seal(info); err != nil {
				t.Fatal(err)
			}
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		if i == 60 {
			file(t, s)
		}
		if i > 60 && r.IntN(2) == 0 { // also a filed run, which then is in both places
			if err := s.Rename(info.ID, "renamed"); err != nil {
				t.Fatal(err)
			}
		}
	}
	all := infos(t, s)
	if err := s.Rename(all[70].ID, "renamed"); err != nil {
		t.Fatal(err)
	}
	all = infos(t, s)
	if len(all) != 80 {
		t.Fatalf("%d runs", len(all))
	}
	for range 300 {
		f := spool.Filter{Oldest: r.IntN(2) == 0}
		if r.IntN(4) == 0 {
			f.Prefix = spool.RunID([]string{"a", "ab", "cc"}[r.IntN(3)])
		}
		if r.IntN(4) == 0 {
			f.Name = []string{"x", "y", "renamed"}[r.IntN(3)]
		}
		if r.IntN(4) == 0 {
			f.NameGlob = []string{"?", "*", "re*", "[x-z]", "rename"}[r.IntN(5)]
		}
		if r.IntN(4) == 0 {
			f.HasLabels = [][]string{{"c"}, {"a", "c"}, {"none"}}[r.IntN(3)]
		}
		if r.IntN(4) == 0 {
			f.Engine = "kernel"
		}
		if r.IntN(4) == 0 {
			f.State = []spool.State{spool.StateClosed, spool.StateRunning}[r.IntN(2)]
		}
		if r.IntN(3) == 0 {
			f.Labels = map[string]string{"a": fmt.Sprint(r.IntN(3))}
			if r.IntN(2) == 0 {
				f.Labels["b"] = fmt.Sprint(r.IntN(3))
			}
			if r.IntN(4) == 0 {
				f.Labels["none"] = ""
			}
		}
		if r.IntN(4) == 0 {
			f.Since = epoch.Add(time.Duration(r.IntN(100)) * time.Minute)
		}
		if r.IntN(2) == 0 {
			f.After = all[r.IntN(len(all))].Cursor()
		}
		var want, got []spool.RunID
		var briefly []spool.Info
		sorted := slices.Clone(all)
		slices.SortFunc(sorted, func(a, b spool.Info) int { return f.Compare(&a, &b) })
		for _, info := range sorted {
			if f.Match(&info) {
				want = append(want, info.ID)
				briefly = append(briefly, brief(info))
			}
		}
		for info, err := range s.Select(f) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, info.ID)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("%+v (-want +got):\n%s", f, d)
		}
		if d := cmp.Diff(briefly, listBriefly(t, s, f)); d != "" {
			t.Fatalf("%+v (-want +got):\n%s", f, d)
		}
	}
}

// filePoints are where filing can be interrupted.
var filePoints = []string{"index.write", "index.create", "index.replace", "index.replaced", "store.indexed", "store.move", "store.moved"}

// checkFiling checks that an interrupted filing lost nothing, and that the next one
// completes it.
func checkFiling(t *testing.T, dir, when string, before []spool.Info) {
	t.Helper()
	s := openStore(t, dir, Options{SegmentBytes: 1000})
	if d := cmp.Diff(before, infos(t, s)); d != "" {
		t.Fatalf("%s: list (-before +after):\n%s", when, d)
	}
	for _, info := range before {
		j, err := s.Open(info.ID)
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if got := readAll(t, j, 1<<20); spool.Seq(len(got)) != info.Last {
			t.Errorf("%s: run %s has %d events, want %d", when, info.ID, len(got), info.Last)
		}
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	}
	file(t, s)
	if d := cmp.Diff(before, infos(t, s)); d != "" {
		t.Fatalf("%s, then filed: list (-before +after):\n%s", when, d)
	}
	var want []string
	for _, info := range before {
		if info.State == spool.StateClosed {
			want = append(want, string(info.ID))
		}
	}
	slices.Sort(want)
	if d := cmp.Diff(want, indexed(t, s)); d != "" {
		t.Errorf("%s: index (-want +got):\n%s", when, d)
	}
	if got := unfiled(t, s); len(got) != 1 {
		t.Errorf("%s: not filed: %v", when, got)
	}
}

// TestFileInterrupted lets each step of filing fail, at every hit.
func TestFileInterrupted(t *testing.T) {
	for _, point := range filePoints {
		for hit := 1; ; hit++ {
			dir := t.TempDir()
			s := openStore(t, dir, Options{SegmentBytes: 1000})
			someRuns(t, s, 5)
			before := infos(t, s)
			disable := failpoint.Enable(point, hit, failpoint.Fail(failpoint.ErrInjected))
			_, _, err := s.File(t.Context(), later())
			disable()
			checkFiling(t, dir, fmt.Sprintf("%s, hit %d", point, hit), before)
			if err == nil {
				break
			}
		}
	}
}

// fileKilled is the variable that makes this test binary file the runs of a
// directory, and be killed on the way.
const fileKilled = "SPOOL_TEST_FILE"

// TestFileKilled kills a process that files the runs of a directory of the earlier
// layout.
func TestFileKilled(t *testing.T) {
	if dir := os.Getenv(fileKilled); dir != "" {
		if err := failpoint.FromEnv(); err != nil {
			t.Fatal(err)
		}
		file(t, openStore(t, dir, Options{SegmentBytes: 1000}))
		t.Fatal("it was not killed")
	}
	for i, point := range filePoints {
		dir := t.TempDir()
		s := openStore(t, dir, Options{SegmentBytes: 1000})
		someRuns(t, s, 6)
		before := infos(t, s)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestFileKilled$")
		hit := 1
		if point == "store.move" || point == "store.moved" {
			hit = 2 + i%2
		}
		cmd.Env = append(os.Environ(), fileKilled+"="+dir, fmt.Sprintf("%s=%s=kill@%d", failpoint.Variable, point, hit))
		out, err := cmd.CombinedOutput()
		cancel()
		if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != -1 {
			t.Fatalf("%s: %v: %s", point, err, out)
		}
		checkFiling(t, dir, "killed at "+point, before)
	}
}

// TestReadersDuringFiling lists and reads runs while they are filed: a list has
// every run once.
func TestReadersDuringFiling(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, Options{SegmentBytes: 1000})
	someRuns(t, s, 40)
	before := infos(t, s)
	other := openStore(t, dir, Options{SegmentBytes: 1000}) // as another process
	done := make(chan error, 1)
	go func() {
		for range 5 {
			// File a few at a time, as if they had been completed one after
			// another.
			n, err := other.scanUnfiled()
			if err != nil {
				done <- err
				return
			}
			var due []summary
			for id, segs := range n.runs {
				if r, ok := summarizeFinal(id, segs); ok && len(due) < 8 {
					due = append(due, r)
				}
			}
			if _, err := other.fileRuns(context.Background(), due); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for running := true; running; {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			running = false
		default:
		}
		if d := cmp.Diff(before, infos(t, s)); d != "" {
			t.Fatalf("list (-want +got):\n%s", d)
		}
		for _, id := range []spool.RunID{"run1", "run2"} {
			j, err := s.Open(id)
			if err != nil {
				t.Fatal(err)
			}
			if got := readAll(t, j, 1<<20); len(got) < 2 {
				t.Errorf("%s has %d events", id, len(got))
			}
			if err := j.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if got := unfiled(t, s); len(got) != 1 {
		t.Errorf("not filed: %v", got)
	}
}

// TestIndexLost removes and damages the index: lists are complete without it, and
// the next filing builds it.
func TestIndexLost(t *testing.T) {
	for name, damage := range map[string]func(dir string) error{
		"gone": os.RemoveAll,
		"manifest": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "manifest"), []byte("x"), 0o600)
		},
		"log": func(dir string) error {
			logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
			if err != nil {
				return err
			}
			fi, err := os.Stat(logs[0])
			if err != nil {
				return err
			}
			return os.Truncate(logs[0], fi.Size()-1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := openStore(t, dir, Options{SegmentBytes: 1000})
			someRuns(t, s, 7)
			file(t, s)
			before := infos(t, s)
			if err := damage(s.indexDir()); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(before, infos(t, s)); d != "" {
				t.Errorf("list (-before +after):\n%s", d)
			}
			checkFiling(t, dir, name, before)
		})
	}
}

// TestFiledDamage damages the file of a run after it was filed: the list has an
// error in its place, on the page where it is.
func TestFiledDamage(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	for i := range 5 {
		at := epoch.Add(time.Duration(i) * time.Minute)
		finish(t, s, spool.RunID(fmt.Sprint("r", i)), at, at, 100)
	}
	file(t, s)
	before := infos(t, s)
	path := segmentFiles(t, s, "r2")[0]
	raw := mustRead(t, path)
	raw[len(raw)-1] ^= 1
	raw[len(raw)-60] ^= 1
	mustWrite(t, path, raw)
	for after, want := range map[string][]string{"": {"r4", "r3", "error r2", "r1", "r0"}, before[0].Cursor(): {"r3", "error r2", "r1", "r0"}, before[2].Cursor(): {"r1", "r0"}} {
		var got []string
		for info, err := range s.Select(spool.Filter{After: after}) {
			var corrupt *CorruptError
			text := string(info.ID)
			if errors.As(err, &corrupt) {
				text = "error " + text
			}
			got = append(got, text)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("after %q (-want +got):\n%s", after, d)
		}
	}
}

// TestRenameFiled gives a filed run another name, twice.
func TestRenameFiled(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	finish(t, s, "r", epoch, epoch, 10)
	finish(t, s, "other", epoch, epoch, 10)
	file(t, s)
	for _, name := range []string{"first", "second"} {
		if err := s.Rename("r", name); err != nil {
			t.Fatal(err)
		}
		for _, when := range []string{"unfiled", "filed"} {
			var got []spool.RunID
			for info, err := range s.Select(spool.Filter{Name: name}) {
				if err != nil || info.Name != name {
					t.Errorf("%s, %s: %+v, %v", name, when, info, err)
				}
				got = append(got, info.ID)
			}
			if !slices.Equal(got, []spool.RunID{"r"}) {
				t.Errorf("%s, %s: %v", name, when, got)
			}
			file(t, s)
		}
	}
	if got := unfiled(t, s); len(got) > 0 {
		t.Errorf("not filed: %v", got)
	}
}
