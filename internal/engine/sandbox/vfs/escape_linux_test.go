package vfs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

const secret = "of the host, and not for guests"

// offered returns a directory to offer, beside which there is a secret.
func offered(t *testing.T) (dir, outside string) {
	t.Helper()
	top := t.TempDir()
	outside = filepath.Join(top, "outside")
	dir = filepath.Join(top, "offered")
	for _, d := range []string{outside, dir} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte(secret), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir, outside
}

func mounted(t *testing.T, l Layer) *Tree {
	t.Helper()
	tree := NewTree(NewMemory(nil))
	if err := tree.Mount("/mnt", l); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tree.Close(); err != nil {
			t.Error(err)
		}
	})
	return tree
}

func openDir(t *testing.T, path string, q *Quota) *Dir {
	t.Helper()
	d, err := OpenDir(path, q)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestNothingOutsideAMountCanBeReached tries links and dots, made by the guest
// and found by it, to read, write, make, move and remove what is outside.
func TestNothingOutsideAMountCanBeReached(t *testing.T) {
	for name, layer := range map[string]func(d *Dir) Layer{
		"rw":      func(d *Dir) Layer { return d },
		"ro":      func(d *Dir) Layer { return ReadOnly(d) },
		"overlay": func(d *Dir) Layer { return NewOverlay(d, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			dir, outside := offered(t)
			for link, target := range map[string]string{
				"absolute": outside, "relative": "../outside", "file": filepath.Join(outside, "secret"),
				"root": "/", "proc": "/proc/self/root" + outside, "chain": "absolute",
			} {
				if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
					t.Fatal(err)
				}
			}
			tree := mounted(t, layer(openDir(t, dir, nil)))
			_ = tree.Symlink(outside, "/mnt/own")
			for _, path := range []string{
				"/mnt/absolute/secret", "/mnt/relative/secret", "/mnt/file", "/mnt/root" + outside + "/secret",
				"/mnt/proc/secret", "/mnt/chain/secret", "/mnt/own/secret", "/mnt/../outside/secret",
				"/mnt/../../outside/secret", "/../../.." + outside + "/secret", outside + "/secret",
				"/mnt/absolute/../outside/secret", "/proc/self/root" + outside + "/secret", "/mnt/./relative/./secret",
			} {
				if content, err := tree.ReadFile(path, 1<<20); err == nil {
					t.Errorf("read %s: %q", path, content)
				}
				if err := tree.WriteFile(path, []byte("overwritten"), 0o644); err == nil && name == "ro" {
					t.Errorf("write %s worked through a read-only mount", path)
				}
				_ = tree.Unlink(path)
				_ = tree.Rename(path, "/mnt/stolen")
				_ = tree.Rename("/mnt/stolen", path)
				_ = tree.Chmod(path, 0)
				_ = tree.Mkdir(path+".d", 0o755)
			}
			content, err := os.ReadFile(filepath.Join(outside, "secret"))
			if err != nil || string(content) != secret {
				t.Errorf("outside, the secret is %q, %v", content, err)
			}
			list, err := os.ReadDir(outside)
			if err != nil || len(list) != 1 {
				t.Errorf("outside there is now %v, %v", list, err)
			}
		})
	}
}

// TestRacesCannotLeaveAMount has the host swap a directory for a link to the
// outside while a guest reads and writes through it.
func TestRacesCannotLeaveAMount(t *testing.T) {
	dir, outside := offered(t)
	real, link, at := filepath.Join(dir, "real"), filepath.Join(dir, "link"), filepath.Join(dir, "at")
	if err := os.Mkdir(real, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(real, "secret"), []byte("harmless"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, link); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(real, at); err != nil {
		t.Fatal(err)
	}
	tree := mounted(t, openDir(t, dir, nil))
	stop := make(chan struct{})
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, at, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
			}
		}
	})
	for range 20000 {
		content, err := tree.ReadFile("/mnt/at/secret", 1<<20)
		if err == nil && strings.Contains(string(content), secret) {
			t.Error("a guest read the secret")
			break
		}
		if f, err := tree.Open("/mnt/at/made", Write|Create, 0o644); err == nil {
			if _, err := f.WriteAt([]byte("x"), 0); err != nil {
				t.Error(err)
			}
			_ = f.Close()
		}
		_ = tree.Unlink("/mnt/at/made")
	}
	close(stop)
	swapping.Wait()
	list, err := os.ReadDir(outside)
	if err != nil || len(list) != 1 {
		t.Errorf("outside there is now %v, %v", list, err)
	}
}

func TestDevicesPipesAndSocketsOfTheHostAreNotOpened(t *testing.T) {
	dir, _ := offered(t)
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	tree := mounted(t, openDir(t, dir, nil))
	for _, flags := range []Flags{Read, Write, Read | Write} {
		if _, err := tree.Open("/mnt/pipe", flags, 0); !errors.Is(err, EACCES) {
			t.Errorf("open a pipe: %v", err)
		}
	}
}

func TestAMountSharesTheQuota(t *testing.T) {
	dir, _ := offered(t)
	q := NewQuota(100, 3)
	tree := mounted(t, openDir(t, dir, q))
	if err := tree.WriteFile("/mnt/a", make([]byte, 60), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := tree.Open("/mnt/b", Write|Create, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if n, err := f.WriteAt(make([]byte, 60), 0); n != 40 || err != nil {
		t.Errorf("of 60 bytes %d fit, %v; want 40", n, err)
	}
	if n, err := f.WriteAt([]byte("x"), 40); n != 0 || !errors.Is(err, ENOSPC) {
		t.Errorf("write beyond the quota: %d, %v", n, err)
	}
	if n, err := f.WriteAt(make([]byte, 40), 0); n != 40 || err != nil {
		t.Errorf("write what is there already: %d, %v", n, err)
	}
	if err := tree.Unlink("/mnt/a"); err != nil {
		t.Fatal(err)
	}
	if bytes, files := q.Used(); bytes != 40 || files != 1 {
		t.Errorf("after a removal %d bytes of %d files count; want 40 of 1", bytes, files)
	}
	for i, want := range []error{nil, nil, ENOSPC} {
		if err := tree.Mkdir("/mnt/d"+string(rune('0'+i)), 0o755); !errors.Is(err, want) {
			t.Errorf("directory %d: %v, want %v", i, err, want)
		}
	}
	if err := f.Truncate(1 << 40); !errors.Is(err, ENOSPC) {
		t.Errorf("grow beyond the quota: %v", err)
	}
}

func TestTimesAndPermissionsReachTheHost(t *testing.T) {
	dir, _ := offered(t)
	tree := mounted(t, openDir(t, dir, nil))
	if err := tree.WriteFile("/mnt/f", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(tree.Chmod("/mnt/f", 0o4751), tree.Chtimes("/mnt/f", -1, 1e18)); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "f"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != 0o751 || info.ModTime().UnixNano() != 1e18 {
		t.Errorf("the file has %v, %v", info.Mode(), info.ModTime())
	}
}
