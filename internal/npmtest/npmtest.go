// Package npmtest installs programs from pinned npm packages for tests and
// benchmarks.
package npmtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spool-run/spool/internal/testcache"
)

// Program is an executable that npm packages provide.
type Program struct {
	Name     string   // name of the cache directory
	Packages []string // each with its exact version
	File     string   // the executable, below the directory of the install
	// Finish completes an install in a directory that is renamed afterwards.
	// It may be nil.
	Finish func(dir string) error
}

// Cached installs the program into the user's cache directory, unless it is
// there, and returns its path.
func (p Program) Cached() (string, error) {
	dir, err := testcache.Dir(p.Name)
	if err != nil {
		return "", err
	}
	return p.install(dir, testcache.Downloads)
}

// Install installs the program in dir, unless it is there, and returns its
// path. Processes that install into the same directory wait for each other. An
// incomplete install is replaced.
func (p Program) Install(dir string) (string, error) { return p.install(dir, 1) }

func (p Program) install(dir string, tries int) (string, error) {
	path := filepath.Join(dir, p.File)
	return path, testcache.Install{Fill: p.fetch, Complete: p.complete, Tries: tries}.Into(dir)
}

// complete reports whether the executable exists.
func (p Program) complete(dir string) bool {
	fi, err := os.Stat(filepath.Join(dir, p.File))
	return err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0
}

// fetch installs into an empty directory.
func (p Program) fetch(ctx context.Context, dir string) error {
	what := strings.Join(p.Packages, " ")
	out, err := Fetch(ctx, dir, p.Packages...)
	if err != nil {
		return err
	}
	if p.Finish != nil {
		if err := p.Finish(dir); err != nil {
			return fmt.Errorf("finish the install of %s: %w", what, err)
		}
	}
	// Native parts are optional dependencies: npm succeeds without them.
	if !p.complete(dir) {
		return fmt.Errorf("npm installed %s without %s\n%s", what, p.File, out)
	}
	return nil
}

// Fetch installs packages, each with its exact version, below a directory with
// npm, and returns npm's output.
func Fetch(ctx context.Context, dir string, packages ...string) (string, error) {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return "", fmt.Errorf("npm is needed to fetch %s: %w", strings.Join(packages, " "), err)
	}
	return testcache.Run(ctx, append([]string{npm, "install", "--prefix", dir,
		"--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"}, packages...)...)
}
