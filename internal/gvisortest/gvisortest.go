// Package gvisortest builds gVisor's runsc for tests.
package gvisortest

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/spool-run/spool/internal/skiptest"
	"github.com/spool-run/spool/internal/testcache"
)

// Version is the version of gVisor, of the branch that can be built with Go alone.
const Version = "v0.0.0-20260527191743-a81fd9dd382e"

// Cached builds runsc into the user's cache directory, unless it is there, and
// returns the directory that has it.
func Cached() (string, error) {
	dir, err := testcache.Dir("runsc-" + Version)
	if err != nil {
		return "", err
	}
	return dir, testcache.Install{Fill: build, Complete: complete, Tries: testcache.Downloads}.Into(dir)
}

// build builds runsc without cgo: it executes itself where there are no libraries.
func build(ctx context.Context, dir string) error {
	_, err := testcache.Run(ctx, "env", "GOBIN="+dir, "CGO_ENABLED=0", "GOFLAGS=-trimpath", "GOWORK=off", "go", "install", "-ldflags=-s -w", "gvisor.dev/gvisor/runsc@"+Version)
	return err
}

func complete(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "runsc"))
	return err == nil
}

// Use has a test, and the processes that it starts, find runsc in PATH. Without one it
// skips the test, and fails it in CI.
func Use(t testing.TB) {
	t.Helper()
	dir, err := Cached()
	if err != nil {
		skiptest.Missing(t, "%v", err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}
