package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/quick"
)

func TestMountsCoverAndCannotBeMoved(t *testing.T) {
	tree := NewTree(NewMemory(nil))
	inner := NewMemory(nil)
	if err := errors.Join(tree.Mount("/a/b", inner), tree.WriteFile("/a/b/f", []byte("in"), 0o644), tree.WriteFile("/a/g", nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	if _, err := inner.lstat("f"); err != nil {
		t.Errorf("the mount has no f: %v", err)
	}
	for what, err := range map[string]error{
		"rmdir a mount":           tree.Rmdir("/a/b"),
		"rename a mount":          tree.Rename("/a/b", "/c"),
		"rename what leads to it": tree.Rename("/a", "/c"),
		"rename onto a mount":     tree.Rename("/a/g", "/a/b"),
		"mount twice":             tree.Mount("/a/b", NewMemory(nil)),
	} {
		if !errors.Is(err, EBUSY) {
			t.Errorf("%s: %v, want EBUSY", what, err)
		}
	}
	if err := tree.Rename("/a/g", "/a/b/g"); !errors.Is(err, EXDEV) {
		t.Errorf("rename into a mount: %v, want EXDEV", err)
	}
	if err := errors.Join(tree.Symlink("/a/b/f", "/abs"), tree.Symlink("b/../b/f", "/a/rel")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/abs", "/a/rel", "/a/b/../b/f", "/../a/b/f"} {
		if content, err := tree.ReadFile(path, 10); err != nil || string(content) != "in" {
			t.Errorf("read %s: %q, %v", path, content, err)
		}
	}
	info, err := tree.Stat("/a/b", true)
	outer, outerErr := tree.Stat("/a", true)
	if err != nil || outerErr != nil || info.Dev == outer.Dev {
		t.Errorf("a mount is on device %d and its directory on %d", info.Dev, outer.Dev)
	}
}

func TestReadOnlyLayersRefuseWithEROFS(t *testing.T) {
	m := NewMemory(nil)
	tree := NewTree(m)
	if err := errors.Join(tree.WriteFile("/f", []byte("x"), 0o644), tree.Mkdir("/d", 0o755), tree.Symlink("f", "/l")); err != nil {
		t.Fatal(err)
	}
	ro := NewTree(ReadOnly(m))
	for what, err := range map[string]error{
		"write":   ro.WriteFile("/f", nil, 0o644),
		"make":    ro.WriteFile("/new", nil, 0o644),
		"mkdir":   ro.Mkdir("/new", 0o755),
		"symlink": ro.Symlink("f", "/new"),
		"unlink":  ro.Unlink("/f"),
		"rmdir":   ro.Rmdir("/d"),
		"rename":  ro.Rename("/f", "/g"),
		"chmod":   ro.Chmod("/f", 0),
		"chtimes": ro.Chtimes("/f", 0, 0),
	} {
		if !errors.Is(err, EROFS) {
			t.Errorf("%s: %v, want EROFS", what, err)
		}
	}
	if err := ro.Mkdir("/d", 0o755); !errors.Is(err, EEXIST) {
		t.Errorf("mkdir of what is there: %v, want EEXIST", err)
	}
	if err := ro.Unlink("/none"); !errors.Is(err, ENOENT) {
		t.Errorf("unlink of nothing: %v, want ENOENT", err)
	}
	f, err := ro.Open("/f", Read, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("y"), 0); !errors.Is(err, EBADF) {
		t.Errorf("write to a file that is open to read: %v, want EBADF", err)
	}
	if err := errors.Join(f.Close()); err != nil {
		t.Error(err)
	}
	if content, err := ro.ReadFile("/l", 10); err != nil || string(content) != "x" {
		t.Errorf("read: %q, %v", content, err)
	}
}

func TestQuotaOfMemoryIsGivenBack(t *testing.T) {
	q := NewQuota(1000, 10)
	tree := NewTree(NewMemory(q))
	if err := tree.WriteFile("/f", make([]byte, 1001), 0o644); !errors.Is(err, ENOSPC) {
		t.Errorf("write more than the quota: %v", err)
	}
	if info, err := tree.Stat("/f", true); err != nil || info.Size != 1000 {
		t.Errorf("what fits is there: %d bytes, %v", info.Size, err)
	}
	f, err := tree.Open("/f", Read|Write, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := tree.Unlink("/f"); err != nil {
		t.Fatal(err)
	}
	if bytes, _ := q.Used(); bytes != 1000 {
		t.Errorf("a removed file that is open counts %d bytes, want 1000", bytes)
	}
	if err := f.Truncate(10); err != nil {
		t.Fatal(err)
	}
	if bytes, files := q.Used(); bytes != 10 || files != 1 {
		t.Errorf("after a truncate %d bytes and %d files count", bytes, files)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if bytes, files := q.Used(); bytes != 0 || files != 0 {
		t.Errorf("at the end %d bytes and %d files count", bytes, files)
	}
	made := 0
	for ; made < 20; made++ {
		if err := tree.Mkdir(fmt.Sprintf("/d%d", made), 0o755); err != nil {
			if !errors.Is(err, ENOSPC) {
				t.Fatal(err)
			}
			break
		}
	}
	if made != 10 {
		t.Errorf("%d directories could be made, want 10", made)
	}
}

// TestMemoryFilesHoldWhatWasWritten compares with a slice.
func TestMemoryFilesHoldWhatWasWritten(t *testing.T) {
	check := func(parts [][]byte, offs []uint16, cut uint16) bool {
		tree := NewTree(NewMemory(nil))
		f, err := tree.Open("/f", Read|Write|Create, 0o644)
		if err != nil {
			return false
		}
		defer f.Close()
		var want []byte
		for i, p := range parts {
			off := 0
			if i < len(offs) {
				off = int(offs[i])
			}
			if len(p) > 0 {
				if grow := off + len(p) - len(want); grow > 0 {
					want = append(want, make([]byte, grow)...)
				}
				copy(want[off:], p)
			}
			if n, err := f.WriteAt(p, int64(off)); n != len(p) || err != nil {
				return false
			}
		}
		if int(cut) < len(want) {
			want = want[:cut]
			if f.Truncate(int64(cut)) != nil || f.Truncate(int64(cut)+100) != nil {
				return false
			}
			want = append(slices.Clip(want), make([]byte, 100)...)
		}
		got, err := tree.ReadFile("/f", 1<<30)
		return err == nil && bytes.Equal(got, want)
	}
	if err := quick.Check(check, nil); err != nil {
		t.Error(err)
	}
}

func TestOverlayTellsWhatChanged(t *testing.T) {
	lower := NewMemory(nil)
	below := NewTree(lower)
	if err := errors.Join(below.MkdirAll("/d/e"), below.WriteFile("/d/e/f", []byte("old"), 0o644),
		below.WriteFile("/gone", nil, 0o644), below.WriteFile("/same", nil, 0o644), below.WriteFile("/back", []byte("1"), 0o644)); err != nil {
		t.Fatal(err)
	}
	over := NewOverlay(lower, NewQuota(100, 10))
	tree := NewTree(over)
	if err := errors.Join(tree.WriteFile("/d/e/f", []byte("new"), 0o644), tree.WriteFile("/d/g", []byte("added"), 0o600),
		tree.Unlink("/gone"), tree.Symlink("d/g", "/l"), tree.Unlink("/back"), tree.WriteFile("/back", []byte("2"), 0o644)); err != nil {
		t.Fatal(err)
	}
	if _, err := tree.ReadFile("/same", 10); err != nil {
		t.Fatal(err)
	}
	changes, err := over.Changes()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range changes {
		got = append(got, fmt.Sprintf("%s %s %o %d %s", c.Kind, c.Path, c.Mode, c.Size, c.Target))
	}
	want := []string{
		"modified back 100644 1 ", "modified d/e/f 100644 3 ", "added d/g 100600 5 ", "removed gone 0 0 ", "added l 120777 3 d/g",
	}
	if !slices.Equal(got, want) {
		t.Errorf("changes\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if content, err := below.ReadFile("/d/e/f", 10); err != nil || string(content) != "old" {
		t.Errorf("below, the file is %q, %v", content, err)
	}
	if err := tree.Rename("/d", "/x"); !errors.Is(err, EXDEV) {
		t.Errorf("rename a directory of the layer below: %v, want EXDEV", err)
	}
	big := strings.Repeat("x", 200)
	if err := tree.WriteFile("/big", []byte(big), 0o644); !errors.Is(err, ENOSPC) {
		t.Errorf("write more than the overlay may hold: %v", err)
	}
}

func TestDevicesAreWhatProgramsExpect(t *testing.T) {
	tree := NewTree(NewMemory(nil))
	if err := tree.Mount("/dev", Devices()); err != nil {
		t.Fatal(err)
	}
	read := func(name string) ([]byte, error) {
		f, err := tree.Open("/dev/"+name, Read, 0)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		p := make([]byte, 16)
		n, err := f.ReadAt(p, 0)
		return p[:n], err
	}
	if p, err := read("null"); len(p) != 0 || err != nil {
		t.Errorf("null reads %v, %v", p, err)
	}
	if p, err := read("zero"); !bytes.Equal(p, make([]byte, 16)) || err != nil {
		t.Errorf("zero reads %v, %v", p, err)
	}
	one, err := read("urandom")
	two, err2 := read("random")
	if err != nil || err2 != nil || bytes.Equal(one, two) || len(one) != 16 {
		t.Errorf("random reads %v and %v", one, two)
	}
	for name, want := range map[string]error{"null": nil, "full": ENOSPC} {
		f, err := tree.Open("/dev/"+name, Write|Truncate|Create, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte("x"), 0); !errors.Is(err, want) {
			t.Errorf("write to %s: %v", name, err)
		}
		_ = f.Close()
	}
	if err := tree.WriteFile("/dev/new", nil, 0o644); !errors.Is(err, EROFS) {
		t.Errorf("make a device: %v", err)
	}
}

// TestTreesAreSafeForConcurrentUse hammers one tree from many sides; the race
// detector is the judge.
func TestTreesAreSafeForConcurrentUse(t *testing.T) {
	lower := NewMemory(nil)
	tree := NewTree(NewMemory(NewQuota(1<<20, 100)))
	if err := tree.Mount("/over", NewOverlay(lower, NewQuota(1<<20, 100))); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 200 {
				dir := []string{"/", "/over/"}[j%2]
				path := fmt.Sprintf("%sf%d", dir, (i+j)%5)
				if err := tree.WriteFile(path, []byte(path), 0o644); err != nil && !errors.Is(err, EISDIR) {
					t.Errorf("write %s: %v", path, err)
				}
				_, _ = tree.ReadFile(path, 100)
				_ = tree.Rename(path, fmt.Sprintf("%sg%d", dir, j%5))
				_, _ = tree.ReadDir(dir)
				_ = tree.Unlink(fmt.Sprintf("%sg%d", dir, i%5))
			}
		})
	}
	all.Wait()
}

func TestInvalidPaths(t *testing.T) {
	tree := NewTree(NewMemory(nil))
	for path, want := range map[string]Errno{
		"": ENOENT, "relative": EINVAL, "/a\x00b": EINVAL,
		"/" + strings.Repeat("a", 256):       ENAMETOOLONG,
		strings.Repeat("/a", 3000):           ENAMETOOLONG,
		"/none/none":                         ENOENT,
		"/" + strings.Repeat("é", 128) + "x": ENAMETOOLONG,
	} {
		if _, err := tree.Stat(path, true); !errors.Is(err, want) {
			t.Errorf("stat %.20q: %v, want %v", path, err, want)
		}
	}
	if err := errors.Join(tree.Symlink("b", "/a"), tree.Symlink("a", "/b")); err != nil {
		t.Fatal(err)
	}
	if _, err := tree.Stat("/a", true); !errors.Is(err, ELOOP) {
		t.Errorf("a circle of links: %v, want ELOOP", err)
	}
}
