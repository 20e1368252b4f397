//go:build amd64 || arm64

package isolate

import (
	"os"
	"syscall"
	"testing"
)

// TestMain is also the main function of the processes of sandboxes.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == Role && os.Args[2] == tryVerb {
		syscall.Exit(TryCell(os.Args[3], func() error { return nil }))
	}
	if len(os.Args) == 6 && os.Args[1] == Role {
		syscall.Exit(map[string]func([]string) int{leadVerb: leadMain, lookVerb: lookMain}[os.Args[2]](os.Args[3:]))
	}
	if len(os.Args) > 1 && os.Args[1] == Role {
		syscall.Exit(Work(os.Args[2:])) // at once: with os.Exit the race detector waits for a second
	}
	os.Exit(m.Run())
}
