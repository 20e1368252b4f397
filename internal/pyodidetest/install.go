// Package pyodidetest provides a real Pyodide for tests: the npm package, and
// the wheels of numpy and pandas from its lock file.
package pyodidetest

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool/internal/npmtest"
	"github.com/spool-run/spool/internal/testcache"
)

// Version is the pinned version of Pyodide.
const Version = "0.29.0"

// The wheels come from a PyPI package that contains them, because the wheels of
// the lock file are otherwise published only on Pyodide's server.
const (
	carrierWheel  = "gbdraw-0.14.2-py3-none-any.whl"
	carrierSum    = "287322cc81dcf554f7a847832f543ecc0ce21ca082f54a2f26148351c0d4011b"
	carrierPinned = "gbdraw==0.14.2"
	carrierDir    = "gbdraw/web/vendor/pyodide-wheels/"
)

// Dist returns the directory of Pyodide's npm package. It installs the package
// into the user's cache directory the first time, and fails the test on error.
func Dist(tb testing.TB) string {
	tb.Helper()
	return must(tb, CachedDist)
}

// CachedDist is [Dist] for programs other than tests.
func CachedDist() (string, error) {
	dir, err := once("pyodide-"+Version, func(ctx context.Context, dir string) error {
		_, err := npmtest.Fetch(ctx, dir, "pyodide@"+Version)
		return err
	})
	return filepath.Join(dir, "node_modules", "pyodide"), err
}

// Wheels returns a directory with the wheels of numpy, pandas and their
// dependencies from the lock file of [Dist].
func Wheels(tb testing.TB) string {
	tb.Helper()
	return must(tb, CachedWheels)
}

// CachedWheels is [Wheels] for programs other than tests.
func CachedWheels() (string, error) {
	return once("pyodide-wheels-"+Version, func(ctx context.Context, dir string) error {
		if _, err := testcache.Run(ctx, "python3", "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
			"--dest", dir, carrierPinned); err != nil {
			return err
		}
		wheel := filepath.Join(dir, carrierWheel)
		if err := unpack(wheel, dir); err != nil {
			return err
		}
		return os.Remove(wheel)
	})
}

func must(tb testing.TB, get func() (string, error)) string {
	tb.Helper()
	dir, err := get()
	if err != nil {
		tb.Fatal(err)
	}
	return dir
}

// unpack extracts the wheels from the wheel that contains them.
func unpack(wheel, dir string) error {
	b, err := os.ReadFile(wheel)
	if err != nil {
		return err
	}
	if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != carrierSum {
		return fmt.Errorf("%s does not match the pinned checksum", carrierWheel)
	}
	z, err := zip.OpenReader(wheel)
	if err != nil {
		return err
	}
	defer z.Close()
	for _, f := range z.File {
		name, ok := strings.CutPrefix(f.Name, carrierDir)
		if !ok || filepath.Base(name) != name || !strings.HasSuffix(name, ".whl") {
			continue
		}
		if err := extract(f, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

func extract(f *zip.File, path string) error {
	in, err := f.Open()
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// once fills a directory of the cache on its first use.
func once(name string, fill func(ctx context.Context, dir string) error) (string, error) {
	dir, err := testcache.Dir(name)
	if err != nil {
		return "", err
	}
	return dir, testcache.Install{Fill: fill, Tries: testcache.Downloads}.Into(dir)
}
