//go:build amd64 || arm64

package isolate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// placeholder holds a directory that is a protected path, which may have been made for
// that because there was nothing. Every sandbox that relies on it has a shared lock on
// it, and the last one of the process that made it removes it: where it is removed, a
// mount on it goes, too.
type placeholder struct {
	path string
	lock *os.File
}

// placeholders are the directories that this process made, by the path that they
// protect, outermost first. They outlive the sandbox for which they were made while
// another one holds them.
var placeholders struct {
	sync.Mutex
	made map[string][]string
}

// maxHolds is how often another sandbox may remove a protected path while this one is
// about to lock it.
const maxHolds = 100

// hold makes a protected path exist, and stay while it is empty. It returns nil for a
// path that needs no lock: one that is no directory or belongs to another user.
func hold(path string) (*placeholder, error) {
	var err error
	for range maxHolds {
		var h *placeholder
		if h, err = tryHold(path); !errors.Is(err, fs.ErrNotExist) {
			return h, err
		}
	}
	return nil, err
}

// tryHold is [hold], but fails with [fs.ErrNotExist] if the path is removed meanwhile.
func tryHold(path string) (*placeholder, error) {
	if err := makePlaceholder(path); err != nil {
		return nil, fmt.Errorf("make the protected path %s: %w", path, err)
	}
	fi, err := os.Lstat(path)
	if err != nil || !fi.IsDir() {
		return nil, err
	}
	lock, err := os.Open(path)
	if errors.Is(err, fs.ErrPermission) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	h := &placeholder{path, lock}
	err = unix.Flock(int(lock.Fd()), unix.LOCK_SH)
	if err == nil && !h.current() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock the protected path %s: %w", path, err), lock.Close())
	}
	return h, nil
}

// makePlaceholder makes the directories that are missing on the way to a path, and
// remembers them.
func makePlaceholder(path string) error {
	var missing []string
	for dir := path; ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		missing = append(missing, dir)
	}
	for _, dir := range slices.Backward(missing) {
		placeholders.Lock()
		err := os.Mkdir(dir, 0o755)
		if err == nil {
			if placeholders.made == nil {
				placeholders.made = make(map[string][]string)
			}
			if list := placeholders.made[path]; !slices.Contains(list, dir) {
				placeholders.made[path] = append(list, dir)
			}
		}
		placeholders.Unlock()
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// current reports whether the path still leads to the locked directory.
func (h *placeholder) current() bool {
	now, err := os.Lstat(h.path)
	if err != nil {
		return false
	}
	locked, err := h.lock.Stat()
	return err == nil && os.SameFile(now, locked)
}

// made reports whether this process made the directory.
func (h *placeholder) made() bool {
	placeholders.Lock()
	defer placeholders.Unlock()
	return len(placeholders.made[h.path]) > 0
}

// release removes what this process made, unless another sandbox or someone else uses
// it.
func (h *placeholder) release() {
	if h.made() && unix.Flock(int(h.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil && h.current() {
		placeholders.Lock()
		for _, dir := range slices.Backward(placeholders.made[h.path]) {
			_ = os.Remove(dir)
		}
		delete(placeholders.made, h.path)
		placeholders.Unlock()
	}
	_ = h.lock.Close()
}
