package meter

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/spool-run/spool"
)

// The tail keeps exactly the last bytes and accounts for every other.
func TestTail(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(0, 40).Draw(t, "size")
		tl := tail{max: size}
		type unit struct {
			stream spool.Stream
			b      byte
		}
		var all []unit
		for range rapid.IntRange(0, 20).Draw(t, "writes") {
			stream := rapid.SampledFrom([]spool.Stream{spool.Stdout, spool.Stderr}).Draw(t, "stream")
			b := rapid.SliceOfN(rapid.Byte(), 0, 60).Draw(t, "bytes")
			tl.write(stream, b)
			for _, c := range b {
				all = append(all, unit{stream, c})
			}
		}
		cut := max(0, len(all)-size)
		dropped := make(map[spool.Stream]int64)
		for _, u := range all[:cut] {
			dropped[u.stream]++
		}
		for _, stream := range []spool.Stream{spool.Stdout, spool.Stderr} {
			if tl.dropped[stream] != dropped[stream] {
				t.Fatalf("%d bytes of %s were dropped, want %d", tl.dropped[stream], stream, dropped[stream])
			}
		}
		var got []unit
		for {
			stream, b := tl.next(7)
			if b == nil {
				break
			}
			for _, c := range b {
				got = append(got, unit{stream, c})
			}
		}
		if d := cmp.Diff(all[cut:], got, cmp.AllowUnexported(unit{})); d != "" && len(got)+len(all[cut:]) > 0 {
			t.Fatalf("tail (-want +got):\n%s", d)
		}
	})
}
