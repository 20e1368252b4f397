// Package tail keeps the end of output that is longer than its limit.
package tail

import "github.com/spool-run/spool"

// Tail keeps the last bytes of the output beyond the limit, and which stream
// each came from, in order. It counts what it had to drop.
type Tail struct {
	Max     int    // bytes to keep
	ring    []byte // of Max bytes, once there is any output for it
	start   int
	n       int
	pieces  []piece
	Dropped map[spool.Stream]int64
}

// piece is a stretch of the ring that came from one stream.
type piece struct {
	stream spool.Stream
	n      int
}

// Write keeps b, at the expense of what came before it.
func (t *Tail) Write(stream spool.Stream, b []byte) {
	if over := len(b) - t.Max; over > 0 {
		t.Drop(stream, over)
		b = b[over:]
		t.forget(t.n)
	} else if over := t.n + len(b) - t.Max; over > 0 {
		t.forget(over)
	}
	if len(b) == 0 {
		return
	}
	if t.ring == nil {
		t.ring = make([]byte, t.Max)
	}
	end := (t.start + t.n) % t.Max
	copy(t.ring, b[copy(t.ring[end:], b):])
	t.n += len(b)
	if k := len(t.pieces); k > 0 && t.pieces[k-1].stream == stream {
		t.pieces[k-1].n += len(b)
	} else {
		t.pieces = append(t.pieces, piece{stream, len(b)})
	}
}

// Drop counts bytes that nobody will see.
func (t *Tail) Drop(stream spool.Stream, n int) {
	if t.Dropped == nil {
		t.Dropped = make(map[spool.Stream]int64)
	}
	t.Dropped[stream] += int64(n)
}

// forget drops the oldest n bytes that were kept.
func (t *Tail) forget(n int) {
	for n > 0 {
		p := &t.pieces[0]
		k := min(n, p.n)
		t.Drop(p.stream, k)
		if p.n -= k; p.n == 0 {
			t.pieces = t.pieces[1:]
		}
		t.start = (t.start + k) % t.Max
		t.n -= k
		n -= k
	}
}

// Next takes out up to limit of the oldest kept bytes, all of one stream. It
// returns nil when there are none.
func (t *Tail) Next(limit int) (spool.Stream, []byte) {
	if len(t.pieces) == 0 {
		return "", nil
	}
	p := &t.pieces[0]
	stream := p.stream
	b := make([]byte, min(limit, p.n))
	copy(b[copy(b, t.ring[t.start:]):], t.ring)
	if p.n -= len(b); p.n == 0 {
		t.pieces = t.pieces[1:]
	}
	t.start = (t.start + len(b)) % t.Max
	t.n -= len(b)
	return stream, b
}

// Reset forgets everything, as if nothing had been written.
func (t *Tail) Reset() { *t = Tail{Max: t.Max} }
