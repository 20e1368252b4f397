package store

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spool-run/spool"
)

// A full directory of spares gives way to another, and an empty one is removed.
func TestSparesDirectories(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{Spares: 2})
	dirs := make(map[string]bool)
	for i := range sparesPerDir + 10 {
		id := spool.RunID(fmt.Sprintf("r%d", i))
		if err := create(t, s, id).Close(); err != nil {
			t.Fatal(err)
		}
		s.spares.mu.Lock()
		dirs[s.spares.dir] = true
		s.spares.mu.Unlock()
	}
	if len(dirs) != 2 {
		t.Errorf("files were made in %d directories", len(dirs))
	}
	if got := len(ids(s)); got != sparesPerDir+10 {
		t.Errorf("%d runs", got)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(s.sparesDir()); err != nil || len(left) > 0 {
		t.Errorf("left after the close: %v, %v", left, err)
	}
}

// A sweep removes the spares of a dead owner. A live owner whose spares it removes
// goes on.
func TestSweepSpares(t *testing.T) {
	now := time.Now()
	s := openStore(t, t.TempDir(), Options{Spares: 4, Now: func() time.Time { return now }})
	appendSizes(t, create(t, s, "before"), 10)
	s.spares.Wait()
	dead := filepath.Join(s.sparesDir(), "dead")
	if err := os.Mkdir(dead, 0o700); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, filepath.Join(dead, "1"+newExt), nil)

	count := func() int {
		t.Helper()
		dirs, err := os.ReadDir(s.sparesDir())
		if err != nil {
			t.Fatal(err)
		}
		return len(dirs)
	}
	if _, err := s.Sweep(Retention{}, nil, nil); err != nil {
		t.Fatal(err)
	}
	if n := count(); n != 2 {
		t.Errorf("%d directories after an early sweep", n)
	}
	now = now.Add(2 * blobGrace)
	if _, err := s.Sweep(Retention{}, nil, nil); err != nil {
		t.Fatal(err)
	}
	if n := count(); n != 0 {
		t.Errorf("%d directories after the sweep", n)
	}
	for i := range 10 { // more than there were spares
		j := create(t, s, spool.RunID(fmt.Sprintf("after%d", i)))
		appendSizes(t, j, 10)
	}
	if got := len(ids(s)); got != 11 {
		t.Errorf("%d runs", got)
	}
}
