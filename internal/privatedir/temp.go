//go:build unix

package privatedir

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// SweepTemp removes the directories for temporary files in dir that begin with one
// of the prefixes, belong to this user and have not changed for age: those of
// commands that were killed, and those whose files a person has looked at.
func SweepTemp(dir string, prefixes []string, age time.Duration) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // nothing is lost: the next sweep tries again
	}
	for _, e := range entries {
		if !e.IsDir() || !hasPrefix(e.Name(), prefixes) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		fi, err := os.Lstat(path)
		if err != nil || !fi.IsDir() || fi.Mode().Perm()&fs.FileMode(0o077) != 0 || time.Since(fi.ModTime()) < age || checkOwner(path, fi) != nil {
			continue
		}
		_ = os.RemoveAll(path)
	}
}

func hasPrefix(name string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}
