package execserver

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/record"
)

// filedBytes are lentBytes that are in a file, too.
type filedBytes struct {
	lentBytes
	path   string
	offset int64
}

func (f *filedBytes) File() (*os.File, int64) {
	file, err := os.Open(f.path)
	if err != nil {
		return nil, 0
	}
	return file, f.offset
}

// untilDropped waits until a write waits for its client, and holds nothing of the payload.
func untilDropped(t *testing.T, c *watchedConn, l *filedBytes, p *part) {
	t.Helper()
	polltest.Until(t, "the writer waits without the payload", func() bool {
		return c.stalledFor() > 0 && l.loads.Load() > 0 && !l.held.Load() && len(p.turns) == 0
	})
}

// A payload that is in a file is not loaded again after the client had no room, and
// arrives whole even if the file is removed meanwhile.
func TestPayloadGoesOnFromItsFile(t *testing.T) {
	want := make([]byte, 40<<20)
	for i := range want {
		want[i] = byte(i >> 12)
	}
	const before, from = 7, 100 // the batch in the file, the part in the batch
	path := filepath.Join(t.TempDir(), "records")
	if err := os.WriteFile(path, append(make([]byte, before), want...), 0o600); err != nil {
		t.Fatal(err)
	}
	c, peer := connected(t)
	l := &filedBytes{lentBytes{b: want}, path, before}
	b := record.LentBatch(l, len(want))
	p := &part{batch: &b, from: from, to: len(want), turns: make(chan struct{}, 1), account: noRoom}
	done := make(chan error, 1)
	go func() { done <- c.WritePayload([]byte("head"), p) }()
	untilDropped(t, c, l, p)
	loads := l.loads.Load()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len("head")+len(want)-from)
	if _, err := io.ReadFull(peer, got); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if string(got[:4]) != "head" || !bytes.Equal(got[4:], want[from:]) {
		t.Error("other bytes arrived")
	}
	if n := l.loads.Load(); n != loads || l.held.Load() || len(p.turns) > 0 {
		t.Errorf("loaded %d times, and %d times before the client read; held %v", n, loads, l.held.Load())
	}
}

// What may not wait takes no part in the wait of another goroutine for the same client.
func TestTryWriteDoesNotWait(t *testing.T) {
	c, peer := connected(t)
	if n := c.TryWrite([]byte("all")); n != 3 {
		t.Fatalf("%d bytes were written", n)
	}
	fill := make([]byte, 1<<20)
	for c.TryWrite(fill) > 0 {
	}
	ready := make(chan struct{})
	go func() { c.ready(); close(ready) }()
	polltest.Until(t, "a goroutine waits for the client", func() bool { return c.stalledFor() > 0 })
	for range 100 {
		if n := c.TryWrite([]byte("more")); n != 0 {
			t.Fatalf("%d bytes were written to a client without room", n)
		}
	}
	go func() { _, _ = io.Copy(io.Discard, peer) }()
	<-ready
}

// A file that has become too short ends the message with an error.
func TestPayloadWhoseFileIsShort(t *testing.T) {
	path := filepath.Join(t.TempDir(), "records")
	if err := os.WriteFile(path, make([]byte, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	c, peer := connected(t)
	l := &filedBytes{lentBytes{b: make([]byte, 40<<20)}, path, 0}
	b := record.LentBatch(l, len(l.b))
	p := &part{batch: &b, to: len(l.b), turns: make(chan struct{}, 1), account: noRoom}
	done := make(chan error, 1)
	go func() { done <- c.WritePayload(nil, p) }()
	untilDropped(t, c, l, p)
	go func() { _, _ = io.Copy(io.Discard, peer) }()
	if err := <-done; err == nil {
		t.Error("the message was completed")
	}
	if l.held.Load() || len(p.turns) > 0 {
		t.Errorf("held %v, turns %d", l.held.Load(), len(p.turns))
	}
}
