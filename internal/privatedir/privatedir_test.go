//go:build unix

package privatedir_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool/internal/privatedir"
	"github.com/spool-run/spool/internal/skiptest"
)

// TestCheckEntries checks which directories are private.
func TestCheckEntries(t *testing.T) {
	other := func(t *testing.T, path string) {
		if os.Geteuid() != 0 {
			skiptest.Missing(t, "only root can give a file to another user")
		}
		if err := os.Lchown(path, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	mode := func(perm fs.FileMode) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			if err := os.Chmod(path, perm); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		name    string
		file    string // that change changes
		change  func(t *testing.T, path string)
		private bool
	}{
		{"private", ".", mode(0o700), true},
		{"readable", "file", mode(0o644), true},
		{"own link", "link", func(*testing.T, string) {}, true},
		{"group can write the directory", ".", mode(0o770), false},
		{"others can write the directory", ".", mode(0o777), false},
		{"others can write a file", "file", mode(0o602), false},
		{"directory of another user", ".", other, false},
		{"file of another user", "file", other, false},
		{"link of another user", "link", other, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "dir")
			if err := privatedir.Make(dir); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("file", filepath.Join(dir, "link")); err != nil {
				t.Fatal(err)
			}
			c.change(t, filepath.Join(dir, c.file))
			err := privatedir.CheckEntries(dir)
			if c.private && err != nil || !c.private && !errors.Is(err, privatedir.ErrNotPrivate) {
				t.Errorf("private is %v, got: %v", c.private, err)
			}
		})
	}
	if err := privatedir.CheckEntries(filepath.Join(t.TempDir(), "none")); err != nil {
		t.Error(err)
	}
}

// TestCheckLink checks that a link to a private directory is accepted unless
// another user made it.
func TestCheckLink(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	if err := errors.Join(os.Mkdir(target, 0o700), os.Symlink(target, link)); err != nil {
		t.Fatal(err)
	}
	if err := privatedir.Make(link); err != nil {
		t.Errorf("a link of this user: %v", err)
	}
	if os.Geteuid() != 0 {
		skiptest.Missing(t, "only root can give a file to another user")
	}
	if err := os.Lchown(link, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if err := privatedir.Make(link); !errors.Is(err, privatedir.ErrNotPrivate) {
		t.Errorf("a link of another user: %v", err)
	}
}

// A directory that all users share, such as /tmp, must stay so: the error has no
// command that changes its mode.
func TestSharedDirectoryIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	for mode, advice := range map[os.FileMode]string{0o777: "chmod go-w", 0o777 | os.ModeSticky: "choose a directory of your own"} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		if err := privatedir.Check(dir); !errors.Is(err, privatedir.ErrNotPrivate) || !strings.Contains(err.Error(), advice) {
			t.Errorf("mode %v: %v, want the advice %q", mode, err, advice)
		}
	}
}
