// Package pytest makes a Python environment with pinned packages for tests and
// benchmarks, in the user's cache directory: once, and safe for any number of
// processes that want it at the same time.
package pytest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Packages are what the environment has, each with its exact version. They
// need Python 3.11 or later.
var Packages = []string{
	"numpy==2.4.6", "pandas==3.1.1", "matplotlib==3.11.2", "pillow==13.0.0", "ipykernel==7.4.0", "jupyter_client==8.10.0",
}

// installTimeout bounds one install, which takes about a minute.
const installTimeout = 8 * time.Minute

// Python returns the interpreter of the environment, which it makes the first
// time. It fails the test if it cannot.
func Python(tb testing.TB) string {
	tb.Helper()
	path, err := Cached()
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

// Cached returns the interpreter of the environment in the user's cache
// directory, which it makes the first time.
func Cached() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find cache directory for Python packages: %w", err)
	}
	sum := sha256.Sum256([]byte(strings.Join(Packages, " ")))
	return Install(filepath.Join(cache, "spool-test", "python-"+hex.EncodeToString(sum[:6])))
}

// Install makes sure that the environment is in dir and returns its
// interpreter. Processes that install into the same directory at once wait for
// each other. An incomplete environment is made anew.
func Install(dir string) (string, error) {
	python := filepath.Join(dir, "bin", "python")
	if complete(dir) {
		return python, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", fmt.Errorf("install Python packages: %w", err)
	}
	unlock, err := lock(dir + ".lock")
	if err != nil {
		return "", fmt.Errorf("install Python packages: %w", err)
	}
	defer unlock()
	if complete(dir) { // another process was faster
		return python, nil
	}
	if err := install(dir, python); err != nil {
		return "", fmt.Errorf("install Python packages: %w", err)
	}
	return python, nil
}

// marker is written last. An environment cannot be renamed, so this is what
// tells a whole one from half of one.
func marker(dir string) string { return filepath.Join(dir, "complete") }

func complete(dir string) bool {
	_, err := os.Stat(marker(dir))
	return err == nil
}

func install(dir, python string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), installTimeout)
	defer cancel()
	for _, argv := range [][]string{
		{"python3", "-m", "venv", dir},
		append([]string{python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"}, Packages...),
		{python, "-m", "compileall", "-q", filepath.Join(dir, "lib")},
		{python, "-c", "import numpy, pandas, matplotlib.pyplot, PIL, ipykernel, jupyter_client"},
	} {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.WaitDelay = time.Second
		out, err := cmd.CombinedOutput()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		if err != nil && argv[2] != "compileall" { // some packages ship files that are not Python
			return fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, out)
		}
	}
	return os.WriteFile(marker(dir), nil, 0o644)
}

// lock takes an exclusive lock on a file, creating it if needed. It also ends
// with the process. The file stays: removing it would let two processes lock
// different files of one name.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}
