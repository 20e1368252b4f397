package main

import (
	"os"
	"path/filepath"
)

// makeScratch makes the directory for the files of the subjects. It is below
// the home directory, like a user's state, and not among the temporary files:
// where thousands of files were just deleted, some file systems are slow to
// create new ones, and a run right after the tests would measure that.
func makeScratch() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	parent := filepath.Join(cache, "spool-bench")
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return "", err
	}
	spread(parent)
	return os.MkdirTemp(parent, "")
}
