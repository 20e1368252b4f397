package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/eventlog"
	"github.com/spool-run/spool/internal/leaktest"
	"github.com/spool-run/spool/python"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

var epoch = time.Date(2026, 11, 15, 1, 2, 3, 456789, time.UTC)

func openStore(t testing.TB, dir string, o Options) *Store {
	t.Helper()
	if o.Now == nil {
		o.Now = func() time.Time { return epoch }
	}
	s, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close store: %v", err)
		}
	})
	return s
}

func testInfo(id spool.RunID) spool.Info {
	return spool.Info{
		ID: id, Name: "n", Engine: "process", Labels: map[string]string{"a": "b"},
		Argv: []string{"echo", "hi"}, Created: epoch, State: spool.StateRunning,
	}
}

func create(t testing.TB, s *Store, id spool.RunID) *Journal {
	t.Helper()
	j, err := s.Create(testInfo(id))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

func output(seq spool.Seq, b []byte) spool.Event {
	return spool.Event{Seq: seq, Time: epoch.Add(time.Duration(seq)), Kind: spool.KindOutput, Stream: spool.Stdout, Bytes: b}
}

func appendAll(t testing.TB, j *Journal, events ...spool.Event) {
	t.Helper()
	for i := range events {
		if err := j.Append(&events[i]); err != nil {
			t.Fatal(err)
		}
	}
}

// appendSizes appends output of these sizes after the last event.
func appendSizes(t testing.TB, j *Journal, sizes ...int) []spool.Event {
	t.Helper()
	last, _ := j.Last()
	var events []spool.Event
	for i, n := range sizes {
		seq := last + 1 + spool.Seq(i)
		events = append(events, output(seq, bytes.Repeat([]byte{byte(seq)}, n)))
	}
	appendAll(t, j, events...)
	return events
}

// readAll reads all events in pages of a size.
func readAll(t testing.TB, j *Journal, maxBytes int) []spool.Event {
	t.Helper()
	var all []spool.Event
	after := spool.Seq(0)
	for {
		n := len(all)
		var err error
		if all, err = j.Read(all, after, maxBytes); err != nil {
			t.Fatalf("read after %d: %v", after, err)
		}
		if len(all) == n {
			return all
		}
		after = all[len(all)-1].Seq
	}
}

// byteSlices compares payloads as a whole; cmp would compare byte by byte.
var byteSlices = cmp.Comparer(bytes.Equal)

func wantEvents(t testing.TB, id spool.RunID, got, want []spool.Event) {
	t.Helper()
	want = append([]spool.Event(nil), want...)
	for i := range want {
		want[i].Run = id
	}
	if len(want) > 0 && slices.EqualFunc(want, got, sameEvent) {
		return // much faster than cmp: some tests compare a log for each byte of a file
	}
	if d := cmp.Diff(want, got, byteSlices); d != "" {
		t.Fatalf("events (-want +got):\n%.2000s", d)
	}
}

// sameEvent reports whether events are equal in every field.
func sameEvent(a, b spool.Event) bool {
	same := bytes.Equal(a.Bytes, b.Bytes) && bytes.Equal(a.Data, b.Data) && a.Time.Equal(b.Time)
	a.Bytes, a.Data, a.Time, b.Bytes, b.Data, b.Time = nil, nil, time.Time{}, nil, nil, time.Time{}
	return same && reflect.DeepEqual(a, b)
}

func segmentFiles(t testing.TB, s *Store, id spool.RunID) []string {
	t.Helper()
	segs, err := s.segments(id)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, seg := range segs {
		paths = append(paths, seg.path)
	}
	return paths
}

func mustWrite(t testing.TB, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func mustRead(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRoundTrip(t *testing.T) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	events := []spool.Event{
		{Kind: spool.KindStarted},
		{Kind: spool.KindOutput, Stream: spool.Stdout, Bytes: []byte("hi\n")},
		{Kind: spool.KindOutput, Stream: spool.PTY, Bytes: every},
		{Kind: spool.KindOutput, Stream: spool.Stderr, Bytes: bytes.Repeat(every, 1000)},
		{Kind: python.KindDisplay, Turn: 2, Data: json.RawMessage(`{"text/plain":"x"}`)},
		{Kind: spool.KindNotice, Data: json.RawMessage(`{"code":"c"}`), Bytes: bytes.Repeat([]byte("raw"), 5000)},
		{Kind: spool.KindOutput, Stream: spool.Stdout, Bytes: make([]byte, 2<<20)},
		{Kind: spool.KindExited, Data: json.RawMessage(`{"code":0}`)},
		{Kind: spool.KindClosed},
	}
	for i := range events {
		events[i].Seq = spool.Seq(i + 1)
		events[i].Time = epoch.Add(time.Duration(i) * time.Second)
	}
	for _, policy := range []SyncPolicy{SyncNone, SyncInterval, SyncAlways} {
		for _, segment := range []int64{0, 1, 1000} {
			t.Run(fmt.Sprintf("%q/%d", policy, segment), func(t *testing.T) {
				dir := t.TempDir()
				s := openStore(t, dir, Options{SegmentBytes: segment, Sync: policy})
				j := create(t, s, "r")
				appendAll(t, j, events[:4]...)
				note := testInfo("r")
				note.Pid = 42
				if err := j.Note(note); err != nil {
					t.Fatal(err)
				}
				appendAll(t, j, events[4:]...)
				wantEvents(t, "r", readAll(t, j, 0), events)
				final := note
				final.State, final.Ended = spool.StateClosed, epoch.Add(time.Hour)
				final.Outcome = &spool.Outcome{Kind: spool.Exited}
				if err := j.Seal(final); err != nil {
					t.Fatal(err)
				}
				final.Last = 9
				final.Bytes = 3 + 256 + 256000 + 2<<20
				check := func(j *Journal) {
					t.Helper()
					wantEvents(t, "r", readAll(t, j, 1<<20), events)
					wantEvents(t, "r", readAll(t, j, 1), events)
					if d := cmp.Diff(final, j.Info()); d != "" {
						t.Errorf("info (-want +got):\n%s", d)
					}
					if last, sealed := j.Last(); last != 9 || !sealed {
						t.Errorf("Last() = %d, %v", last, sealed)
					}
					if err := j.Append(&spool.Event{Seq: 10, Kind: spool.KindNotice}); !errors.Is(err, eventlog.ErrSealed) {
						t.Errorf("append to a sealed run: %v", err)
					}
				}
				check(j)
				if err := j.Close(); err != nil {
					t.Fatal(err)
				}
				if want, got := segment == 0, len(segmentFiles(t, s, "r")) == 1; want != got {
					t.Errorf("one segment: %v, want %v", got, want)
				}

				again := openStore(t, dir, Options{})
				r, err := again.Open("r")
				if err != nil {
					t.Fatal(err)
				}
				check(r)
				before := mustRead(t, segmentFiles(t, s, "r")[0])
				c, cut, err := again.Recover("r")
				if err != nil || cut != (Cut{}) {
					t.Fatalf("recover a sealed run: %v, %v", cut, err)
				}
				check(c)
				if !bytes.Equal(before, mustRead(t, segmentFiles(t, s, "r")[0])) {
					t.Error("recovery changed a sealed run")
				}
			})
		}
	}
}

func TestModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	s := openStore(t, dir, Options{})
	create(t, s, "r")
	if _, err := s.PutBlob("", strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		if fi.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, fi.Mode())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestRefusals(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	j := create(t, s, "taken")
	appendSizes(t, j, 1)
	reader, err := s.Open("taken")
	if err != nil {
		t.Fatal(err)
	}
	ended := create(t, s, "ended")
	if err := ended.Close(); err != nil {
		t.Fatal(err)
	}
	one, two, three := output(1, nil), output(2, nil), output(3, nil)
	big := output(2, make([]byte, spool.MaxEventBytes+1))
	odd := spool.Event{Seq: 2, Kind: "odd"}
	create := func(id spool.RunID) error { _, err := s.Create(spool.Info{ID: id}); return err }
	open := func(id spool.RunID) error { _, err := s.Open(id); return err }
	recov := func(id spool.RunID) error { _, _, err := s.Recover(id); return err }
	policy := func() error { _, err := Open(t.TempDir(), Options{Sync: "sometimes"}); return err }
	tests := []struct {
		name string
		got  error
		want error // nil means any error
	}{
		{"create taken", create("taken"), fs.ErrExist},
		{"create empty", create(""), spool.ErrInvalid},
		{"create long", create(spool.RunID(strings.Repeat("x", 129))), spool.ErrInvalid},
		{"create slash", create("a/b"), spool.ErrInvalid},
		{"create dots", create(".."), spool.ErrInvalid},
		{"create nul", create("a\x00"), spool.ErrInvalid},
		{"open unknown", open("unknown"), fs.ErrNotExist},
		{"open prefix", open("take"), fs.ErrNotExist},
		{"open path", open("../runs/taken"), spool.ErrInvalid},
		{"recover unknown", recov("unknown"), fs.ErrNotExist},
		{"remove unknown", s.Remove("unknown"), fs.ErrNotExist},
		{"append read-only", reader.Append(&two), ErrReadOnly},
		{"note read-only", reader.Note(testInfo("taken")), ErrReadOnly},
		{"append closed", ended.Append(&one), fs.ErrClosed},
		{"append again", j.Append(&one), nil},
		{"append ahead", j.Append(&three), nil},
		{"append too large", j.Append(&big), nil},
		{"append unknown kind", j.Append(&odd), nil},
		{"note other run", j.Note(testInfo("other")), spool.ErrInvalid},
		{"unknown policy", policy(), nil},
	}
	for _, tt := range tests {
		if tt.got == nil || tt.want != nil && !errors.Is(tt.got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, tt.got, tt.want)
		}
	}
	appendAll(t, j, two)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := create("late"); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("create after close: %v", err)
	}
}

func TestRemove(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{SegmentBytes: 1})
	j := create(t, s, "r")
	appendSizes(t, j, 1, 1, 1)
	create(t, s, "r2")
	r, err := s.Open("r")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Remove("r"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open("r"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open a removed run: %v", err)
	}
	if err := r.Refresh(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("refresh a removed run: %v", err)
	}
	if _, err := r.Read(nil, 2, 1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read a removed run: %v", err)
	}
	if _, err := s.Open("r2"); err != nil {
		t.Errorf("another run: %v", err)
	}
}

func TestReadBounds(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	j := create(t, s, "r")
	appendSizes(t, j, 10, 10, 0, 10, 100)
	tests := []struct {
		after    spool.Seq
		maxBytes int
		want     int
	}{
		{0, -1, 1}, {0, 0, 1}, {0, 9, 1}, {0, 10, 1}, {0, 20, 3}, {0, 29, 3}, {0, 30, 4},
		{0, 129, 4}, {0, 130, 5}, {0, int(^uint(0) >> 1), 5}, {2, 0, 1}, {4, 1, 1},
		{5, 100, 0}, {6, 100, 0}, {^spool.Seq(0), 100, 0},
	}
	for _, tt := range tests {
		got, err := j.Read(nil, tt.after, tt.maxBytes)
		if err != nil || len(got) != tt.want {
			t.Errorf("Read(%d, %d): %d events, %v, want %d", tt.after, tt.maxBytes, len(got), err, tt.want)
		}
	}
}

// Events do not change while others are read.
func TestReadDoesNotAlias(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{SegmentBytes: 1 << 20})
	j := create(t, s, "r")
	want := appendSizes(t, j, 1000, 70000, 10, 5000, 300000, 1<<20, 3)
	first := readAll(t, j, 1<<20)
	readAll(t, j, 10)
	appendSizes(t, j, 5000)
	wantEvents(t, "r", first, want)
}

func TestMissingSegment(t *testing.T) {
	gap := func(from, to spool.Seq) spool.Event {
		return spool.Event{Run: "r", Seq: to, Time: epoch, Kind: spool.KindTruncated, Data: json.RawMessage(fmt.Sprintf(`{"from":%d,"to":%d}`, from, to))}
	}
	tests := []struct {
		name   string
		remove []int // of six segments with one event each
		want   func(e []spool.Event) []spool.Event
	}{
		{"first", []int{0}, func(e []spool.Event) []spool.Event { return append([]spool.Event{gap(1, 1)}, e[1:]...) }},
		{"middle", []int{2, 3}, func(e []spool.Event) []spool.Event {
			return []spool.Event{e[0], e[1], gap(3, 4), e[4], e[5]}
		}},
		{"two places", []int{1, 4}, func(e []spool.Event) []spool.Event {
			return []spool.Event{e[0], gap(2, 2), e[2], e[3], gap(5, 5), e[5]}
		}},
	}
	for _, tt := range tests {
		for _, when := range []string{"before open", "after open"} {
			t.Run(tt.name+"/"+when, func(t *testing.T) {
				s := openStore(t, t.TempDir(), Options{SegmentBytes: 1})
				j := create(t, s, "r")
				events := appendSizes(t, j, 5, 5, 5, 5, 5, 5)
				for i := range events {
					events[i].Run = "r"
				}
				if err := j.Seal(testInfo("r")); err != nil {
					t.Fatal(err)
				}
				r := j
				files := segmentFiles(t, s, "r")
				for _, i := range tt.remove {
					if err := os.Remove(files[i]); err != nil {
						t.Fatal(err)
					}
				}
				if when == "before open" {
					var err error
					if r, err = s.Open("r"); err != nil {
						t.Fatal(err)
					}
				}
				for _, max := range []int{0, 1000} {
					if d := cmp.Diff(tt.want(events), readAll(t, r, max)); d != "" {
						t.Errorf("pages of %d (-want +got):\n%s", max, d)
					}
				}
			})
		}
	}
}

func TestRefresh(t *testing.T) {
	for _, segment := range []int64{0, 1, 2000} {
		t.Run(fmt.Sprint(segment), func(t *testing.T) {
			dir := t.TempDir()
			owner := openStore(t, dir, Options{SegmentBytes: segment})
			reader := openStore(t, dir, Options{})
			w := create(t, owner, "r")
			r, err := reader.Open("r")
			if err != nil {
				t.Fatal(err)
			}
			var want []spool.Event
			for i := range 20 {
				want = append(want, appendSizes(t, w, i*100, 3)...)
				note := testInfo("r")
				note.Pid = i
				if err := w.Note(note); err != nil {
					t.Fatal(err)
				}
				if err := r.Refresh(); err != nil {
					t.Fatal(err)
				}
				wantEvents(t, "r", readAll(t, r, 1000), want)
				if d := cmp.Diff(w.Info(), r.Info()); d != "" {
					t.Fatalf("info (-owner +reader):\n%s", d)
				}
			}
			if err := w.Seal(testInfo("r")); err != nil {
				t.Fatal(err)
			}
			if err := r.Refresh(); err != nil {
				t.Fatal(err)
			}
			if last, sealed := r.Last(); last != 40 || !sealed {
				t.Errorf("Last() = %d, %v", last, sealed)
			}
			wantEvents(t, "r", readAll(t, r, 1<<20), want)
		})
	}
}

// A reader may refresh while a record, or the head of a segment, is half written.
func TestRefreshHalfWritten(t *testing.T) {
	full := openStore(t, t.TempDir(), Options{SegmentBytes: 300})
	j := create(t, full, "r")
	want := appendSizes(t, j, 50, 60, 70, 80)
	if err := j.Seal(testInfo("r")); err != nil {
		t.Fatal(err)
	}
	part := openStore(t, t.TempDir(), Options{})
	var r *Journal
	seen := 0
	for _, path := range segmentFiles(t, full, "r") {
		b := mustRead(t, path)
		for n := range len(b) + 1 {
			mustWrite(t, filepath.Join(part.runsDir(), filepath.Base(path)), b[:n])
			if r == nil {
				var err error
				if r, err = part.Open("r"); err != nil {
					t.Fatal(err)
				}
			} else if err := r.Refresh(); err != nil {
				t.Fatal(err)
			}
			fresh, err := part.Open("r")
			if err != nil {
				t.Fatal(err)
			}
			got := readAll(t, r, 1<<20)
			if len(got) < seen {
				t.Fatalf("%d events, after %d", len(got), seen)
			}
			seen = len(got)
			wantEvents(t, "r", got, want[:seen])
			wantEvents(t, "r", readAll(t, fresh, 1<<20), want[:seen])
		}
	}
	if last, sealed := r.Last(); last != 4 || !sealed {
		t.Errorf("Last() = %d, %v", last, sealed)
	}
}

func TestAppendDoesNotAllocate(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	j := create(t, s, "r")
	for _, size := range []int{0, 100, 64 << 10} {
		last, _ := j.Last()
		e := output(last+1, make([]byte, size))
		e.Data = json.RawMessage(`{"a":1}`)
		n := testing.AllocsPerRun(100, func() {
			if err := j.Append(&e); err != nil {
				t.Fatal(err)
			}
			e.Seq++
		})
		if n >= 1 {
			t.Errorf("%d bytes: %v allocations", size, n)
		}
	}
}
