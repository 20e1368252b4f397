package search_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/store"
	"github.com/spool-run/spool/search"
)

// logText is text as servers log it.
func logText(r *rand.Rand, size int) []byte {
	words := []string{"request", "GET", "/api/v1/users", "status=200", "duration_ms=", "connected", "worker", "cache", "miss", "hit", "user", "session", "from", "to", "took"}
	var b []byte
	for len(b) < size {
		b = fmt.Appendf(b, "2026-11-16T15:%02d:%02d.%06dZ INFO ", r.IntN(60), r.IntN(60), r.IntN(1_000_000))
		for range 6 + r.IntN(6) {
			b = append(b, words[r.IntN(len(words))]...)
			b = append(b, ' ')
		}
		b = fmt.Appendf(b, "id=%08x\n", r.Uint32())
	}
	return b[:size]
}

// BenchmarkScan searches finished logs that are in the page cache for a word that is
// in none.
func BenchmarkScan(b *testing.B) {
	for _, size := range []int{64 << 10, 120} {
		dir := b.TempDir()
		st, err := store.Open(dir, store.Options{})
		if err != nil {
			b.Fatal(err)
		}
		text := logText(rand.New(rand.NewPCG(1, 1)), 4<<20)
		runs, total := 16, 32<<20
		for i := range runs {
			info := spool.Info{ID: spool.RunID(fmt.Sprintf("run%04d", i)), Created: time.Now(), Engine: spool.EngineProcess, State: spool.StateRunning}
			j, err := st.Create(info)
			if err != nil {
				b.Fatal(err)
			}
			e := spool.Event{Time: time.Now(), Kind: spool.KindOutput, Stream: spool.Stdout}
			for e.Seq = 1; int(e.Seq)*size <= total; e.Seq++ {
				from := int(e.Seq) * size % (len(text) - size)
				e.Bytes = text[from : from+size]
				if err := j.Append(&e); err != nil {
					b.Fatal(err)
				}
			}
			info.State, info.Ended = spool.StateClosed, time.Now()
			if err := j.Append(&spool.Event{Seq: e.Seq, Time: e.Time, Kind: spool.KindClosed}); err != nil {
				b.Fatal(err)
			}
			if err := j.Seal(info); err != nil {
				b.Fatal(err)
			}
			if err := j.Close(); err != nil {
				b.Fatal(err)
			}
		}
		if err := st.Close(); err != nil {
			b.Fatal(err)
		}
		h, err := host.Open(host.Options{Dir: dir})
		if err != nil {
			b.Fatal(err)
		}
		for _, q := range []search.Query{
			{Pattern: "xylophone", Literal: true}, {Pattern: "segmentation fault", Literal: true}, {Pattern: `refused by \d+`}, {Pattern: "xylophone", Literal: true, IgnoreCase: true},
		} {
			b.Run(fmt.Sprintf("%d/%s-%t", size, q.Pattern, q.IgnoreCase), func(b *testing.B) {
				b.SetBytes(int64(runs * total))
				for b.Loop() {
					for hit, err := range search.Find(b.Context(), h, q) {
						b.Fatal(hit, err)
					}
				}
			})
		}
		if err := h.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
