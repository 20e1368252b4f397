package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
)

// writeLog writes a small log with notes in it and returns its files.
func writeLog(t testing.TB, segment int64, seal bool) ([]spool.Event, map[string][]byte) {
	t.Helper()
	s := openStore(t, t.TempDir(), Options{SegmentBytes: segment})
	j := create(t, s, "r")
	events := appendSizes(t, j, 30, 0, 300)
	note := testInfo("r")
	note.Pid = 7
	if err := j.Note(note); err != nil {
		t.Fatal(err)
	}
	events = append(events, appendSizes(t, j, 20, 10)...)
	if seal {
		if err := j.Seal(note); err != nil {
			t.Fatal(err)
		}
	}
	files := make(map[string][]byte)
	for _, path := range segmentFiles(t, s, "r") {
		files[filepath.Base(path)] = mustRead(t, path)
	}
	return events, files
}

// A log that is cut at any byte is recovered to a prefix and can be continued.
func TestRecoverCutAnywhere(t *testing.T) {
	for _, segment := range []int64{0, 400} {
		for _, seal := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d/%v", segment, seal), func(t *testing.T) {
				events, files := writeLog(t, segment, seal)
				names := sortedKeys(files)
				s := openStore(t, t.TempDir(), Options{SegmentBytes: segment})
				seen := 0
				for i, name := range names {
					path := filepath.Join(s.runsDir(), name)
					for n := range len(files[name]) + 1 {
						if (segment == 0) == seal && n%4 != 0 && n < len(files[name]) {
							continue // the other pairs try each byte
						}
						for _, whole := range names[:i] {
							mustWrite(t, filepath.Join(s.runsDir(), whole), files[whole])
						}
						mustWrite(t, path, files[name][:n])
						complete := seal && i == len(names)-1 && n == len(files[name])
						seen = checkRecovered(t, s, events, seen, int64(n), complete)
						if err := s.Remove("r"); err != nil {
							t.Fatal(err)
						}
					}
				}
				if seen != len(events) {
					t.Errorf("%d events of the whole log, want %d", seen, len(events))
				}
			})
		}
	}
}

// checkRecovered recovers a log whose last file was cut after n bytes, and returns
// the number of its events.
func checkRecovered(t *testing.T, s *Store, events []spool.Event, seen int, n int64, complete bool) int {
	t.Helper()
	for info, err := range s.List() {
		if err != nil || info.ID != "r" {
			t.Fatalf("cut at %d: list: %v, %v", n, info.ID, err)
		}
	}
	total := func() (sum int64) {
		for _, path := range segmentFiles(t, s, "r") {
			fi, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			sum += fi.Size()
		}
		return sum
	}
	size := total()
	j, cut, err := s.Recover("r")
	if err != nil {
		t.Fatalf("cut at %d: %v", n, err)
	}
	defer j.Close()
	if (cut.Bytes == 0) != (cut.Reason == "") || cut.Bytes > n {
		t.Fatalf("cut at %d: %+v", n, cut)
	}
	last, sealed := j.Last()
	if complete && !sealed {
		t.Fatal("the whole log is not sealed")
	}
	if int(last) < seen {
		t.Fatalf("cut at %d: %d events, but a shorter file has %d", n, last, seen)
	}
	got := readAll(t, j, 1<<20)
	wantEvents(t, "r", got, events[:last])
	if j.Info().ID != "r" || j.Info().Last != last {
		t.Fatalf("cut at %d: %+v", n, j.Info())
	}
	if !sealed {
		if j.tail.events || last > 0 { // otherwise a new head was written
			if now := total(); now != size-cut.Bytes {
				t.Fatalf("cut at %d: %d bytes of %d are left, but %d were cut", n, now, size, cut.Bytes)
			}
		}
		more := appendSizes(t, j, 12, 300, 1)
		all := append(events[:last:last], more...)
		wantEvents(t, "r", readAll(t, j, 50), all)
		if err := j.Seal(testInfo("r")); err != nil {
			t.Fatal(err)
		}
		events = all
	} else {
		events = events[:last]
	}
	r, err := s.Open("r")
	if err != nil {
		t.Fatal(err)
	}
	if _, sealed := r.Last(); !sealed {
		t.Fatalf("cut at %d: not sealed when opened again", n)
	}
	wantEvents(t, "r", readAll(t, r, 1<<20), events)
	return int(last)
}

// No reader gets a changed event, whichever byte of a log changes.
func TestFlippedByte(t *testing.T) {
	for _, seal := range []bool{false, true} {
		t.Run(fmt.Sprint(seal), func(t *testing.T) {
			events, files := writeLog(t, 0, seal)
			name := sortedKeys(files)[0]
			whole := files[name]
			s := openStore(t, t.TempDir(), Options{})
			path := filepath.Join(s.runsDir(), name)
			for i := range whole {
				b := append([]byte(nil), whole...)
				b[i] ^= 0x55
				mustWrite(t, path, b)
				detected := false
				j, err := s.Open("r")
				if err == nil {
					var got []spool.Event
					for err == nil {
						after, n := spool.Seq(len(got)), len(got)
						if got, err = j.Read(got, after, 1000); len(got) == n {
							break
						}
					}
					wantEvents(t, "r", got, events[:len(got)])
					if _, sealed := j.Last(); len(got) < len(events) || sealed != seal {
						detected = true
					}
				}
				var corrupt *CorruptError
				if errors.As(err, &corrupt) {
					detected = true
					if corrupt.Run != "r" || corrupt.File != path || corrupt.Offset > int64(i) {
						t.Fatalf("byte %d: %v", i, err)
					}
				} else if err != nil {
					t.Fatalf("byte %d: %v is not a CorruptError", i, err)
				}
				if j, cut, err := s.Recover("r"); err == nil {
					detected = detected || cut.Bytes > 0
					j.Close()
				} else if !errors.As(err, &corrupt) {
					t.Fatalf("byte %d: recover: %v", i, err)
				}
				if !detected {
					t.Fatalf("byte %d: not detected", i)
				}
			}
		})
	}
}

// In a complete log, a reader gets an error for every changed byte of an event.
func TestFlippedByteOfSealedEvent(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	j := create(t, s, "r")
	appendSizes(t, j, 30)
	from := j.tail.off
	appendSizes(t, j, 40)
	to := j.tail.off
	appendSizes(t, j, 50)
	if err := j.Seal(testInfo("r")); err != nil {
		t.Fatal(err)
	}
	path := segmentFiles(t, s, "r")[0]
	whole := mustRead(t, path)
	for i := from; i < to; i++ {
		b := append([]byte(nil), whole...)
		b[i] ^= 1
		mustWrite(t, path, b)
		r, err := s.Open("r")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := r.Read(nil, 0, 1000); err != nil || len(got) != 1 {
			t.Fatalf("byte %d: before the damage: %d events, %v", i, len(got), err)
		}
		var corrupt *CorruptError
		if _, err := r.Read(nil, 1, 1000); !errors.As(err, &corrupt) || corrupt.Offset != from {
			t.Fatalf("byte %d: %v", i, err)
		}
	}
}

func TestRecoverReason(t *testing.T) {
	_, files := writeLog(t, 0, false)
	name := sortedKeys(files)[0]
	whole := files[name]
	tests := []struct {
		name  string
		file  []byte
		bytes int64
		want  string // part of the reason, or of the error if bytes is negative
	}{
		{"whole", whole, 0, ""},
		{"torn", whole[:len(whole)-1], 49, "torn"},
		{"zeros", append(whole[:len(whole):len(whole)], make([]byte, 100)...), 100, "size 0"},
		{"never begun", nil, 0, ""},
		{"only zeros", make([]byte, 100), 100, "torn"},
		{"something else", []byte("#!/bin/sh\necho hi\n"), -1, "not a segment"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := openStore(t, t.TempDir(), Options{})
			path := filepath.Join(s.runsDir(), name)
			mustWrite(t, path, tt.file)
			j, cut, err := s.Recover("r")
			if tt.bytes < 0 {
				var corrupt *CorruptError
				if !errors.As(err, &corrupt) || !strings.Contains(err.Error(), tt.want) {
					t.Fatalf("error %v", err)
				}
				if got := mustRead(t, path); string(got) != string(tt.file) {
					t.Error("the file was changed")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer j.Close()
			if cut.Bytes != tt.bytes || !strings.Contains(cut.Reason, tt.want) {
				t.Errorf("cut %+v", cut)
			}
		})
	}
}

// A program that prints a complete log does not complete its own log.
func TestPrintedFooter(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	j := create(t, s, "r")
	appendSizes(t, j, 10)
	if err := j.Seal(testInfo("r")); err != nil {
		t.Fatal(err)
	}
	printed := mustRead(t, segmentFiles(t, s, "r")[0])
	if err := s.Remove("r"); err != nil {
		t.Fatal(err)
	}
	j = create(t, s, "r")
	appendAll(t, j, output(1, printed))
	r, err := s.Open("r")
	if err != nil {
		t.Fatal(err)
	}
	if last, sealed := r.Last(); last != 1 || sealed {
		t.Errorf("Last() = %d, %v", last, sealed)
	}
}

func TestRecoverKeepsDescription(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{SegmentBytes: 100})
	j := create(t, s, "r")
	note := testInfo("r")
	note.Pid = 99
	if err := j.Note(note); err != nil {
		t.Fatal(err)
	}
	appendSizes(t, j, 100, 100, 100)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	note.Last, note.Bytes = 3, 300
	r, _, err := s.Recover("r")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if d := cmp.Diff(note, r.Info()); d != "" {
		t.Errorf("info (-want +got):\n%s", d)
	}
}
