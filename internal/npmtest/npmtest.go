// Package npmtest installs pinned npm packages for tests and benchmarks into
// the user's cache directory: once, quietly, and safe for any number of
// processes that want the same at the same time.
package npmtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// installTimeout bounds one npm install, which takes seconds.
const installTimeout = 5 * time.Minute

// Program is an executable that npm packages provide.
type Program struct {
	Name     string   // for errors, and of the directory in the cache
	Packages []string // each with its exact version
	File     string   // the executable, below the directory of the install
	// Finish completes an install in a directory that is renamed afterwards.
	// It may be nil.
	Finish func(dir string) error
}

// CacheDir returns where [Program.Cached] installs a program of that name.
func CacheDir(name string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find cache directory for %s: %w", name, err)
	}
	return filepath.Join(cache, "spool-test", name), nil
}

// Cached makes sure that the program is in the user's cache directory and
// returns its path.
func (p Program) Cached() (string, error) {
	dir, err := CacheDir(p.Name)
	if err != nil {
		return "", err
	}
	return p.Install(dir)
}

// Install makes sure that the program is installed in dir and returns its
// path. Processes that install into the same directory at once wait for each
// other. A directory without a complete install is replaced.
func (p Program) Install(dir string) (string, error) {
	path := filepath.Join(dir, p.File)
	if isExecutable(path) {
		return path, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", fmt.Errorf("install %s: %w", p.Name, err)
	}
	unlock, err := lockFile(dir + ".lock")
	if err != nil {
		return "", fmt.Errorf("install %s: %w", p.Name, err)
	}
	defer unlock()
	if isExecutable(path) { // another process was faster
		return path, nil
	}
	if err := p.fetch(dir); err != nil {
		return "", fmt.Errorf("install %s: %w", p.Name, err)
	}
	return path, nil
}

// fetch installs beside dir and renames, so that dir is never half an
// install.
func (p Program) fetch(dir string) error {
	what := strings.Join(p.Packages, " ")
	npm, err := exec.LookPath("npm")
	if err != nil {
		return fmt.Errorf("npm is needed to fetch %s: %w", what, err)
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), filepath.Base(dir)+".tmp-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }() // it is gone if all went well

	ctx, cancel := context.WithTimeout(context.Background(), installTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, npm, append([]string{"install", "--prefix", tmp,
		"--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"}, p.Packages...)...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("npm install %s: %w\n%s", what, err, out)
	}
	if p.Finish != nil {
		if err := p.Finish(tmp); err != nil {
			return fmt.Errorf("finish the install of %s: %w", what, err)
		}
	}
	// Native parts are optional dependencies: npm succeeds without them.
	if !isExecutable(filepath.Join(tmp, p.File)) {
		return fmt.Errorf("npm installed %s without %s\n%s", what, p.File, out)
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.Rename(tmp, dir)
}

func isExecutable(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0
}

// lockFile takes an exclusive lock on a file, creating it if needed. The lock
// also ends with the process. The file stays: removing it would let two
// processes lock different files of one name.
func lockFile(path string) (unlock func(), err error) {
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
