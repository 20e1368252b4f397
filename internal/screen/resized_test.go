package screen

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
)

// A screen is drawn with the sizes that the terminal had, whether all of the log or
// only its end is read.
func TestLoadUsesTheSizes(t *testing.T) {
	first, second, third := spool.Size{Rows: 10, Cols: 20}, spool.Size{Rows: 24, Cols: 80}, spool.Size{Rows: 40, Cols: 132}
	for _, tt := range []struct {
		name   string
		before int // bytes of output at the first size, and at the second
		middle int
	}{
		{"short", 100, 100},
		{"long at first", Window * 9 / 8, 100},
		{"long in the middle", 100, Window * 9 / 8},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(2, 3))
			log := &memoryLog{}
			log.add("\x1b[H\x1b[2Jwrapped at the width of twenty columns")
			for log.bytes < int64(tt.before) {
				log.add(update(r))
			}
			log.resize(first, second)
			for end := log.bytes + int64(tt.middle); log.bytes < end; {
				log.add(update(r))
			}
			log.add("\x1b[H\x1b[2J\x1b[24;70Ha long line that wraps")
			log.resize(second, third)
			log.add("\x1b[40;120Hthe corner")

			want := New(int(first.Rows), int(first.Cols))
			for i := range log.events {
				if p, ok := pieceOf(&log.events[i]); ok {
					(&View{Screen: want}).apply(p)
				}
			}
			info := log.info()
			info.FirstSize, info.Size, info.Details = first, third, nil
			for name, load := range map[string]func() (*View, error){
				"Load":   func() (*View, error) { return Load(t.Context(), log, info) },
				"Replay": func() (*View, error) { return Replay(t.Context(), log, info) },
				"Advance": func() (*View, error) {
					early := *info
					early.Last, early.Size = 1, first
					v, err := Load(t.Context(), log, &early)
					if err != nil {
						return nil, err
					}
					return v, v.Advance(t.Context(), log, info.Last)
				},
			} {
				v, err := load()
				if err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(want.Rows(), v.Rows()); d != "" {
					t.Errorf("%s draws another screen:\n%s", name, d)
				}
			}
		})
	}
}
