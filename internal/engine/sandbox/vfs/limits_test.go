package vfs

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestPathsAreBounded(t *testing.T) {
	tree := NewTree(NewMemory(nil))
	name := strings.Repeat("n", MaxName)
	if err := tree.Mkdir("/"+name, 0o755); err != nil {
		t.Errorf("a name of %d bytes: %v", len(name), err)
	}
	if err := tree.Mkdir("/"+name+"n", 0o755); !errors.Is(err, ENAMETOOLONG) {
		t.Errorf("a longer one: %v", err)
	}
	path := "/" + strings.Repeat("./", MaxPath)[:MaxPath-1]
	if _, err := tree.Stat(path, true); err != nil {
		t.Errorf("a path of %d bytes: %v", len(path), err)
	}
	if _, err := tree.Stat(path+"/", true); !errors.Is(err, ENAMETOOLONG) {
		t.Errorf("a longer one: %v", err)
	}
	// Each link names the one before it.
	target := "/" + name
	for i := range MaxSymlinks + 1 {
		link := fmt.Sprintf("/link%d", i)
		if err := tree.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
		target = link
	}
	if _, err := tree.Stat(fmt.Sprintf("/link%d", MaxSymlinks-1), true); err != nil {
		t.Errorf("%d links: %v", MaxSymlinks, err)
	}
	if _, err := tree.Stat(fmt.Sprintf("/link%d", MaxSymlinks), true); !errors.Is(err, ELOOP) {
		t.Errorf("one more: %v", err)
	}
}

func TestFilesInMemoryAreBounded(t *testing.T) {
	tree := NewTree(NewMemory(nil))
	f, err := tree.Open("/f", Read|Write|Create, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(MaxFileSize + 1); !errors.Is(err, EFBIG) {
		t.Errorf("a file that is too large: %v", err)
	}
	if n, err := f.WriteAt([]byte("x"), MaxFileSize); n != 0 || !errors.Is(err, EFBIG) {
		t.Errorf("a byte beyond the end: %d, %v", n, err)
	}
	if info, err := f.Stat(); err != nil || info.Size != 0 {
		t.Errorf("%+v, %v", info, err)
	}
}
