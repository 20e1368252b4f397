package codextest

import (
	"fmt"
	"path"
	"runtime"
	"testing"

	"github.com/spool-run/spool/internal/npmtest"
)

// Version is the pinned version of codex.
const Version = "0.166.0"

// Binary returns the path of the native codex binary. It installs codex into
// the user's cache directory the first time, and fails the test on error.
func Binary(tb testing.TB) string {
	tb.Helper()
	path, err := Install()
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

// Install installs the pinned codex into the user's cache directory, unless it
// is there, and returns the path of its native binary.
func Install() (string, error) {
	p, err := program()
	if err != nil {
		return "", err
	}
	return p.Cached()
}

// program describes the native binary for npm.
func program() (npmtest.Program, error) {
	var pkg, triple string
	switch runtime.GOOS + "/" + runtime.GOARCH {
	case "linux/amd64":
		pkg, triple = "codex-linux-x64", "x86_64-unknown-linux-musl"
	case "linux/arm64":
		pkg, triple = "codex-linux-arm64", "aarch64-unknown-linux-musl"
	default:
		return npmtest.Program{}, fmt.Errorf("install codex: no binary for %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	return npmtest.Program{
		Name:     "codex-" + Version,
		Packages: []string{"@openai/codex@" + Version},
		File:     path.Join("node_modules", "@openai", pkg, "vendor", triple, "bin", "codex"),
	}, nil
}
