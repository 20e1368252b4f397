// Package pytest makes a Python environment with pinned packages for tests and
// benchmarks.
package pytest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool/internal/testcache"
)

// Packages are the packages of the environment, each with its exact version.
// They need Python 3.11 or later.
var Packages = []string{
	"numpy==2.4.6", "pandas==3.1.1", "matplotlib==3.11.2", "pillow==13.0.0", "ipykernel==7.4.0", "jupyter_client==8.10.0",
}

// Python returns the interpreter of the environment. It makes the environment
// the first time, and fails the test on error.
func Python(tb testing.TB) string {
	tb.Helper()
	path, err := Cached()
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

// Cached returns the interpreter of the environment in the user's cache
// directory. It makes the environment the first time.
func Cached() (string, error) {
	return Environment(Packages, "numpy, pandas, matplotlib.pyplot, PIL, ipykernel, jupyter_client")
}

// Environment returns the interpreter of an environment with other packages, each
// with its exact version, from which these modules can be imported. It makes the
// environment the first time.
func Environment(packages []string, modules string) (string, error) {
	sum := sha256.Sum256([]byte(strings.Join(packages, " ")))
	dir, err := testcache.Dir("python-" + hex.EncodeToString(sum[:6]))
	if err != nil {
		return "", err
	}
	fill := func(ctx context.Context, dir string) error { return install(ctx, dir, packages, modules) }
	return interpreter(dir), testcache.Install{Fill: fill, InPlace: true, Tries: testcache.Downloads}.Into(dir)
}

func interpreter(dir string) string { return filepath.Join(dir, "bin", "python") }

func install(ctx context.Context, dir string, packages []string, modules string) error {
	python := interpreter(dir)
	for _, argv := range [][]string{
		{"python3", "-m", "venv", dir},
		append([]string{python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"}, packages...),
		{python, "-m", "compileall", "-q", filepath.Join(dir, "lib")},
		{python, "-c", "import " + modules},
	} {
		if _, err := testcache.Run(ctx, argv...); err != nil && argv[2] != "compileall" { // some packages contain files that do not compile
			return err
		}
	}
	return nil
}
