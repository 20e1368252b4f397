//go:build unix

package host

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
)

// remedy returns a hint for an error of the state directory.
func (h *Host) remedy(err error) string {
	dir := h.opts.Dir
	switch {
	case errors.Is(err, syscall.ENOSPC):
		var st syscall.Statfs_t
		if syscall.Statfs(dir, &st) == nil && st.Files > 0 && st.Ffree == 0 {
			return fmt.Sprintf("the file system of %s has no room for more files: delete some", dir)
		}
		return fmt.Sprintf("the disk of %s is full: free some space", dir)
	case errors.Is(err, syscall.EDQUOT):
		return fmt.Sprintf("the disk quota for %s is used up: free some space", dir)
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return "too many open files: raise the limit (ulimit -n), or end some runs"
	case errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission):
		return fmt.Sprintf("%s must be writable: change its permissions, or use another state directory", dir)
	case errors.Is(err, fs.ErrNotExist) && h.store == nil:
		return fmt.Sprintf("%s cannot be made: use another state directory", dir)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("the state directory %s was removed: restart to begin a new one", dir)
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Sprintf("%s must be a directory", dir)
	case errors.Is(err, syscall.EIO):
		return fmt.Sprintf("the disk of %s fails: look at the kernel's log", dir)
	}
	return ""
}
