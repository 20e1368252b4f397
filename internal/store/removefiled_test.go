package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/failpoint"
)

// TestRemoveFiled removes runs that are filed, and checks that the index forgets
// them.
func TestRemoveFiled(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{SegmentBytes: 1000})
	someRuns(t, s, 6)
	file(t, s)
	swept, err := s.RemoveComplete([]spool.RunID{"run1", "run2"}, false)
	if err != nil || len(swept.Runs) != 2 {
		t.Fatalf("%+v, %v", swept, err)
	}
	want := []string{"run0", "run3", "run4", "run5"}
	if d := cmp.Diff(want, indexed(t, s)); d != "" {
		t.Errorf("index (-want +got):\n%s", d)
	}
	// The death of a process can leave an entry whose run is gone.
	if err := os.Remove(segmentFiles(t, s, "run3")[0]); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]spool.RunID{"live", "run0", "run4", "run5"}, ids(s)); d != "" {
		t.Errorf("list (-want +got):\n%s", d)
	}
	// A run whose removal was interrupted is not in an index that is built anew.
	if err := errors.Join(s.hide("run4"), os.RemoveAll(s.indexDir())); err != nil {
		t.Fatal(err)
	}
	s.verified.Store(false)
	file(t, s)
	if d := cmp.Diff([]string{"run0", "run5"}, indexed(t, s)); d != "" {
		t.Errorf("index built anew (-want +got):\n%s", d)
	}
	left, err := filepath.Glob(filepath.Join(s.runsDir(), "*", "run[12].*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestRemoveWhileFiling removes a run that is filed just before its files are removed, and
// checks that the index forgets it.
func TestRemoveWhileFiling(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	someRuns(t, s, 2)
	disable := failpoint.Enable("store.remove", 1, func() error {
		file(t, s)
		return nil
	})
	defer disable()
	if _, err := s.RemoveComplete([]spool.RunID{"run0"}, false); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"run1"}, indexed(t, s)); d != "" {
		t.Errorf("index (-want +got):\n%s", d)
	}
	if st, err := s.Storage(""); err != nil || st.FinishedRuns != 1 {
		t.Errorf("storage %+v, %v", st, err)
	}
}

// TestRemoveFiledBlobs removes filed runs whose blobs others may share. The logs of
// runs without these blobs are not read: one of them is a directory.
func TestRemoveFiledBlobs(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	one := withBlobs(t, s, "one", true, "only one", "both", "many too")
	withBlobs(t, s, "two", true, "both")
	withBlobs(t, s, "other", true, "nothing in common")
	many := []string{"many too"}
	for i := range maxBlobTerms {
		many = append(many, fmt.Sprint(i))
	}
	withBlobs(t, s, "many", true, many...)
	file(t, s)
	path := segmentFiles(t, s, "other")[0]
	if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
	gone := func(d spool.Digest) bool {
		r, err := s.Blob(d)
		if err == nil {
			r.Close()
		}
		return errors.Is(err, spool.ErrNotFound)
	}
	if swept, err := s.RemoveComplete([]spool.RunID{"one"}, false); err != nil || swept.Blobs != 1 || !gone(one[0]) || gone(one[1]) || gone(one[2]) {
		t.Errorf("removed %+v, %v", swept, err)
	}
	if swept, err := s.RemoveComplete([]spool.RunID{"two"}, false); err != nil || swept.Blobs != 1 || !gone(one[1]) {
		t.Errorf("removed %+v, %v", swept, err)
	}
	if swept, err := s.RemoveComplete([]spool.RunID{"many"}, false); err != nil || swept.Blobs != maxBlobTerms+1 {
		t.Errorf("removed %+v, %v", swept, err)
	}
}
