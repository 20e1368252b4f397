package mirror

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/disktest"
)

// TestCopyOnAFullDisk copies a run until the disk is full, and goes on once there is room.
func TestCopyOnAFullDisk(t *testing.T) {
	dir := disktest.Small(t, "size=512k")
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 300<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	o := newOrigin(t, "r")
	o.print(2500, "x") // about 330 KB
	o.end()
	c := open(t, Options{Dir: filepath.Join(dir, "mirrors")})
	if err := c.Copy(t.Context(), "r", here, o); !errors.Is(err, ErrFull) || !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("on a full disk: %v", err)
	}
	taken, counted := int64(0), c.Bytes()
	if err := filepath.WalkDir(filepath.Join(dir, "mirrors"), func(_ string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			fi, statErr := e.Info()
			err = statErr
			taken += fi.Size()
		}
		return err
	}); err != nil || counted != taken+overhead {
		t.Errorf("the copies are counted as %d bytes and have %d, %v", counted, taken, err)
	}
	s, _ := c.Of("r")
	if s.Last < 100 || s.Complete {
		t.Fatalf("the copy is %+v", s)
	}
	wantSame(t, c, o, s.Last)
	if err := errors.Join(c.Close(), os.Remove(ballast)); err != nil {
		t.Fatal(err)
	}
	c = open(t, Options{Dir: filepath.Join(dir, "mirrors")})
	wantSame(t, c, o, s.Last)
	if err := c.Copy(t.Context(), "r", here, o); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	wantSame(t, c, o, 2501)

	// Copies that leave room for others stop before the disk is full.
	if err := c.Remove("r"); err != nil {
		t.Fatal(err)
	}
	c.opts.Free = 300 << 10
	if err := c.Copy(t.Context(), "r", here, o); !errors.Is(err, ErrFull) {
		t.Fatalf("with room for others: %v", err)
	}
	if free, err := freeBytes(dir); err != nil || free < 280<<10 {
		t.Errorf("%d bytes are free, %v", free, err)
	}
}
