package access

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/spool-run/spool"
)

func TestCheckPath(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(dir, "root")
	for _, d := range []string{"root/sub", "outside/deep", "root-2"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{
		"root/in": "sub", "root/out": "../outside", "root/abs": filepath.Join(dir, "outside"), "root/deep": "../outside/deep",
		"root/dangling": "../outside/new", "root/new-in": "sub/new", "root/loop": "loop", "root/twice": "out/deep",
		"alias": "root", "outside/back": root,
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	scopes := Scopes{Read, FilesOf(filepath.Join(dir, "alias"))} // a root may be a link itself
	for path, want := range map[string]bool{
		"root": true, "root/": true, "root/file": true, "root/sub/x/y": true, "root/in/x": true, "root/new-in": true, "alias/file": true,
		"root/sub/../file": true, "outside/back/file": true, "root/sub/..//./file": true, "root/none/../../root/x": true,
		"": false, "root-2": false, "rootx": false, "outside": false, "root/..": false, "root/../outside": false,
		"root/out": false, "root/out/x": false, "root/abs/x": false, "root/dangling": false, "root/loop": false, "root/twice": false,
		"root/deep/../x":         false, // the kernel goes to the parent of the target
		"root/sub/../../outside": false, "root/none/../../outside": false,
	} {
		err := scopes.CheckPath(dir + "/" + path)
		if (err == nil) != want || err != nil && !errors.Is(err, spool.ErrDenied) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := scopes.CheckPath("root/file"); err == nil {
		t.Error("a relative path is accepted")
	}
	if err := (Scopes{Read, Start}).CheckPath(root); !errors.Is(err, spool.ErrDenied) {
		t.Errorf("no scope: %v", err)
	}
	for _, all := range []Scopes{{Admin}, {FilesOf("/")}} {
		if err := all.CheckPath(filepath.Join(dir, "outside")); err != nil || all.RestrictsFiles() {
			t.Errorf("%v: %v", all, err)
		}
	}
	if !scopes.RestrictsFiles() || !(Scopes{Read}).RestrictsFiles() {
		t.Error("restricted scopes")
	}
}
