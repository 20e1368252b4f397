package pyodide

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The preparations of distributions that are gone are removed, and a torn stamp
// counts as none.
func TestStamps(t *testing.T) {
	cache := t.TempDir()
	for i := range maxSnapshots + 3 {
		f, err := os.CreateTemp(cache, "*.tmp")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("memory"); err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("%02d", i)
		if _, err := writeStamp(cache, name, f, kindPyodide); err != nil {
			t.Fatal(err)
		}
		f.Close()
		when := time.Unix(int64(1000+i), 0)
		if err := os.Chtimes(snapshotPath(cache, name), when, when); err != nil {
			t.Fatal(err)
		}
	}
	left, err := filepath.Glob(filepath.Join(cache, "*"))
	if err != nil || len(left) != 2*maxSnapshots {
		t.Errorf("left are %v, %v", left, err)
	}
	last := fmt.Sprintf("%02d", maxSnapshots+2)
	if s, err := readStamp(cache, last); err != nil || s == nil || !s.Snapshot || s.Kind != kindPyodide {
		t.Errorf("the last is %+v, %v", s, err)
	}
	if err := os.Truncate(snapshotPath(cache, last), 3); err != nil {
		t.Fatal(err)
	}
	if s, err := readStamp(cache, last); err != nil || s != nil {
		t.Errorf("of a torn snapshot: %+v, %v", s, err)
	}
	if err := os.WriteFile(stampPath(cache, "torn"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"torn", "none"} {
		if s, err := readStamp(cache, name); err != nil || s != nil {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
}
