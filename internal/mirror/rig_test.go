package mirror

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/leaktest"
	"github.com/spool-run/spool/internal/record"
	"github.com/spool-run/spool/internal/store"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

var here = Source{Node: "n1", Machine: "m1"}

// origin is a machine with one run: its store and its journal.
type origin struct {
	t       *testing.T
	store   *store.Store
	journal *store.Journal
	info    spool.Info
	cut     spool.Seq // the connection is lost after this event; zero means never
	gone    bool
	follows int
}

func newOrigin(t *testing.T, id spool.RunID) *origin {
	t.Helper()
	s, err := store.Open(t.TempDir(), store.Options{SegmentBytes: 4 << 10})
	if err != nil {
		t.Fatal(err)
	}
	o := &origin{t: t, store: s, info: spool.Info{ID: id, Engine: spool.EngineProcess, Argv: []string{"x"}, Created: time.Unix(1_700_000_000, 0).UTC(), State: spool.StateRunning}}
	if o.journal, err = s.Create(o.info); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = o.journal.Close(), s.Close() })
	return o
}

// print appends events with a text up to a seq.
func (o *origin) print(to spool.Seq, text string) {
	o.t.Helper()
	last, _ := o.journal.Last()
	for seq := last + 1; seq <= to; seq++ {
		o.add(spool.Event{Seq: seq, Time: time.Unix(0, int64(seq)).UTC(), Kind: spool.KindOutput, Stream: spool.Stdout, Bytes: []byte(fmt.Sprint(text, seq, strings.Repeat(".", 80)))})
	}
}

func (o *origin) add(e spool.Event) {
	o.t.Helper()
	if err := o.journal.Append(&e); err != nil {
		o.t.Fatal(err)
	}
}

// end ends the run.
func (o *origin) end() {
	o.t.Helper()
	last, _ := o.journal.Last()
	o.add(spool.Event{Seq: last + 1, Time: time.Unix(9, 0).UTC(), Kind: spool.KindClosed})
	o.info.State, o.info.Ended, o.info.Outcome = spool.StateClosed, time.Unix(10, 0).UTC(), &spool.Outcome{Kind: spool.Exited}
	if err := o.journal.Seal(o.info); err != nil {
		o.t.Fatal(err)
	}
}

// Stat implements [Origin].
func (o *origin) Stat(context.Context, spool.RunID) (spool.Info, error) {
	if o.gone {
		return spool.Info{}, spool.ErrNotFound
	}
	return o.journal.Info(), nil
}

// Blob implements [Origin].
func (o *origin) Blob(_ context.Context, _ spool.RunID, d spool.Digest) (io.ReadCloser, error) {
	return o.store.Blob(d)
}

// FollowRecords implements [record.Follower]. It ends where the connection is lost.
func (o *origin) FollowRecords(ctx context.Context, id spool.RunID, after spool.Seq) iter.Seq2[*record.Batch, error] {
	o.follows++
	return func(yield func(*record.Batch, error) bool) {
		for {
			events, err := o.journal.Read(nil, after, 1000)
			if err != nil {
				yield(nil, err)
				return
			}
			var b []byte
			closed := false
			for i := range events {
				if o.cut > 0 && events[i].Seq > o.cut {
					events = events[:i]
					break
				}
				if b, err = record.Append(b, &events[i]); err != nil {
					o.t.Error(err)
				}
				after, closed = events[i].Seq, events[i].Kind == spool.KindClosed
			}
			if len(events) == 0 {
				yield(nil, io.ErrUnexpectedEOF)
				return
			}
			if batch := record.NewBatch(b); !yield(&batch, nil) || closed {
				return
			}
		}
	}
}

// open opens copies, which are closed with the test.
func open(t *testing.T, o Options) *Copies {
	t.Helper()
	if o.Free == 0 {
		o.Free = -1
	}
	c, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// logOf returns the records of a log.
func logOf(t *testing.T, f record.Follower, id spool.RunID) ([]byte, error) {
	t.Helper()
	var all []byte
	for batch, err := range f.FollowRecords(t.Context(), id, 0) {
		if err != nil {
			return all, err
		}
		b, err := batch.Load()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	return all, nil
}

// wantSame checks that a copy has the events of a log up to a seq, byte for byte.
func wantSame(t *testing.T, c *Copies, o *origin, last spool.Seq) {
	t.Helper()
	s, ok := c.Of(o.info.ID)
	if !ok || s.Last != last {
		t.Fatalf("the copy is %+v, %v, and should end with event %d", s, ok, last)
	}
	got, _ := logOf(t, c.Reader("self"), o.info.ID)
	cut := o.cut
	o.cut = last
	want, _ := logOf(t, o, o.info.ID)
	o.cut = cut
	if !bytes.Equal(got, want) {
		t.Errorf("the copy has %d bytes of records, and the log %d others", len(got), len(want))
	}
}
