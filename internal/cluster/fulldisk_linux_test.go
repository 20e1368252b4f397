package cluster_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/disktest"
	"github.com/spool-run/spool/internal/host/backendtest"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/skiptest"
)

// fillDisk writes until the file system of a directory has no byte left.
func fillDisk(t *testing.T, dir string) (free func()) {
	t.Helper()
	name := filepath.Join(dir, "ballast")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	for size := 1 << 20; size > 0; {
		_, err := f.Write(make([]byte, size))
		switch {
		case errors.Is(err, syscall.ENOSPC):
			size /= 2
		case err != nil:
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(name); err != nil {
			t.Error(err)
		}
	}
}

// TestFullDiskOfANode fills the disk of a node: it refuses starts and says why, others
// take them, nobody loses it, and what it had is read. Once there is room it starts runs
// again, and a run that it had goes on.
func TestFullDiskOfANode(t *testing.T) {
	dir := t.TempDir()
	disk := filepath.Join(dir, "y")
	if err := os.Mkdir(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := disktest.Mount(t, disk, "size=24m"); err != nil {
		skiptest.Missing(t, "mount: %v", err)
	}
	nats := startNATS(t, filepath.Join(dir, "nats"), "127.0.0.1:0")
	if nats == nil {
		t.Fatal("the store did not start")
	}
	o := &outsideNodes{dir: dir, lease: lease, nats: nats.URL}
	x, y := o.node(t, "x"), o.node(t, "y")
	x.awaitNode(t, "y", "up")
	c := x.dial(t)
	live := backendtest.Start(t, c, counter(y))
	lines := reader(t.Context(), t, c, live.ID())
	say(t, live, 5, lines)
	finished := backendtest.Start(t, c, on(y, backendtest.Shell("echo one; echo two; exit 3")))
	if _, err := finished.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	want, before := events(t, c, finished.ID()), x.list(t)["y"]

	free := fillDisk(t, y.state)
	for _, through := range []*machine{x, y} {
		spec := on(y, backendtest.Shell("echo three"))
		spec.ID = spool.RunID("full" + through.name)
		var refused *spool.StartError
		if _, err := through.dial(t).Start(t.Context(), spec); !errors.As(err, &refused) || !errors.Is(err, syscall.ENOSPC) || !strings.Contains(refused.Hint, "full") {
			t.Errorf("a start on a full disk, through node %s: %v", through.name, err)
		}
	}
	for range 4 {
		if info, err := c.Start(t.Context(), backendtest.Shell("true")); err != nil || info.Node != "x" {
			t.Errorf("a start that may go anywhere is on node %q, %v", info.Node, err)
		}
	}
	if got := events(t, c, finished.ID()); !reflect.DeepEqual(got, want) {
		t.Errorf("while the disk is full, the log is %+v", got)
	}
	if is := x.list(t)["y"]; is.State != "up" || is.Epoch != before.Epoch {
		t.Errorf("the node is %s in epoch %d, and was in %d", is.State, is.Epoch, before.Epoch)
	}
	free()

	spec := on(y, backendtest.Shell("echo three"))
	spec.ID = "fullx" // which was refused
	polltest.Until(t, "a start on the disk that has room again", func() bool {
		_, err := c.Start(t.Context(), spec)
		return err == nil
	})
	if text := textOf(events(t, c, spec.ID)); text != "three\n" {
		t.Errorf("the log of a start that was refused before is %q", text)
	}
	say(t, live, 5, lines)
	if err := live.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := live.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if text := textOf(events(t, c, live.ID())); strings.Count(text, "line ") != 10 {
		t.Errorf("the log of the run that went on is %q", text)
	}
}
