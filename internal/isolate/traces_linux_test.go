//go:build amd64 || arm64

package isolate

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/launch"
	"github.com/spool-run/spool/internal/skiptest"
)

// TestPlaceholdersEndWithTheRun checks that the directory which protects a missing
// path is gone after the run: it looks like a repository, for example.
func TestPlaceholdersEndWithTheRun(t *testing.T) {
	m := New(newLauncher(t, launch.TreeAuto))
	t.Cleanup(m.Close)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	lease, err := m.Prepare(&spool.Isolation{Profile: string(WorkspaceWrite), Protected: []string{".git"}}, dir, 100, "")
	if err != nil {
		skiptest.Missing(t, "%v", err)
	}
	git := filepath.Join(dir, ".git")
	if _, err := os.Lstat(git); err != nil {
		t.Errorf("during the run: %v", err)
	}
	lease.Release()
	if _, err := os.Lstat(git); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after the run: %v", err)
	}
}

// TestPlaceholdersAreShared checks that a directory which protects a missing path is
// there for every sandbox that needs it, while others end, and gone after the last one.
func TestPlaceholdersAreShared(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a", ".git")
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 200 {
				h, err := hold(path)
				if err != nil || h == nil {
					t.Errorf("hold: %v, %v", h, err)
					return
				}
				if fi, err := os.Lstat(path); err != nil || !fi.IsDir() {
					t.Errorf("while it is held: %v, %v", fi, err)
				}
				h.release()
			}
		})
	}
	group.Wait()
	first, err := hold(path)
	if err != nil {
		t.Fatal(err)
	}
	second, err := hold(path)
	if err != nil {
		t.Fatal(err)
	}
	first.release()
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("while one of two holds it: %v", err)
	}
	second.release()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("after the last one: %v, %v", left, err)
	}
}

// TestProtectBehindBrokenLink checks that a path which cannot be made is an error, not
// an endless loop.
func TestProtectBehindBrokenLink(t *testing.T) {
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("nowhere", link); err != nil {
		t.Fatal(err)
	}
	if h, err := hold(filepath.Join(link, ".git")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("hold: %v, %v", h, err)
	}
}
