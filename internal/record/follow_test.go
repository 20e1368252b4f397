package record

import (
	"errors"
	"testing"

	"github.com/spool-run/spool"
)

// some returns the records of n events of a log, the last of them its end, and
// the size of each.
func some(t *testing.T, n int) (b []byte, size int) {
	t.Helper()
	for i := range n {
		e := spool.Event{Seq: spool.Seq(i + 1), Kind: spool.KindOutput, Bytes: []byte("0123456789")}
		if i == n-1 {
			e.Kind = spool.KindClosed
		}
		var err error
		if b, err = Append(b, &e); err != nil {
			t.Fatal(err)
		}
	}
	return b, len(b) / n
}

func TestFit(t *testing.T) {
	b, size := some(t, 4)
	for _, tt := range []struct {
		limit int64
		want  int
	}{
		{-5, size}, {0, size}, {1, size}, {int64(size), size}, {int64(2*size - 1), size},
		{int64(2 * size), 2 * size}, {1 << 40, 4 * size},
	} {
		if n, err := Fit(b, tt.limit); n != tt.want || err != nil {
			t.Errorf("%d bytes fit into %d, want %d; %v", n, tt.limit, tt.want, err)
		}
	}
	if _, err := Fit(b[:size-1], 1); !errors.Is(err, ErrShort) {
		t.Errorf("a record that is cut: %v", err)
	}
	if n, err := Fit(nil, 1); n != 0 || err != nil {
		t.Errorf("no record: %d, %v", n, err)
	}
}

func TestLast(t *testing.T) {
	b, size := some(t, 4)
	if last, closed, err := Last(b[:3*size], 0); last != 3 || closed || err != nil {
		t.Errorf("the first three: %d, %v, %v", last, closed, err)
	}
	if last, closed, err := Last(b[2*size:], 2); last != 4 || !closed || err != nil {
		t.Errorf("the last two: %d, %v, %v", last, closed, err)
	}
	if _, _, err := Last(b[2*size:], 1); err == nil {
		t.Error("a hole is no error")
	}
	if _, _, err := Last(b[:size-1], 0); !errors.Is(err, ErrShort) {
		t.Errorf("a record that is cut: %v", err)
	}
	gap, err := Append(nil, &spool.Event{Seq: 9, Kind: spool.KindTruncated})
	if err != nil {
		t.Fatal(err)
	}
	if last, _, err := Last(gap, 2); last != 9 || err != nil {
		t.Errorf("a gap that is told: %d, %v", last, err)
	}
}
