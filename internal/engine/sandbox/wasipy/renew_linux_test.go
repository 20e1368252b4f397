package wasipy

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
)

// hashOf asks an interpreter for the hash of a text.
func hashOf(t *testing.T, c guest.Context) string {
	t.Helper()
	h := quietHost{make(chan string, 1)}
	if res, err := c.Run(context.Background(), guest.Script{Code: "print(hash('some text'))"}, h); err != nil || res.ExitCode != 0 {
		t.Fatalf("%+v %v", res, err)
	}
	return strings.TrimSpace(<-h.out)
}

func TestOldImageIsRenewedWhileScriptsRun(t *testing.T) {
	// A directory of its own: others would see its image change.
	_, shared := testPool(t, 1)
	b := New(Config{CacheDir: CompiledOnly(t, shared.p.dir), Worker: BuiltWorker, MaxWorkers: 2})
	t.Cleanup(func() { _ = b.Close() })
	p, _, err := b.prepare(context.Background(), guest.Setup{})
	if err != nil {
		t.Fatal(err)
	}
	pl := p.pool
	before := openTest(t, b)
	old := hashOf(t, before)
	if again := hashOf(t, openTest(t, b)); again != old {
		t.Errorf("one image has hashes %s and %s", old, again)
	}
	pl.mu.Lock()
	pl.imageAge = 0
	pl.mu.Unlock()
	// The next caller finds the image too old and still uses it.
	if got := hashOf(t, openTest(t, b)); got != old {
		t.Errorf("the image changed from %s to %s at once", old, got)
	}
	pl.beside.Wait()
	pl.mu.Lock()
	pl.imageAge = imageAge
	for pl.starting > 0 {
		pl.started.Wait()
	}
	im := pl.image
	pl.mu.Unlock()
	if im == p.image {
		t.Fatal("the image was not renewed")
	}
	if got := hashOf(t, openTest(t, b)); got == old {
		t.Errorf("the hash is still %s", got)
	}
	// A context that has an interpreter keeps it.
	if got := hashOf(t, before); got != old {
		t.Errorf("an interpreter changed its hashes from %s to %s", old, got)
	}
	_ = before.Close()
	// What the next start of this machine finds is the new one.
	fresh, err := loadImage(p.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close()
	if string(fresh.contents) != string(im.contents) {
		t.Error("the cache has another image")
	}
}

func TestImageThatCannotBeRenewedIsKept(t *testing.T) {
	b, pl := testPool(t, 1)
	old := hashOf(t, openTest(t, b))
	pl.mu.Lock()
	worker, tried := pl.cfg.Worker, 0
	pl.cfg.Worker = func(args ...string) *exec.Cmd {
		if args[0] == verbRenew {
			tried++
			return exec.Command("false")
		}
		return worker(args...)
	}
	pl.imageAge, pl.made = imageAge, time.Now().Add(-imageAge)
	pl.mu.Unlock()
	for range 2 { // the second is not tried again at once
		if got := hashOf(t, openTest(t, b)); got != old {
			t.Errorf("%s became %s", old, got)
		}
		pl.beside.Wait()
	}
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if pl.image != pl.p.image || pl.renewing || tried != 1 {
		t.Errorf("the image changed: %v; it is being renewed: %v; that was tried %d times", pl.image != pl.p.image, pl.renewing, tried)
	}
}
