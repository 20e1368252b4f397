//go:build amd64 || arm64

package isolate

import (
	"errors"
	"os"
	"path/filepath"
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
