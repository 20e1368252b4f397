package runfile

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
)

// logBackend is a backend with one finished run, which is all that Write uses.
type logBackend struct {
	info   spool.Info
	events []spool.Event
	blobs  map[spool.Digest][]byte
}

func (b *logBackend) Start(context.Context, spool.Spec) (spool.Info, error) {
	return spool.Info{}, spool.ErrUnsupported
}
func (b *logBackend) Stat(context.Context, spool.RunID) (spool.Info, error) { return b.info, nil }
func (b *logBackend) List(context.Context, spool.Filter) iter.Seq2[spool.Info, error] {
	return func(func(spool.Info, error) bool) {}
}
func (b *logBackend) Read(_ context.Context, _ spool.RunID, q spool.Query) (spool.Page, error) {
	for i, e := range b.events {
		if e.Seq > q.After {
			return spool.Page{Events: b.events[i : i+1], Next: e.Seq, Info: b.info}, nil
		}
	}
	return spool.Page{Next: q.After, Info: b.info}, nil
}
func (b *logBackend) Follow(context.Context, spool.RunID, spool.Seq) iter.Seq2[spool.Event, error] {
	return func(func(spool.Event, error) bool) {}
}
func (b *logBackend) Send(context.Context, spool.RunID, spool.Input) (spool.Receipt, error) {
	return spool.Receipt{}, spool.ErrEnded
}
func (b *logBackend) Control(context.Context, spool.RunID, spool.Control) error {
	return spool.ErrEnded
}
func (b *logBackend) Blob(_ context.Context, _ spool.RunID, d spool.Digest) (io.ReadCloser, error) {
	content, ok := b.blobs[d]
	if !ok {
		return nil, spool.ErrNotFound
	}
	return io.NopCloser(bytes.NewReader(content)), nil
}

// collected is a sink that keeps all.
type collected struct {
	spec   spool.Spec
	info   spool.Info
	events []spool.Event
	blobs  map[spool.Digest]int
}

func (c *collected) Begin(spec spool.Spec, info spool.Info) error {
	c.spec, c.info, c.blobs = spec, info, make(map[spool.Digest]int)
	return nil
}
func (c *collected) Event(e *spool.Event) error {
	kept := *e
	kept.Bytes, kept.Data = bytes.Clone(e.Bytes), bytes.Clone(e.Data)
	c.events = append(c.events, kept)
	return nil
}
func (c *collected) Blob(d spool.Digest, r io.Reader) error {
	b, err := io.ReadAll(r)
	c.blobs[d] = len(b)
	return err
}

// someRun returns a run with output, two blobs and a gap.
func someRun(outputs, blobSize int) *logBackend {
	b := &logBackend{blobs: make(map[spool.Digest][]byte)}
	at := time.Date(2026, 11, 15, 1, 2, 3, 0, time.UTC)
	add := func(e spool.Event) {
		e.Run, e.Time = "abc", at
		if e.Seq == 0 {
			e.Seq = 1
			if n := len(b.events); n > 0 {
				e.Seq = b.events[n-1].Seq + 1
			}
		}
		b.events = append(b.events, e)
	}
	for i := range outputs {
		add(spool.Event{Kind: spool.KindOutput, Stream: spool.Stdout, Bytes: bytes.Repeat([]byte{byte(i)}, 1000)})
	}
	last := b.events[len(b.events)-1].Seq
	add(spool.Event{Seq: last + 7, Kind: spool.KindTruncated, Data: fmt.Appendf(nil, `{"from":%d,"to":%d}`, last+1, last+7)})
	for i := range 2 {
		content := bytes.Repeat([]byte{byte(i), 7}, blobSize/2)
		sum := sha256.Sum256(content)
		d := spool.Digest("sha256:" + hex.EncodeToString(sum[:]))
		b.blobs[d] = content
		add(spool.Event{Kind: "display", Turn: 3, Data: fmt.Appendf(nil, `{"image/png":{"blob":"%s","size_bytes":%d}}`, d, len(content))})
	}
	add(spool.Event{Kind: spool.KindNotice, Data: []byte(`{"code":"x","text":"sha256:` + strings.Repeat("0", 64) + `"}`)})
	add(spool.Outcome{Kind: spool.Exited}.Event())
	add(spool.Event{Kind: spool.KindClosed})
	b.info = spool.Info{
		ID: "abc", Name: "plots", Engine: "kernel", Argv: []string{"x"}, Cwd: "/tmp", Created: at, Ended: at,
		State: spool.StateClosed, Outcome: &spool.Outcome{Kind: spool.Exited}, Last: b.events[len(b.events)-1].Seq,
	}
	return b
}

func written(t testing.TB, b *logBackend) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := Write(t.Context(), &out, spool.Attach(b, "abc"), "test"); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestRoundTrip(t *testing.T) {
	b := someRun(300, 3<<20)
	file := written(t, b)
	var got collected
	if err := Read(bytes.NewReader(file), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b.info, got.info); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(b.events, got.events, cmp.Comparer(bytes.Equal)); diff != "" {
		t.Error(diff)
	}
	if got.spec.Name != "plots" || got.spec.Engine != "kernel" {
		t.Errorf("spec %+v", got.spec)
	}
	if len(got.blobs) != 2 {
		t.Errorf("blobs %v", got.blobs)
	}
}

func TestLiveRunIsRefused(t *testing.T) {
	b := someRun(1, 2)
	b.info.State = spool.StateRunning
	if err := Write(t.Context(), io.Discard, spool.Attach(b, "abc"), ""); !errors.Is(err, spool.ErrBusy) {
		t.Errorf("write a live run: %v", err)
	}
}

// Every byte of a file counts: if any one is changed or the file is cut
// anywhere, Read says so. Of the payloads it tries some.
func TestDamage(t *testing.T) {
	file := written(t, someRun(2, 100))
	for i := 0; i < len(file); i++ {
		if bytes.Equal(file[max(0, i-20):i], bytes.Repeat(file[i:i+1], min(i, 20))) && i%50 != 0 {
			continue // within equal bytes
		}
		damaged := bytes.Clone(file)
		damaged[i] ^= 0x20
		if err := Read(bytes.NewReader(damaged), &collected{}); !errors.Is(err, ErrDamaged) && !errors.Is(err, spool.ErrUnsupported) {
			t.Fatalf("byte %d of %d changed: %v", i, len(file), err)
		}
		if err := Read(bytes.NewReader(file[:i]), &collected{}); !errors.Is(err, ErrDamaged) {
			t.Fatalf("cut at %d of %d: %v", i, len(file), err)
		}
	}
	if err := Read(bytes.NewReader(append(bytes.Clone(file), 0)), &collected{}); !errors.Is(err, ErrDamaged) {
		t.Errorf("a byte after the end: %v", err)
	}
}

// A section that a later version adds is skipped if its kind is a lowercase
// letter and refused otherwise; so is a later format.
func TestLaterVersions(t *testing.T) {
	insert := func(kind byte) []byte {
		a := &writer{w: new(bytes.Buffer), sum: sha256.New(), run: spool.Attach(someRun(1, 2), "abc")}
		b := someRun(1, 2)
		a.write([]byte(magic))
		a.json(kindHeader, header{Format: 1})
		a.json(kindSpec, SpecOf(&b.info))
		a.section(kind, []byte("later"))
		a.section(kindInfo, b.info.AppendJSON(nil))
		if err := a.events(t.Context(), b.info.Last); err != nil {
			t.Fatal(err)
		}
		a.json(kindEnd, trailer{Events: a.written, SHA256: hex.EncodeToString(a.sum.Sum(nil))})
		return a.w.(*bytes.Buffer).Bytes()
	}
	if err := Read(bytes.NewReader(insert('x')), &collected{}); err != nil {
		t.Errorf("a section that may be skipped: %v", err)
	}
	if err := Read(bytes.NewReader(insert('X')), &collected{}); !errors.Is(err, spool.ErrUnsupported) {
		t.Errorf("a section that may not be skipped: %v", err)
	}
	later := appendSection([]byte(magic), kindHeader, []byte(`{"format":2,"program":"spool 9"}`))
	if err := Read(bytes.NewReader(later), &collected{}); !errors.Is(err, spool.ErrUnsupported) || !strings.Contains(err.Error(), "spool 9") {
		t.Errorf("a later format: %v", err)
	}
}

// discard is a sink that keeps nothing and measures the memory in use.
type discard struct {
	calls int
	most  uint64
}

func (d *discard) Begin(spool.Spec, spool.Info) error { return nil }

func (d *discard) Event(*spool.Event) error {
	d.measure()
	return nil
}

func (d *discard) Blob(_ spool.Digest, r io.Reader) error {
	d.measure()
	if _, err := io.CopyN(io.Discard, r, 8<<20); err != nil {
		return err
	}
	d.calls = 0
	d.measure() // in the middle of the blob
	_, err := io.Copy(io.Discard, r)
	return err
}

// measure notes the memory in use at every tenth call.
func (d *discard) measure() {
	if d.calls++; d.calls%10 == 1 {
		d.most = max(d.most, heapInUse())
	}
}

// heapInUse returns the bytes of the objects that are reachable.
func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Reading a large file needs little memory.
func TestBoundedMemory(t *testing.T) {
	file := written(t, someRun(100, 16<<20))
	before := heapInUse()
	var sink discard
	if err := Read(bytes.NewReader(file), &sink); err != nil {
		t.Fatal(err)
	}
	if sink.most == 0 || sink.most > before+4<<20 {
		t.Errorf("reading %d bytes needed %d of memory beside %d", len(file), sink.most, before)
	}
	runtime.KeepAlive(file)
}

func FuzzRead(f *testing.F) {
	file := written(f, someRun(2, 100))
	f.Add(file)
	f.Add(file[:len(file)/2])
	f.Add([]byte(magic))
	f.Add(appendSection([]byte(magic), kindHeader, []byte(`{"format":1}`)))
	f.Fuzz(func(t *testing.T, b []byte) {
		var got collected
		if err := Read(bytes.NewReader(b), &got); err == nil && len(got.events) > 0 && got.events[len(got.events)-1].Seq != got.info.Last {
			t.Errorf("a log up to %d ends with %d", got.info.Last, got.events[len(got.events)-1].Seq)
		}
	})
}
