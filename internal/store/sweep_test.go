package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
)

func ids(s *Store) []spool.RunID {
	var all []spool.RunID
	for info := range s.List() {
		all = append(all, info.ID)
	}
	slices.Sort(all)
	return all
}

func TestSweep(t *testing.T) {
	hour := func(h int) time.Time { return epoch.Add(time.Duration(h) * time.Hour) }
	now := hour(100)
	tests := []struct {
		name   string
		policy Retention
		keep   []spool.RunID
		want   []spool.RunID // removed, in order
	}{
		{"no bounds", Retention{}, nil, nil},
		{"age", Retention{Age: 24 * time.Hour}, nil, []spool.RunID{"a", "b"}},
		{"age exactly", Retention{Age: 90 * time.Hour}, nil, nil},
		{"age, kept", Retention{Age: 24 * time.Hour}, []spool.RunID{"a"}, []spool.RunID{"b"}},
		{"bytes", Retention{TotalBytes: 40000}, nil, []spool.RunID{"a", "b"}},
		{"bytes, kept", Retention{TotalBytes: 40000}, []spool.RunID{"a"}, []spool.RunID{"b", "c"}},
		{"bytes, all", Retention{TotalBytes: 1}, nil, []spool.RunID{"a", "b", "c", "d"}},
		{"runs", Retention{Runs: 3}, nil, []spool.RunID{"a"}},
		{"runs and bytes", Retention{Runs: 3, TotalBytes: 40000}, nil, []spool.RunID{"a", "b"}},
		{"age and runs", Retention{Age: 80 * time.Hour, Runs: 1}, nil, []spool.RunID{"a", "b", "c"}},
		{"both", Retention{Age: 80 * time.Hour, TotalBytes: 50000}, nil, []spool.RunID{"a"}},
	}
	for i := range 2 * len(tests) {
		tt, filed := tests[i/2], i%2 > 0
		t.Run(fmt.Sprintf("%s, filed %v", tt.name, filed), func(t *testing.T) {
			s := openStore(t, t.TempDir(), Options{SegmentBytes: 4000, Now: func() time.Time { return now }})
			finish(t, s, "d", hour(4), hour(98), 10000)
			finish(t, s, "a", hour(5), hour(10), 10000)
			if filed {
				file(t, s)
			}
			finish(t, s, "c", hour(1), hour(90), 10000)
			finish(t, s, "b", hour(2), hour(30), 10000)
			live := create(t, s, "live")
			appendSizes(t, live, 10000)
			all := ids(s)
			got, err := s.Sweep(tt.policy, func(id spool.RunID) bool { return slices.Contains(tt.keep, id) }, nil)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, got.Runs); d != "" {
				t.Errorf("removed (-want +got):\n%s", d)
			}
			if min := int64(len(tt.want)) * 10000; got.Bytes < min || got.Bytes > min*11/10 {
				t.Errorf("%d bytes removed", got.Bytes)
			}
			left := slices.DeleteFunc(all, func(id spool.RunID) bool { return slices.Contains(tt.want, id) })
			if d := cmp.Diff(left, ids(s)); d != "" {
				t.Errorf("left (-want +got):\n%s", d)
			}
		})
	}
}

// TestSweepLabels applies rules about labels, to runs that are filed and others, and
// compares what a sweep deletes with what was announced.
func TestSweepLabels(t *testing.T) {
	now := epoch.Add(100 * time.Hour)
	runs := []struct {
		id     spool.RunID
		ended  int // hours
		labels map[string]string
	}{
		{"plain1", 1, nil},
		{"plain2", 90, nil},
		{"ci1", 20, map[string]string{"ci": "1"}},
		{"ci2", 97, map[string]string{"ci": "2"}},
		{"empty", 21, map[string]string{"ci": ""}},
		{"core", 30, map[string]string{"team": "core"}},
		{"web", 31, map[string]string{"team": "web"}},
		{"both", 40, map[string]string{"ci": "1", "team": "core"}},
		{"pinned", 2, map[string]string{"keep": "forever", "ci": "1"}},
		{"unpinned", 3, map[string]string{"keep": "a while"}},
		{"audit", 4, map[string]string{record.LabelAudit: "x"}},
	}
	rules := []LabelRule{{"ci", "", 5 * time.Hour}, {"team", "core", 80 * time.Hour}}
	tests := []struct {
		name   string
		policy Retention
		want   map[spool.RunID]string
	}{
		{"labels", Retention{Labels: rules}, map[spool.RunID]string{
			"ci1":   "it ended 3d ago, and runs with the label ci are kept 5h",
			"empty": "it ended 3d ago, and runs with the label ci are kept 5h",
		}},
		{"age and labels", Retention{Age: 50 * time.Hour, Labels: rules}, map[spool.RunID]string{
			"plain1":   "it ended 4d ago, and runs are kept 2d",
			"unpinned": "it ended 4d ago, and runs are kept 2d",
			"audit":    "it ended 4d ago, and runs are kept 2d",
			"ci1":      "it ended 3d ago, and runs with the label ci are kept 5h",
			"empty":    "it ended 3d ago, and runs with the label ci are kept 5h",
			"web":      "it ended 2d ago, and runs are kept 2d",
		}},
		{"forever", Retention{Age: time.Hour, Labels: []LabelRule{{"ci", "", Forever}, {"team", "", Forever}}}, map[spool.RunID]string{
			"plain1":   "it ended 4d ago, and runs are kept 1h",
			"plain2":   "it ended 10h ago, and runs are kept 1h",
			"unpinned": "it ended 4d ago, and runs are kept 1h",
			"audit":    "it ended 4d ago, and runs are kept 1h",
		}},
		{"number", Retention{Runs: 7}, map[spool.RunID]string{
			"plain1":   "it is not among the newest 7 runs",
			"unpinned": "it is not among the newest 7 runs",
		}},
		{"number and labels", Retention{Runs: 6, Labels: rules}, map[spool.RunID]string{
			"plain1": "it is not among the newest 6 runs",
			"ci1":    "it ended 3d ago, and runs with the label ci are kept 5h",
			"empty":  "it ended 3d ago, and runs with the label ci are kept 5h",
		}},
	}
	for i := range 3 * len(tests) {
		tt, filed := tests[i/3], i%3*len(runs)/2
		t.Run(fmt.Sprintf("%s, %d filed", tt.name, filed), func(t *testing.T) {
			s := openStore(t, t.TempDir(), Options{Now: func() time.Time { return now }})
			for i, r := range runs {
				j := create(t, s, r.id)
				info := j.Info()
				info.State, info.Ended, info.Labels = spool.StateClosed, epoch.Add(time.Duration(r.ended)*time.Hour), r.labels
				if err := j.Seal(info); err != nil {
					t.Fatal(err)
				}
				if i+1 == filed {
					file(t, s)
				}
			}
			announced := make(map[spool.RunID]string)
			for due, err := range s.Due(tt.policy, nil) {
				if err != nil {
					t.Fatal(err)
				}
				announced[due.Run] = due.Why
			}
			if d := cmp.Diff(tt.want, announced); d != "" {
				t.Errorf("announced (-want +got):\n%s", d)
			}
			swept, err := s.Sweep(tt.policy, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(slices.Sorted(maps.Keys(tt.want)), slices.Sorted(slices.Values(swept.Runs))); d != "" {
				t.Errorf("removed (-want +got):\n%s", d)
			}
			if left := len(ids(s)); left != len(runs)-len(tt.want) {
				t.Errorf("%d runs left", left)
			}
		})
	}
}

// TestSweepInSteps sweeps more runs than one sweep deletes.
func TestSweepInSteps(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	const n = sweepBatch + 2*sweepStep + 1
	for i := range n {
		at := epoch.Add(time.Duration(i) * time.Second)
		finish(t, s, spool.RunID(fmt.Sprintf("r%d", i)), at, at, 1)
		if i == n-sweepStep {
			file(t, s)
		}
	}
	p, rests := Retention{Runs: 1}, 0
	first, err := s.Sweep(p, nil, func() { rests++ })
	if err != nil || len(first.Runs) != sweepBatch || !first.More || rests != sweepBatch/sweepStep {
		t.Errorf("first: %d runs, more %v, %d rests, %v", len(first.Runs), first.More, rests, err)
	}
	second, err := s.Sweep(p, nil, func() { rests++ })
	if err != nil || len(second.Runs) != n-1-sweepBatch || second.More {
		t.Errorf("second: %d runs, more %v, %v", len(second.Runs), second.More, err)
	}
	if left := ids(s); len(left) != 1 || left[0] != spool.RunID(fmt.Sprintf("r%d", n-1)) {
		t.Errorf("left: %v", left)
	}
	if third, err := s.Sweep(p, nil, nil); err != nil || len(third.Runs) != 0 {
		t.Errorf("third: %d runs, %v", len(third.Runs), err)
	}
}

func TestSweepBlobs(t *testing.T) {
	now := epoch
	s := openStore(t, t.TempDir(), Options{Now: func() time.Time { return now }})
	put := func(text string) spool.Digest {
		t.Helper()
		b, err := s.PutBlob("text/plain", strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		return b.Digest
	}
	left := func(d spool.Digest) bool {
		t.Helper()
		r, err := s.Blob(d)
		if err != nil && !errors.Is(err, spool.ErrNotFound) {
			t.Fatal(err)
		}
		return err == nil && r.Close() == nil
	}
	sweep := func(want int) {
		t.Helper()
		got, err := s.Sweep(Retention{Age: 24 * time.Hour}, nil, nil)
		if err != nil || got.Blobs != want {
			t.Errorf("swept %d blobs, %v, want %d", got.Blobs, err, want)
		}
	}
	early, again := put("early"), put("again")
	abandoned := filepath.Join(s.blobsDir(), tempPrefix+"1")
	mustWrite(t, abandoned, nil)
	if err := os.Chtimes(abandoned, now, now); err != nil {
		t.Fatal(err)
	}
	sweep(0) // within the grace
	now = epoch.Add(2 * time.Hour)
	finish(t, s, "r", now, now, 10)
	file(t, s)
	used := put("used")
	put("again")
	sweep(1)
	if left(early) || !left(again) || !left(used) {
		t.Error("only the blob from before the run should be gone")
	}
	if _, err := os.Stat(abandoned); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("abandoned file: %v", err)
	}
	now = epoch.Add(20 * time.Hour)
	sweep(0) // the run is still there
	now = epoch.Add(30 * time.Hour)
	sweep(2)
	if left(again) || left(used) {
		t.Error("blobs outlive the last run")
	}
}

func TestBlob(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{Sync: SyncAlways})
	for range 2 {
		b, err := s.PutBlob("text/plain", strings.NewReader("hello"))
		want := spool.Blob{Digest: "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824", Size: 5, MIME: "text/plain"}
		if err != nil || b != want {
			t.Fatalf("PutBlob = %v, %v", b, err)
		}
		r, err := s.Blob(b.Digest)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		if err != nil || string(got) != "hello" || r.Close() != nil {
			t.Errorf("Blob = %q, %v", got, err)
		}
	}
	if _, err := s.PutBlob("", io.MultiReader(strings.NewReader("part"), failingReader{})); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("failing reader: %v", err)
	}
	files := 0
	err := filepath.WalkDir(s.blobsDir(), func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files++
		}
		return err
	})
	if err != nil || files != 1 {
		t.Errorf("%d files, %v, want 1", files, err)
	}
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestBlobDigest(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	hex := strings.Repeat("0a", 32)
	tests := []struct {
		digest string
		want   error
	}{
		{"sha256:" + hex, spool.ErrNotFound},
		{"", spool.ErrInvalid},
		{hex, spool.ErrInvalid},
		{"sha256:", spool.ErrInvalid},
		{"sha512:" + hex, spool.ErrInvalid},
		{"SHA256:" + hex, spool.ErrInvalid},
		{"sha256:" + strings.ToUpper(hex), spool.ErrInvalid},
		{"sha256:" + hex[1:], spool.ErrInvalid},
		{"sha256:" + hex + "0", spool.ErrInvalid},
		{"sha256:" + hex[:62] + "/0", spool.ErrInvalid},
		{"sha256:../" + hex[3:], spool.ErrInvalid},
		{"sha256:" + hex[:63] + "\x00", spool.ErrInvalid},
		{"sha256:" + hex[:63] + "g", spool.ErrInvalid},
	}
	for _, tt := range tests {
		if _, err := s.Blob(spool.Digest(tt.digest)); !errors.Is(err, tt.want) {
			t.Errorf("Blob(%q): %v, want %v", tt.digest, err, tt.want)
		}
	}
}
