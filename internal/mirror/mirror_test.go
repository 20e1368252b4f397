package mirror

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
)

// TestCopyIsTheLog copies a log over connections that are lost, and by processes that end.
// The copy has the same records, and in the end the same description.
func TestCopyIsTheLog(t *testing.T) {
	o, dir := newOrigin(t, "r"), t.TempDir()
	o.print(100, "one ")
	for _, cut := range []spool.Seq{7, 7, 40, 99} {
		c := open(t, Options{Dir: dir})
		o.cut = cut
		if err := c.Copy(t.Context(), "r", here, o); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("after %d: %v", cut, err)
		}
		wantSame(t, c, o, cut)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	o.end()
	o.cut = 0
	c := open(t, Options{Dir: dir})
	before := o.follows
	for range 2 { // a complete copy is not copied again
		if err := c.Copy(t.Context(), "r", here, o); err != nil {
			t.Fatal(err)
		}
	}
	if n := o.follows - before; n != 1 {
		t.Errorf("the log was followed %d times", n)
	}
	_ = c.Close()
	c = open(t, Options{Dir: dir})
	wantSame(t, c, o, 101)
	info, err := c.Reader("self").Stat(t.Context(), "r")
	if err != nil || info.State != spool.StateClosed || info.Outcome == nil || info.Node != "n1" || info.Mirror.Node != "self" || info.Mirror.Last != 101 {
		t.Errorf("the copy is described as %+v, %v", info, err)
	}
	for range c.Reader("self").List(t.Context(), spool.Filter{}) {
		t.Error("a copy is listed as a run")
	}
	if err := c.Remove("r"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Reader("self").Stat(t.Context(), "r"); !errors.Is(err, spool.ErrNotFound) || c.Bytes() != 0 {
		t.Errorf("after its removal: %v, %d bytes", err, c.Bytes())
	}
}

// TestCopyEndsWithTheClosedEvent loses the connection between the last event and the
// description of the end.
func TestCopyEndsWithTheClosedEvent(t *testing.T) {
	o := newOrigin(t, "r")
	o.print(3, "x")
	o.end()
	c := open(t, Options{Dir: t.TempDir()})
	cp, err := c.begin(here, o.info)
	if err != nil {
		t.Fatal(err)
	}
	all, err := logOf(t, o, "r")
	if err == nil {
		err = cp.journal.AppendRecords(all)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Copy(t.Context(), "r", here, o); err != nil {
		t.Fatal(err)
	}
	if s, _ := c.Of("r"); !s.Complete || s.Last != 4 {
		t.Errorf("the copy is %+v", s)
	}
}

// TestCopyThatDiffers copies from a machine that lost the end of its log when it died, and
// wrote another one: its log is the truth.
func TestCopyThatDiffers(t *testing.T) {
	for _, tt := range []struct {
		what   string
		change func(before *origin) *origin
	}{
		{"another event at the end", func(*origin) *origin {
			o := newOrigin(t, "r")
			o.print(9, "one ")
			o.print(10, "other ")
			o.end()
			return o
		}},
		{"fewer events", func(*origin) *origin {
			o := newOrigin(t, "r")
			o.print(5, "one ")
			o.end()
			return o
		}},
		{"another run of that id", func(*origin) *origin {
			o := newOrigin(t, "r")
			o.info.Created = o.info.Created.Add(time.Hour)
			err := o.journal.Discard()
			if err == nil {
				o.journal, err = o.store.Create(o.info)
			}
			if err != nil {
				t.Fatal(err)
			}
			o.print(20, "one ")
			o.end()
			return o
		}},
	} {
		o := newOrigin(t, "r")
		o.print(10, "one ")
		c := open(t, Options{Dir: t.TempDir()})
		if err := c.Copy(t.Context(), "r", here, o); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatal(err)
		}
		after := tt.change(o)
		err := c.Copy(t.Context(), "r", here, after)
		if errors.Is(err, errDiffers) {
			err = c.Copy(t.Context(), "r", here, after)
		}
		if err != nil {
			t.Fatalf("%s: %v", tt.what, err)
		}
		last, _ := after.journal.Last()
		wantSame(t, c, after, last)
	}
}

// TestGaps copies a log of which a part is gone: the copy tells of the same gap.
func TestGaps(t *testing.T) {
	o := newOrigin(t, "r")
	o.print(200, "one ")
	segs, err := os.ReadDir(o.store.Dir() + "/runs")
	if err != nil || len(segs) < 4 {
		t.Fatal(len(segs), err)
	}
	for _, s := range segs[1:3] {
		if err := os.Remove(o.store.Dir() + "/runs/" + s.Name()); err != nil {
			t.Fatal(err)
		}
	}
	o.end()
	c := open(t, Options{Dir: t.TempDir()})
	o.cut = 120
	if err := c.Copy(t.Context(), "r", here, o); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	o.cut = 0
	if err := c.Copy(t.Context(), "r", here, o); err != nil {
		t.Fatal(err)
	}
	gapOf := func(events []spool.Event, err error) (gap spool.Truncation) {
		t.Helper()
		for _, e := range events {
			if e.Kind == spool.KindTruncated {
				err = errors.Join(err, json.Unmarshal(e.Data, &gap))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		return gap
	}
	want := gapOf(o.journal.Read(nil, 0, 1<<20))
	page, err := c.Reader("self").Read(t.Context(), "r", spool.Query{MaxBytes: 1 << 20})
	if got := gapOf(page.Events, err); got.From != want.From || got.To != want.To || got.From == 0 {
		t.Errorf("the gap is %+v, and that of the log %+v", got, want)
	}
}

// TestReader reads a copy that is not complete.
func TestReader(t *testing.T) {
	o := newOrigin(t, "r")
	o.print(50, "one ")
	c := open(t, Options{Dir: t.TempDir()})
	if err := c.Copy(t.Context(), "r", here, o); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	c.Hear("r", 60)
	c.Hear("r", 55)
	r := c.Reader("self")
	info, err := r.Stat(t.Context(), "r")
	if err != nil || info.Last != 60 || info.Mirror.Last != 50 || info.State != spool.StateRunning {
		t.Errorf("it is %+v, %v", info, err)
	}
	if _, err := logOf(t, r, "r"); !errors.Is(err, spool.ErrLost) {
		t.Errorf("its records end with %v", err)
	}
	n := spool.Seq(0)
	for e, err := range r.Follow(t.Context(), "r", 10) {
		if err != nil {
			if !errors.Is(err, spool.ErrLost) {
				t.Error(err)
			}
			break
		}
		if n++; e.Seq != 10+n || !strings.HasPrefix(string(e.Bytes), "one ") {
			t.Fatalf("event %+v", e)
		}
	}
	if n != 40 {
		t.Errorf("%d events after the tenth", n)
	}
	if _, err := r.Start(t.Context(), spool.Spec{}); !errors.Is(err, spool.ErrUnsupported) {
		t.Error(err)
	}
	if _, err := r.Send(t.Context(), "r", spool.Input{}); !errors.Is(err, spool.ErrUnsupported) {
		t.Error(err)
	}
	if err := r.Control(t.Context(), "r", spool.Control{}); !errors.Is(err, spool.ErrUnsupported) {
		t.Error(err)
	}
}

// TestBlobs copies the blobs that events refer to, before the events.
func TestBlobs(t *testing.T) {
	o := newOrigin(t, "r")
	content := bytes.Repeat([]byte("picture"), 1000)
	blob, err := o.store.PutBlob("image/png", bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	data, _ := json.Marshal(map[string]any{"image/png": blob})
	o.add(spool.Event{Seq: 1, Time: time.Unix(1, 0), Kind: spool.KindNotice, Data: data})
	o.add(spool.Event{Seq: 2, Time: time.Unix(1, 0), Kind: spool.KindNotice, Data: json.RawMessage(`"sha256:` + strings.Repeat("0", 64) + `"`)})
	c := open(t, Options{Dir: t.TempDir()})
	if err := c.Copy(t.Context(), "r", here, o); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	wantSame(t, c, o, 2)
	r, err := c.Reader("self").Blob(t.Context(), "r", blob.Digest)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, content) {
		t.Errorf("the blob has %d bytes, %v", len(got), err)
	}
	if c.Bytes() < int64(len(content)) {
		t.Errorf("the copies are counted as %d bytes", c.Bytes())
	}
}

// TestCopiesAreBounded fills the room for copies: complete ones give way, the oldest first,
// and one that goes on stops where there is none left.
func TestCopiesAreBounded(t *testing.T) {
	if DefaultBytes != 10<<30 || DefaultFree != 512<<20 {
		t.Errorf("by default copies have %d bytes and leave %d free", DefaultBytes, DefaultFree)
	}
	c := open(t, Options{Dir: t.TempDir(), Bytes: 4*overhead + 40<<10})
	for _, id := range []spool.RunID{"a", "b", "c"} {
		o := newOrigin(t, id)
		o.print(80, "x") // about 10 KB
		o.end()
		if err := c.Copy(t.Context(), id, here, o); err != nil {
			t.Fatal(err)
		}
	}
	o := newOrigin(t, "live")
	o.print(150, "x")
	if err := c.Copy(t.Context(), "live", here, o); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	_, a := c.Of("a")
	if _, b := c.Of("b"); a || !b {
		t.Errorf("the oldest copy is there: %v, the next: %v", a, b)
	}
	o.print(1000, "x")
	if err := c.Copy(t.Context(), "live", here, o); !errors.Is(err, ErrFull) {
		t.Errorf("a copy without room: %v", err)
	}
	s, _ := c.Of("live")
	if len(c.All()) != 1 || s.Last < 150 || c.Bytes() > c.Limit() {
		t.Errorf("there are %+v, with %d of %d bytes", c.All(), c.Bytes(), c.Limit())
	}
	wantSame(t, c, o, s.Last)

	c.opts.Free, c.free = 100, func(string) (int64, error) { return 99, nil }
	if err := c.Copy(t.Context(), "other", here, newOrigin(t, "other")); !errors.Is(err, ErrFull) {
		t.Errorf("a copy on a disk that is almost full: %v", err)
	}
	if err := c.Expire(time.Hour); err != nil || len(c.All()) != 1 {
		t.Errorf("after the age of nothing there are %d copies, %v", len(c.All()), err)
	}
	if err := c.Expire(0); err != nil || len(c.All()) != 0 || c.Bytes() != 0 {
		t.Errorf("after the age of all there are %d copies of %d bytes, %v", len(c.All()), c.Bytes(), err)
	}
}

// TestDamagedCopyIsDeleted opens copies of which one was damaged.
func TestDamagedCopyIsDeleted(t *testing.T) {
	dir := t.TempDir()
	c := open(t, Options{Dir: dir})
	for _, id := range []spool.RunID{"good", "bad"} {
		o := newOrigin(t, id)
		o.print(3, "x")
		if err := c.Copy(t.Context(), id, here, o); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatal(err)
		}
	}
	if err := errors.Join(c.Close(), os.Remove(dir+"/bad/"+sourceName)); err != nil {
		t.Fatal(err)
	}
	c = open(t, Options{Dir: dir})
	if _, ok := c.Of("good"); !ok || len(c.All()) != 1 {
		t.Errorf("there are %+v", c.All())
	}
	if _, err := os.Stat(dir + "/bad"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
