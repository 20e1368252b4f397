package meter

import "github.com/spool-run/spool"

// tail keeps the last bytes of the output beyond the limit, and which stream
// each came from, in order. It counts the bytes it had to drop.
type tail struct {
	max     int    // bytes to keep
	ring    []byte // of max bytes, once there is any output for it
	start   int
	n       int
	pieces  []piece
	dropped map[spool.Stream]int64
}

// piece is a stretch of the ring that came from one stream.
type piece struct {
	stream spool.Stream
	n      int
}

// write keeps b, at the expense of what came before it.
func (t *tail) write(stream spool.Stream, b []byte) {
	if over := len(b) - t.max; over > 0 {
		t.drop(stream, over)
		b = b[over:]
		t.forget(t.n)
	} else if over := t.n + len(b) - t.max; over > 0 {
		t.forget(over)
	}
	if len(b) == 0 {
		return
	}
	if t.ring == nil {
		t.ring = make([]byte, t.max)
	}
	end := (t.start + t.n) % t.max
	copy(t.ring, b[copy(t.ring[end:], b):])
	t.n += len(b)
	if k := len(t.pieces); k > 0 && t.pieces[k-1].stream == stream {
		t.pieces[k-1].n += len(b)
	} else {
		t.pieces = append(t.pieces, piece{stream, len(b)})
	}
}

// drop counts bytes that are not logged.
func (t *tail) drop(stream spool.Stream, n int) {
	if t.dropped == nil {
		t.dropped = make(map[spool.Stream]int64)
	}
	t.dropped[stream] += int64(n)
}

// forget drops the oldest n bytes that were kept.
func (t *tail) forget(n int) {
	for n > 0 {
		p := &t.pieces[0]
		k := min(n, p.n)
		t.drop(p.stream, k)
		if p.n -= k; p.n == 0 {
			t.pieces = t.pieces[1:]
		}
		t.start = (t.start + k) % t.max
		t.n -= k
		n -= k
	}
}

// next takes out up to limit of the oldest kept bytes, all of one stream. It
// returns nil when there are none.
func (t *tail) next(limit int) (spool.Stream, []byte) {
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
	t.start = (t.start + len(b)) % t.max
	t.n -= len(b)
	return stream, b
}
