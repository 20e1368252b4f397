package keeper

import (
	"context"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/eventlog"
	"github.com/spool-run/spool/internal/record"
	"github.com/spool-run/spool/internal/store"
)

// A mirror with a single reader keeps the last update only, unless the files lack what
// came before it; one with more keeps events for those who are a little behind.
func TestMirrorKeepsTheLastUpdate(t *testing.T) {
	for name, tt := range map[string]struct {
		readers int
		written spool.Seq // the last event in the files
		kept    int
	}{
		"no reader":           {readers: 0, written: 3, kept: 1},
		"a reader":            {readers: 1, written: 3, kept: 1},
		"two readers":         {readers: 2, written: 3, kept: 3},
		"the disk is full":    {readers: 1, written: 0, kept: 3},
		"only the first fits": {readers: 1, written: 1, kept: 2},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := store.Open(t.TempDir(), store.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}()
			info := spool.Info{ID: "r", State: spool.StateRunning}
			j, err := s.OpenNew(info)
			if err != nil {
				t.Fatal(err)
			}
			b := &Backend{store: s, relays: eventlog.NewBatches(eventlog.DefaultBatches), ctx: context.Background()}
			m := newMirror(b, info, j)
			for range tt.readers {
				m.addReader()
			}
			for seq := spool.Seq(1); seq <= 3; seq++ {
				info.Last = seq
				e := spool.Event{Run: "r", Seq: seq, Kind: spool.KindOutput, Bytes: []byte("x")}
				if err := m.apply(&record.Update{Info: info, Events: []spool.Event{e}, Last: min(seq, tt.written), Segment: 1, Size: 10}, 0); err != nil {
					t.Fatal(err)
				}
			}
			for after := range spool.Seq(3) {
				if got, want := len(m.log.Recent(after, 1<<20)) > 0, 3-int(after) <= tt.kept; got != want {
					t.Errorf("after %d: in memory is %v, want %v", after, got, want)
				}
			}
			if err := m.close(); err != nil {
				t.Error(err)
			}
		})
	}
}
