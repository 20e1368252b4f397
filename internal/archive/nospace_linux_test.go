package archive_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/archive"
	"github.com/spool-run/spool/internal/disktest"
)

// A full disk of the archive is said, leaves nothing half-written, and shipping goes on
// once there is room.
func TestArchiveOnAFullDisk(t *testing.T) {
	dir := disktest.Small(t, "size=512k")
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 300<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	o, m := openPlace(t, "dir:"+dir), newMachine(t)
	for _, id := range []spool.RunID{"a", "b", "c"} {
		m.run(t, id, 110, nil, time.Now())
	}
	s := m.shipper(o, archive.ShipOptions{})
	if err := s.Flush(t.Context()); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("on a full disk: %v", err)
	}
	if st := s.Status(); !strings.Contains(st.Failure, "no space") || st.PendingRuns == 0 {
		t.Errorf("the status is %+v", st)
	}
	a := archive.New(o)
	for man, err := range a.List(t.Context(), archive.Query{}) {
		if err == nil {
			_, err = a.Verify(t.Context(), man.Run)
		}
		if err != nil {
			t.Error(err)
		}
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	m.flush(t, o)
	m.compare(t, o)
}
