package kernel

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

//go:embed runner.py
var runnerSource []byte

// bootCode imports the runner from the directory it is given, so that the
// interpreter keeps its compiled form there.
const bootCode = `import sys
sys.path.insert(0, sys.argv[1])
import spool_kernel_runner as r
del sys.path[0], sys.argv[1], sys.modules["spool_kernel_runner"]
r.main()`

// inlineCode is for machines without a place to keep a file.
func inlineCode() string { return string(runnerSource) + "\ndel sys.argv[1]\nmain()\n" }

// runnerDir makes sure that the runner is in the user's cache and returns the
// directory, or "" if there is none. The file is looked at every time:
// somebody may have cleaned up, and what is executed must be ours.
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

func writeRunner(dir string) error {
	file := filepath.Join(dir, "spool_kernel_runner.py")
	if have, err := os.ReadFile(file); err == nil && bytes.Equal(have, runnerSource) {
		return checkPrivate(dir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("place runner: %w", err)
	}
	if err := checkPrivate(dir); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, ".runner-")
	if err != nil {
		return fmt.Errorf("place runner: %w", err)
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // does nothing once it has its name
	_, err = tmp.Write(runnerSource)
	if err = errors.Join(err, tmp.Close()); err != nil {
		return fmt.Errorf("place runner: %w", err)
	}
	if err := os.Rename(tmp.Name(), file); err != nil {
		return fmt.Errorf("place runner: %w", err)
	}
	return nil
}

// checkPrivate refuses a directory that others may write to.
func checkPrivate(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("place runner: %w", err)
	}
	if !info.IsDir() || info.Mode().Perm()&0o022 != 0 || !ownedByUs(info) {
		return fmt.Errorf("place runner: %s: %w", dir, fs.ErrPermission)
	}
	return nil
}

// runnerArgs are the arguments of an interpreter that becomes what role says.
func runnerArgs(python, role, preload string) []string {
	if dir := runnerDir(); dir != "" {
		return []string{python, "-c", bootCode, dir, role, preload}
	}
	return []string{python, "-c", inlineCode(), "", role, preload}
}
