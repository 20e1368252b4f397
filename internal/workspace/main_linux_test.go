package workspace

import (
	"os"
	"testing"

	"github.com/spool-run/spool/internal/isolate"
)

// TestMain is also the main function of the processes of sandboxes.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == isolate.Role {
		os.Exit(isolate.Work(os.Args[2:]))
	}
	os.Exit(m.Run())
}
