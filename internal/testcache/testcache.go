// Package testcache installs the dependencies of tests and benchmarks in the
// user's cache directory: each once, completely or not at all, and safe for
// concurrent processes.
package testcache

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spool-run/spool/internal/flock"
)

// Timeout limits one install.
const Timeout = 8 * time.Minute

// Dir returns the cache directory of a name.
func Dir(name string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find cache directory for %s: %w", name, err)
	}
	return filepath.Join(cache, "spool-test", name), nil
}

// Install describes how to fill a directory.
type Install struct {
	// Fill fills an empty directory.
	Fill func(ctx context.Context, dir string) error
	// Complete reports whether a directory is complete. Nil means that an
	// existing directory is complete, because a filled directory is renamed
	// only when it is done.
	Complete func(dir string) bool
	// InPlace fills the directory under its final name, for content that
	// contains its own path and cannot be renamed. A marker file, written last,
	// shows that it is complete; Complete is not used.
	InPlace bool
	// Tries is how often to fill the directory before giving up; zero means
	// once. It is for what comes from the network.
	Tries int
}

// Downloads is how often to try what comes from the network.
const Downloads = 3

// pause is how long to wait before the next try.
var pause = 5 * time.Second

// marker is the file that marks a directory filled in place as complete.
const marker = "complete"

// Into fills dir unless it is complete. Concurrent processes wait for each
// other; an incomplete directory is replaced.
func (i Install) Into(dir string) error {
	if i.complete(dir) {
		return nil
	}
	if err := i.locked(dir); err != nil {
		return fmt.Errorf("install %s: %w", filepath.Base(dir), err)
	}
	return nil
}

func (i Install) complete(dir string) bool {
	switch {
	case i.InPlace:
		dir = filepath.Join(dir, marker)
	case i.Complete != nil:
		return i.Complete(dir)
	}
	_, err := os.Stat(dir)
	return err == nil
}

// locked installs under the lock, unless another process has installed
// meanwhile.
func (i Install) locked(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	lock, err := flock.Open(context.Background(), dir+".lock")
	if err != nil {
		return err
	}
	defer lock.Close()
	if i.complete(dir) { // another process was faster
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	for n := 1; ; n++ {
		if err = i.install(ctx, dir); err == nil || n >= i.Tries {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// install fills the directory, once.
func (i Install) install(ctx context.Context, dir string) error {
	if !i.InPlace {
		return i.beside(ctx, dir)
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if err := i.Fill(ctx, dir); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, marker), nil, 0o644)
}

// beside fills a temporary directory and renames it.
func (i Install) beside(ctx context.Context, dir string) error {
	tmp, err := os.MkdirTemp(filepath.Dir(dir), filepath.Base(dir)+".tmp-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }() // after success it no longer exists
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	if err := i.Fill(ctx, tmp); err != nil {
		return err
	}
	if !i.complete(tmp) {
		return errors.New("the install is not complete")
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.Rename(tmp, dir)
}

// Run runs a command of an install and returns its output.
func Run(ctx context.Context, argv ...string) (string, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, out)
	}
	return string(out), nil
}
