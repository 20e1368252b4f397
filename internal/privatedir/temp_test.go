//go:build unix

package privatedir_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spool-run/spool/internal/privatedir"
)

// TestSweepTemp checks that only old private directories with a prefix are removed,
// and that a link is not followed.
func TestSweepTemp(t *testing.T) {
	dir := t.TempDir()
	old := time.Now().Add(-2 * time.Hour)
	kept := filepath.Join(dir, "elsewhere")
	if err := os.Mkdir(kept, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{"spool-py-old": 0o700, "spool-py-new": 0o700, "spool-py-shared": 0o755, "other-old": 0o700} {
		path := filepath.Join(dir, name)
		if err := os.Mkdir(path, mode); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path, "1.png"), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if name != "spool-py-new" {
			if err := os.Chtimes(path, old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Symlink(kept, filepath.Join(dir, "spool-py-link")); err != nil {
		t.Fatal(err)
	}
	privatedir.SweepTemp(dir, []string{"spool-py-"}, time.Hour)
	for name, want := range map[string]bool{
		"spool-py-old": false, "spool-py-new": true, "spool-py-shared": true, "other-old": true, "spool-py-link": true, "elsewhere": true,
	} {
		if _, err := os.Lstat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
