package policy

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// A chain of links to a file that does not exist leads to that file, as long as
// the kernel would follow it.
func TestChainsOfLinksAreFollowed(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	end := filepath.Join(t.TempDir(), "new")
	target := end
	for i := range maxLinks {
		link := filepath.Join(dir, fmt.Sprint(i))
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
		target = link
	}
	if got := realPath(target); got != end {
		t.Errorf("%d links lead to %s, want %s", maxLinks, got, end)
	}
	more := filepath.Join(dir, "more")
	if err := os.Symlink(target, more); err != nil {
		t.Fatal(err)
	}
	if f, err := os.Create(more); err == nil {
		f.Close()
		t.Error("the kernel follows more links")
	}
}
