package main

import (
	"os"
	"path/filepath"
)

// makeScratch makes the directory for whatever the subjects write. It is where
// the state of a user is, below the home directory, and not among the temporary
// files: where thousands of those were just deleted some file systems take their
// time to make another, and a run right after the tests would measure that.
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
