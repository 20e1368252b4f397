package access

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spool-run/spool"
)

// maxLinks is how many symbolic links a path may have, as in the kernel.
const maxLinks = 40

// CheckPath returns [spool.ErrDenied] if a file is not below a directory of the
// scopes. It follows symbolic links, also those to files that do not exist.
//
// It is no isolation: what it found may change before the file is used, and a
// subject that may start processes can read every file of the account.
func (s Scopes) CheckPath(path string) error {
	roots := s.Roots()
	if len(roots) == 0 {
		return fmt.Errorf("%w: the token lacks the scope %sDIRECTORY", spool.ErrDenied, filesPrefix)
	}
	for _, root := range roots {
		if root == "/" {
			return nil
		}
	}
	real, err := resolve(path)
	if err != nil {
		return fmt.Errorf("%w: %w", spool.ErrDenied, err)
	}
	for _, root := range roots {
		if root, err := resolve(root); err == nil && (real == root || strings.HasPrefix(real, strings.TrimSuffix(root, "/")+"/")) {
			return nil
		}
	}
	return fmt.Errorf("%w: %s is outside the directories of the token", spool.ErrDenied, path)
}

// RestrictsFiles reports whether the scopes allow some files and not others.
func (s Scopes) RestrictsFiles() bool { return s.CheckPath("/") != nil }

// resolve returns the file that the kernel would find under a path, with all
// symbolic links followed. The end of the path need not exist.
func resolve(path string) (string, error) {
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("%q is no absolute path", path)
	}
	rest, at, links := strings.Split(path, "/"), "/", 0
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at) // at has no links
			continue
		}
		next := filepath.Join(at, name)
		info, err := os.Lstat(next)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
			at = next
			continue
		case err != nil:
			return "", err
		case info.Mode()&fs.ModeSymlink == 0:
			at = next
			continue
		}
		if links++; links > maxLinks {
			return "", &fs.PathError{Op: "resolve", Path: path, Err: syscall.ELOOP}
		}
		target, err := os.Readlink(next)
		if err != nil {
			return "", err
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return at, nil
}
