package vfs

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
)

// The bytes of a removed file that is still open are still on the disk. They
// count until its last close, also if it is removed through another mount.
func TestUnlinkedOpenFilesCountUntilLastClose(t *testing.T) {
	for _, removal := range []string{"unlink", "rename over it", "unlink by another mount"} {
		t.Run(removal, func(t *testing.T) {
			dir, _ := offered(t)
			q := NewQuota(100, 100)
			tree := mounted(t, openDir(t, dir, q))
			if err := tree.Mount("/again", openDir(t, dir, q)); err != nil {
				t.Fatal(err)
			}
			_, before := q.Used()
			first, err := tree.Open("/mnt/new", Write|Create, 0o644)
			if err != nil {
				t.Fatal(err)
			}
			second, err := tree.Open("/mnt/new", Read|Write, 0)
			if err != nil {
				t.Fatal(err)
			}
			if n, err := first.WriteAt(make([]byte, 50), 0); n != 50 || err != nil {
				t.Fatal(n, err)
			}
			switch removal {
			case "unlink":
				err = tree.Unlink("/mnt/new")
			case "unlink by another mount":
				err = tree.Unlink("/again/new")
			default:
				if err = tree.WriteFile("/mnt/other", nil, 0o644); err == nil {
					before++
					err = tree.Rename("/mnt/other", "/mnt/new")
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			used := func(when string, wantBytes, wantFiles int64) {
				t.Helper()
				if bytes, files := q.Used(); bytes != wantBytes || files != before+wantFiles {
					t.Errorf("%s: %d bytes of %d files count; want %d of %d", when, bytes, files, wantBytes, before+wantFiles)
				}
			}
			used("removed", 50, 1)
			if n, err := second.WriteAt(make([]byte, 60), 50); n != 50 || err != nil {
				t.Errorf("write to a removed file: %d, %v; want 50, the rest of the quota", n, err)
			}
			if err := first.Close(); err != nil {
				t.Error(err)
			}
			used("closed once", 100, 1)
			if err := second.Truncate(70); err != nil {
				t.Error(err)
			}
			used("cut", 70, 1)
			if err := second.Close(); err != nil {
				t.Error(err)
			}
			used("closed", 0, 0)
			if err := second.Close(); !errors.Is(err, EBADF) {
				t.Errorf("closed twice: %v", err)
			}
			used("closed twice", 0, 0)
		})
	}
}

// A guest that opens, fills, removes and holds files must stay within its quota.
func TestQuotaBoundsUnlinkedFilesOnDisk(t *testing.T) {
	dir, _ := offered(t)
	q := NewQuota(1000, 100)
	tree := mounted(t, openDir(t, dir, q))
	total := 0
	for i := range 10 {
		name := fmt.Sprintf("/mnt/f%d", i)
		f, err := tree.Open(name, Write|Create, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		n, err := f.WriteAt(make([]byte, 400), 0)
		if err != nil && !errors.Is(err, ENOSPC) {
			t.Fatal(err)
		}
		total += n
		if err := tree.Unlink(name); err != nil {
			t.Fatal(err)
		}
	}
	if total != 1000 {
		t.Errorf("%d bytes are on the disk; the quota is 1000", total)
	}
}

// A write to a file that is open to append goes to the end, whatever its offset.
func TestQuotaCountsAppendedBytesAtTheEnd(t *testing.T) {
	dir, _ := offered(t)
	q := NewQuota(100, 100)
	tree := mounted(t, openDir(t, dir, q))
	f, err := tree.Open("/mnt/log", Write|Create|Append, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for range 4 {
		_, _ = f.WriteAt(make([]byte, 60), 0)
	}
	info, err := os.Stat(dir + "/log")
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() != 100 {
		t.Errorf("the file has %d bytes; the quota is 100", info.Size())
	}
}

// Handles of one file that are used at the same time count each byte once.
func TestQuotaIsExactWithConcurrentHandles(t *testing.T) {
	dir, _ := offered(t)
	q := NewQuota(1<<20, 1000)
	tree := mounted(t, openDir(t, dir, q))
	if err := tree.WriteFile("/mnt/keep", make([]byte, 4096), 0o644); err != nil {
		t.Fatal(err)
	}
	_, before := q.Used()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				f, err := tree.Open("/mnt/shared", Read|Write|Create, 0o644)
				if errors.Is(err, ENOENT) || errors.Is(err, EEXIST) {
					continue // another goroutine removed or made it
				}
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = f.WriteAt(make([]byte, 100), 0)
				_ = f.Truncate(10)
				_ = tree.Unlink("/mnt/shared")
				_ = f.Close()
			}
		})
	}
	wg.Wait()
	_ = tree.Unlink("/mnt/shared")
	if bytes, files := q.Used(); bytes != 4096 || files != before {
		t.Errorf("%d bytes of %d files count; want 4096 of %d", bytes, files, before)
	}
}
