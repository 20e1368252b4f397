package kernel

import (
	"fmt"
	"os"
	"testing"

	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/internal/leaktest"
)

// AroundTests runs the tests; the tests outside this package put what they
// share around them.
var AroundTests = func(m interface{ Run() int }) int { return m.Run() }

// TestMain is also the main function of the processes of sandboxes.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == isolate.Role {
		os.Exit(isolate.Work(os.Args[2:]))
	}
	leaktest.Main(withSharedHost{m})
}

// closeShared closes what the tests of this package share.
var closeShared = func() error { return nil }

type withSharedHost struct{ m *testing.M }

func (a withSharedHost) Run() int {
	code := AroundTests(a.m)
	if err := closeShared(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "close:", err)
		code = 1
	}
	return code
}
