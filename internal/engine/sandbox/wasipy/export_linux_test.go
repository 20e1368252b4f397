package wasipy

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/spool-run/spool/internal/servertest"
)

// BuiltWorker is how tests start their workers: the real binary in its role,
// as a keeper does.
func BuiltWorker(args ...string) *exec.Cmd {
	bin, err := servertest.Build()
	if err != nil {
		return &exec.Cmd{Err: err}
	}
	return exec.Command(bin, append([]string{"sandbox-role"}, args...)...)
}

// CompiledOnly returns a cache directory that has the compiled interpreter of another
// one, which takes long to make, and nothing else.
func CompiledOnly(t *testing.T, prepared string) string {
	t.Helper()
	dir := t.TempDir()
	err := os.CopyFS(filepath.Join(dir, filepath.Base(prepared), compiledDir), os.DirFS(filepath.Join(prepared, compiledDir)))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
