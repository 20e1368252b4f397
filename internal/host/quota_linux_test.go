package host_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/failpoint"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/launch"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/store"
)

// TestQuota checks that the quota is applied while runs write: the runs that
// ended first are deleted first, and a live run never.
func TestQuota(t *testing.T) {
	o := options(t.TempDir(), launch.TreeAuto)
	o.Retention = store.Retention{TotalBytes: 1 << 20}
	h := openWith(t, o)
	const size = 200_000
	for _, id := range []spool.RunID{"live", "first", "second", "third"} {
		begin(t, h, id, `head -c 200000 /dev/zero; read line; [ "$line" = more ] && head -c 400000 /dev/zero`)
		for n := 0; n < size; {
			info, err := h.Stat(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			n = int(info.Bytes)
		}
		if id != "live" {
			say(t, h, id, "end")
			end(t, h, id)
		}
	}
	// 800 KB so far: all runs are present.
	for _, id := range []spool.RunID{"live", "first", "second", "third"} {
		if _, err := h.Stat(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	say(t, h, "live", "more") // 1.2 MB
	awaitGone(t, h, "first")
	out, outcome := end(t, h, "live")
	if len(out) != 600_000 || outcome.Kind != spool.Exited {
		t.Errorf("live: %d bytes, %v", len(out), outcome)
	}
	for _, id := range []spool.RunID{"second", "third"} {
		if out, _ := end(t, h, id); len(out) != size {
			t.Errorf("%s: %d bytes", id, len(out))
		}
	}

	// A single run above the quota replaces all finished runs.
	begin(t, h, "large", `head -c 1500000 /dev/zero; read line`)
	for _, id := range []spool.RunID{"second", "third", "live"} {
		awaitGone(t, h, id)
	}
	if _, err := h.Stat(t.Context(), "large"); err != nil {
		t.Error(err)
	}
	// While it lives all of it is there; then it goes, too.
	n := 0
	for e, err := range h.Follow(t.Context(), "large", 0) {
		if err != nil {
			t.Fatal(err)
		}
		if n += len(e.Bytes); n >= 1_500_000 {
			break
		}
	}
	if n != 1_500_000 {
		t.Errorf("large: %d bytes", n)
	}
	say(t, h, "large", "end")
	awaitGone(t, h, "large")
}

func awaitGone(t *testing.T, h *host.Host, id spool.RunID) {
	t.Helper()
	polltest.Until(t, "the removal of "+string(id), func() bool {
		_, err := h.Stat(t.Context(), id)
		return errors.Is(err, spool.ErrNotFound)
	})
}

// TestPowerLoss checks that recovery cuts an incomplete log after a power loss
// and reports the cut.
func TestPowerLoss(t *testing.T) {
	for name, damage := range map[string]func([]byte) []byte{
		"torn":  func(b []byte) []byte { return b[:len(b)-3] },
		"zeros": func(b []byte) []byte { return append(b[:len(b)-3:len(b)-3], make([]byte, 4096)...) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			acks := make(seen)
			cmd := child("crash", dir, launch.TreeAuto, "launch.reap=stall")
			acks.read(t, cmd, func() { _ = cmd.Process.Kill() })
			file := filepath.Join(dir, "runs", "tree.00000000000000000001.seg")
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, damage(b), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := host.Settle(options(dir, launch.TreeAuto)); err != nil {
				t.Fatal(err)
			}
			h := openWith(t, options(dir, launch.TreeAuto))
			page, err := h.Read(t.Context(), "tree", spool.Query{})
			if err != nil {
				t.Fatal(err)
			}
			var kinds []spool.Kind
			for _, e := range page.Events {
				kinds = append(kinds, e.Kind)
			}
			// The last record was output, mostly the only one; it is lost.
			cut := slices.IndexFunc(kinds, func(k spool.Kind) bool { return k != spool.KindOutput })
			if cut < 0 || !slices.Equal(kinds[cut:], []spool.Kind{spool.KindNotice, spool.KindFailed, spool.KindClosed}) {
				t.Fatalf("the log has %v", kinds)
			}
			if !strings.Contains(string(page.Events[cut].Data), `"log_cut"`) {
				t.Errorf("notice %s", page.Events[cut].Data)
			}
		})
	}
}

// TestOrphans checks that recovery includes the runs of a host without a file.
func TestOrphans(t *testing.T) {
	dir := t.TempDir()
	acks := make(seen)
	cmd := child("crash", dir, launch.TreeAuto, "launch.reap=stall")
	acks.read(t, cmd, func() { _ = cmd.Process.Kill() })
	if err := os.RemoveAll(filepath.Join(dir, "hosts")); err != nil {
		t.Fatal(err)
	}
	h := openWith(t, options(dir, launch.TreeAuto))
	if err := h.Register(); err != nil {
		t.Fatal(err)
	}
	var info spool.Info
	polltest.Until(t, "the recovery of the run of a host without a file", func() (over bool) {
		var err error
		info, err = h.Stat(t.Context(), "tree")
		return err == nil && info.State == spool.StateClosed
	})
	if info.Outcome.Kind != spool.Unknown {
		t.Errorf("outcome %v", info.Outcome)
	}
	if left := marked(t, dir); len(left) > 0 {
		t.Errorf("still running: %v", left)
	}
}

// TestNoOrphanOfAHostThatEnds lets a host end normally while another one looks for
// runs whose host has no file: there is nothing to recover.
func TestNoOrphanOfAHostThatEnds(t *testing.T) {
	dir := t.TempDir()
	ending := openWith(t, options(dir, launch.TreeAuto))
	run, err := spool.Start(t.Context(), ending, spool.Spec{Argv: []string{"sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	t.Cleanup(failpoint.Enable("host.orphan", 1, func() error {
		closed <- ending.Close()
		return nil
	}))
	var recovered atomic.Bool
	t.Cleanup(failpoint.Enable("host.recover", 0, func() error {
		recovered.Store(true)
		return nil
	}))
	h := openWith(t, options(dir, launch.TreeAuto))
	if err := h.Register(); err != nil {
		t.Fatal(err)
	}
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil { // waits for the search
		t.Fatal(err)
	}
	if recovered.Load() {
		t.Errorf("run %s was recovered", run.ID())
	}
}
