package store

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/disktest"
)

// tinyDisk mounts a file system of 1 MB.
func tinyDisk(t *testing.T) string {
	t.Helper()
	return disktest.Small(t, "size=1m")
}

// Append on a full disk fails and leaves nothing of its event. It works again
// once there is space.
func TestNoSpace(t *testing.T) {
	for _, segment := range []int64{0, 100_000} {
		dir := tinyDisk(t)
		s := openStore(t, dir, Options{SegmentBytes: segment})
		j := create(t, s, "r")
		ballast := filepath.Join(dir, "ballast")
		mustWrite(t, ballast, make([]byte, 200_000))
		var want []spool.Event
		fill := func() {
			t.Helper()
			for seq := spool.Seq(len(want) + 1); ; seq++ {
				e := output(seq, bytes.Repeat([]byte{byte(seq)}, 30_000))
				err := j.Append(&e)
				if errors.Is(err, unix.ENOSPC) {
					return
				}
				if err != nil || seq > 1000 {
					t.Fatalf("event %d: %v", seq, err)
				}
				want = append(want, e)
			}
		}
		fill()
		fill() // still full
		wantEvents(t, "r", readAll(t, j, 1<<20), want)
		if _, err := s.Create(testInfo("other")); !errors.Is(err, unix.ENOSPC) && err != nil {
			t.Errorf("create on a full disk: %v", err)
		} else if _, open := s.Open("other"); err != nil && !errors.Is(open, fs.ErrNotExist) {
			t.Errorf("a run exists although Create failed: %v", open)
		}
		n := len(want)
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		want = append(want, appendSizes(t, j, 10)...)
		fill()
		if len(want) < n+3 {
			t.Errorf("%d events once there was space", len(want)-n)
		}
		r, cut, err := s.Recover("r")
		if err != nil || cut.Bytes != 0 {
			t.Fatalf("recover: %+v, %v", cut, err)
		}
		wantEvents(t, "r", readAll(t, r, 1<<20), want)
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	}
}
