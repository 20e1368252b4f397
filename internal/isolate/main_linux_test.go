//go:build amd64 || arm64

package isolate

import (
	"os"
	"testing"
)

// TestMain is also the main function of the processes of sandboxes.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Role {
		os.Exit(Work(os.Args[2:]))
	}
	os.Exit(m.Run())
}
