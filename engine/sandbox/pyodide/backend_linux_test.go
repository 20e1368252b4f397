//go:build amd64 || arm64

package pyodide

import (
	"testing"
	"time"

	"github.com/spool-run/spool/engine/sandbox/guest"
	"github.com/spool-run/spool/engine/sandbox/vfs"
	"github.com/spool-run/spool/internal/pyodidetest"
)

func newTree(t testing.TB) *vfs.Tree {
	t.Helper()
	tree := vfs.NewTree(vfs.NewMemory(vfs.NewQuota(64<<20, 10000)))
	for _, dir := range []string{"/workspace", "/tmp"} {
		if err := tree.MkdirAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	return tree
}

func TestHello(t *testing.T) {
	b := New(Options{Dist: pyodidetest.Dist(t)})
	defer b.Close()
	ctx := testContext(t)
	t0 := time.Now()
	p, err := b.Prepare(ctx, guest.Setup{})
	t.Logf("%+v %v %v", p, err, time.Since(t0))
	if err != nil {
		t.Fatal(err)
	}
	c, err := b.Open(ctx, guest.Options{FS: newTree(t), Cwd: "/workspace", Fresh: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 5 {
		t0 = time.Now()
		h := newHost()
		r, err := c.Run(ctx, guest.Script{Code: "import os\nprint('hello', os.listdir('/'), os.getcwd())\nopen('x.txt','w').write('abc')\nprint(open('/workspace/x.txt').read(), os.stat('x.txt'))"}, h)
		t.Logf("%+v %v %v\n%s%s %v", r, err, time.Since(t0), h.stdout(), h.stderr(), h.started)
	}
}
