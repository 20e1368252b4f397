//go:build linux

package doctor

import (
	"os"
	"testing"

	"github.com/spool-run/spool/internal/flock"
)

// hold writes a file and holds its lock until the test ends, as a keeper does.
func hold(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if ok, err := flock.TryLock(f); err != nil || !ok {
		t.Fatal(ok, err)
	}
}
