package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
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
	now := time.Now().Unix()
	if err := os.WriteFile(name, fmt.Appendf(nil, "+%d old\n=%d\n+%d on", now-7200, now, now), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := openClaims(state, time.Hour, time.Now)
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
		if err != nil || len(ids) != 2 || !has(ids, "one") || !has(ids, "three") {
			t.Errorf("the claims are %v, %v", ids, err)
		}
		if err := c.close(); err != nil {
			t.Fatal(err)
		}
		if c, err = openClaims(state, time.Hour, time.Now); err != nil {
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

// has reports whether an id is among claims.
func has(ids map[spool.RunID]time.Duration, id spool.RunID) bool {
	_, ok := ids[id]
	return ok
}

// TestClaimsWithoutAClock sets the clock of the machine back and forth while ids are
// claimed, and while the node is down: each is known for the whole time in which the node
// ran after it, and not forever.
func TestClaimsWithoutAClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keep = 24 * time.Hour
		state := clusterDir(t)
		var off time.Duration // by how much the clock is wrong
		clock := func() time.Time { return time.Now().Round(0).Add(off) }
		var c *claims
		open := func() {
			t.Helper()
			var err error
			if c, err = openClaims(state, keep, clock); err != nil {
				t.Fatal(err)
			}
		}
		open()
		c.slack = 0 // it is written anew all the time
		known := func(what string, want ...spool.RunID) {
			t.Helper()
			ids, err := c.all()
			ok := err == nil && len(ids) == len(want)
			for _, id := range want {
				ok = ok && has(ids, id)
			}
			if !ok {
				t.Errorf("%s: the claims are %v, %v", what, ids, err)
			}
		}
		claim := func(id spool.RunID) {
			t.Helper()
			if err := c.add(id); err != nil {
				t.Fatal(err)
			}
		}
		for _, step := range []struct {
			id  spool.RunID
			off time.Duration
		}{{"right", 0}, {"ahead", 48 * time.Hour}, {"behind", -1000 * time.Hour}, {"again", 0}} {
			off = step.off
			claim(step.id)
			for range 9 { // so that the file is written anew
				claim("other")
			}
			time.Sleep(time.Hour)
		}
		all := []spool.RunID{"right", "ahead", "behind", "again", "other"}
		known("while it runs", all...)
		for _, off = range []time.Duration{48 * time.Hour, -1000 * time.Hour, 0} {
			if err := c.close(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Hour) // it is down
			open()
			known("after a start", all...)
		}
		time.Sleep(keep - 3*time.Hour - 30*time.Minute) // and four hours before
		known("after the time of the first", "ahead", "behind", "again", "other")
		if ids, _ := c.all(); ids["again"] != keep-2*time.Hour-30*time.Minute {
			t.Errorf("the ages are %v", ids)
		}
		time.Sleep(keep)
		known("in the end")
		if err := c.close(); err != nil {
			t.Fatal(err)
		}
	})
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
