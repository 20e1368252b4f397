package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spool-run/spool"
)

// clusterDir returns a state directory of a node.
func clusterDir(t *testing.T) string {
	t.Helper()
	state := t.TempDir()
	if err := os.Mkdir(filepath.Join(state, dirName), 0o700); err != nil {
		t.Fatal(err)
	}
	return state
}

// TestClaimsOnDisk checks what the file of claims remembers: ids that were claimed and
// not given back, for as long as the store knows them, also if its last line is cut off.
func TestClaimsOnDisk(t *testing.T) {
	state := clusterDir(t)
	name := filepath.Join(state, dirName, claimsFile)
	old := time.Now().Add(-2 * time.Hour).Unix()
	if err := os.WriteFile(name, fmt.Appendf(nil, "+%d old\n+%d on", old, time.Now().Unix()), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := openClaims(state, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []spool.RunID{"one", "two", "three"} {
		if err := c.add(id); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.drop("two"); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < 2; i++ {
		ids, err := c.all()
		if err != nil || len(ids) != 2 || ids["one"].IsZero() || ids["three"].IsZero() {
			t.Errorf("the claims are %v, %v", ids, err)
		}
		if err := c.close(); err != nil {
			t.Fatal(err)
		}
		if c, err = openClaims(state, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	// A file with the same claim over and over does not grow without end.
	if c.slack != claimsSlack {
		t.Errorf("the file may grow by %d bytes", c.slack)
	}
	c.slack = 500
	for range 100 {
		if err := c.add("again"); err != nil {
			t.Fatal(err)
		}
	}
	fi, err := os.Stat(name)
	if err != nil || fi.Size() > 1000 {
		t.Errorf("the file has %d bytes, %v", fi.Size(), err)
	}
	if ids, err := c.all(); err != nil || len(ids) != 3 {
		t.Errorf("the claims are %v, %v", ids, err)
	}
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
}

// TestMarksOnDisk checks that high-water marks grow, outlive the process, and begin anew
// with a generation.
func TestMarksOnDisk(t *testing.T) {
	state := clusterDir(t)
	m, err := openMarks(state)
	if err == nil {
		err = m.begin(7)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, rev := range []uint64{5, 900, 3} {
		if err := m.raise(7, "run", rev); err != nil {
			t.Fatal(err)
		}
	}
	m.saw(6, "queue", 1) // of another generation
	m.saw(7, "node", 12)
	if err := m.raise(7, "queue", 2); err != nil {
		t.Fatal(err)
	}
	if err := m.close(); err != nil {
		t.Fatal(err)
	}
	if m, err = openMarks(state); err != nil {
		t.Fatal(err)
	}
	defer m.close()
	generation, high := m.all()
	if generation != 7 || high["run"] != 900 || high["node"] != 12 || high["queue"] != 2 {
		t.Errorf("the marks are %v of generation %d", high, generation)
	}
	if err := m.begin(8); err != nil {
		t.Fatal(err)
	}
	if generation, high := m.all(); generation != 8 || len(high) > 0 {
		t.Errorf("the marks of the next generation are %v of %d", high, generation)
	}
}
