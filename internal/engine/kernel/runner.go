package kernel

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spool-run/spool/internal/privatedir"
)

//go:embed runner.py
var runnerSource []byte

// bootCode imports the runner from the directory in argv[1], so that the
// interpreter caches the compiled runner there.
const bootCode = `import sys
sys.path.insert(0, sys.argv[1])
w, sys.dont_write_bytecode = sys.dont_write_bytecode, False
import spool_kernel_runner as r
sys.dont_write_bytecode = w
del w, sys.path[0], sys.argv[1], sys.modules["spool_kernel_runner"]
r.main()`

// inlineCode is the runner as an argument, for a user without a cache directory.
func inlineCode() string { return string(runnerSource) + "\ndel sys.argv[1]\nmain()\n" }

// runnerDir writes the runner into the user's cache and returns the directory, or
// "" if that fails. Each call checks the file and its directory: the cache may
// have been cleaned, and the interpreter must not execute the code of another
// user.
func runnerDir() string {
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(runnerSource)
	dir := filepath.Join(cache, "spool", "kernel-"+hex.EncodeToString(sum[:8]))
	if err := writeRunner(dir); err != nil {
		return ""
	}
	return dir
}

// writeRunner writes the runner into dir, unless it is there.
func writeRunner(dir string) error {
	file := filepath.Join(dir, "spool_kernel_runner.py")
	if have, err := os.ReadFile(file); err == nil && bytes.Equal(have, runnerSource) {
		return privatedir.Check(dir)
	}
	if err := privatedir.Make(dir); err != nil {
		return fmt.Errorf("write runner: %w", err)
	}
	tmp, err := os.CreateTemp(dir, ".runner-")
	if err != nil {
		return fmt.Errorf("write runner: %w", err)
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // fails after the rename
	_, err = tmp.Write(runnerSource)
	if err = errors.Join(err, tmp.Close()); err != nil {
		return fmt.Errorf("write runner: %w", err)
	}
	if err := os.Rename(tmp.Name(), file); err != nil {
		return fmt.Errorf("write runner: %w", err)
	}
	return nil
}

// runnerArgs returns the arguments of an interpreter that executes the runner in a
// role: "kernel" or "zygote".
func runnerArgs(python, role, preload string) []string {
	if dir := runnerDir(); dir != "" {
		return []string{python, "-c", bootCode, dir, role, preload}
	}
	return inlineArgs(python, role, preload)
}

// inlineArgs returns such arguments for an interpreter that cannot read the file.
func inlineArgs(python, role, preload string) []string {
	return []string{python, "-c", inlineCode(), "", role, preload}
}
