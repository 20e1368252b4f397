package gvisortest_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/spool-run/spool/internal/gvisortest"
	"github.com/spool-run/spool/internal/skiptest"
)

// TestCached builds runsc, and checks that it can be executed. The script deps runs it
// before the other tests.
func TestCached(t *testing.T) {
	dir, err := gvisortest.Cached()
	if err != nil {
		skiptest.Missing(t, "%v", err)
	}
	if out, err := exec.Command(filepath.Join(dir, "runsc"), "--version").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
