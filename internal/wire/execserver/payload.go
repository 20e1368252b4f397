package execserver

import (
	"errors"
	"os"
	"sync"
	"time"

	"github.com/spool-run/spool/internal/bulkconn"
	"github.com/spool-run/spool/internal/record"
	"github.com/spool-run/spool/internal/wire/rpc"
)

const (
	// smallMessage is the size up to which copying a message is cheaper than
	// writing it in parts.
	smallMessage = 4 << 10
	// chunkBytes is how much of a payload a connection holds that waits for its
	// client and cannot wait without it, because it encrypts.
	chunkBytes = 32 << 10
)

// messages are buffers for small messages.
var messages = sync.Pool{New: func() any { return new([smallMessage]byte) }}

// WritePayload implements [rpc.PayloadConn].
func (c *watchedConn) WritePayload(head []byte, p rpc.Payload) error {
	c.since.Store(int64(time.Since(clock)))
	defer c.since.Store(0)
	defer p.Drop()
	if len(head)+p.Size() <= smallMessage {
		b, err := p.Load()
		if err != nil {
			return err
		}
		buf := messages.Get().(*[smallMessage]byte)
		defer messages.Put(buf)
		small := append(append(buf[:0], head...), b...)
		p.Drop() // the write may wait
		_, err = c.Conn.Write(small)
		return err
	}
	if c.raw != nil && canWait {
		return c.writeParts(head, p)
	}
	if c.bulk != nil {
		return c.writeBulk(head, p)
	}
	return c.writeChunks(head, p)
}

// TryWrite writes what the client has room for, if the connection is not encrypted, and
// returns how much. It does not wait for a goroutine that is in ready either, as a write
// would.
func (c *watchedConn) TryWrite(p []byte) (n int) {
	if c.raw == nil {
		return 0
	}
	_ = c.raw.Control(func(fd uintptr) { n = tryWrite(int(fd), p) }) // it fails only if the connection has ended
	return n
}

// writeChunks writes a payload in parts, of which it holds one at a time.
func (c *watchedConn) writeChunks(head []byte, p rpc.Payload) error {
	if c.chunk == nil {
		c.chunk = make([]byte, 0, chunkBytes)
	}
	chunk, stepped := append(c.chunk[:0], head...), 0
	for sent := 0; sent < p.Size(); {
		b, err := p.Load()
		if err != nil {
			return err
		}
		n := min(cap(chunk)-len(chunk), len(b)-sent)
		chunk = append(chunk, b[sent:sent+n]...)
		p.Pause()
		sent += n
		if _, err := c.Conn.Write(chunk); err != nil {
			return err
		}
		stepped = c.progress(sent, stepped)
		chunk = chunk[:0]
	}
	return nil
}

// writeBulk writes a payload in large parts. While it waits for the client it holds only
// the encrypted bytes of one, and not the payload.
func (c *watchedConn) writeBulk(head []byte, p rpc.Payload) error {
	for sent := 0; sent < p.Size(); {
		b, err := p.Load()
		if err != nil {
			return err
		}
		n := min(bulkconn.Size+bulkconn.Size/8, len(b)-sent) // so that a batch, which is a little larger than Size, is one part
		c.bulk.Hold()
		if len(head) > 0 {
			_, err = c.Conn.Write(head)
			head = nil
		}
		if err == nil {
			_, err = c.Conn.Write(b[sent : sent+n])
		}
		p.Pause()
		if err := errors.Join(err, c.bulk.Flush()); err != nil {
			return err
		}
		sent += n
		c.since.Store(int64(time.Since(clock)))
	}
	return nil
}

// progress notes that the client has taken some of a message, up to stepped when
// progress was last noted.
func (c *watchedConn) progress(sent, stepped int) int {
	if sent-stepped < writeStep {
		return stepped
	}
	c.since.Store(int64(time.Since(clock)))
	return sent
}

// part is a part of a batch, as the payload of a message. Only so many parts are
// loaded at once as turns has room for. That is a limit of memory, not of time: a
// part is loaded while it is read or sent, but not while a client has no room.
type part struct {
	batch    *record.Batch
	from, to int
	turns    chan struct{}
	loaded   bool
	account  *rpc.Account // of the bytes of parts that wait
	counted  int64        // in account
}

// Size implements [rpc.Payload].
func (p *part) Size() int { return p.to - p.from }

// Load implements [rpc.Payload].
func (p *part) Load() ([]byte, error) {
	b, err := p.load()
	if err != nil {
		return nil, err
	}
	return b[p.from:p.to], nil
}

// File opens the file that has the bytes as they are, and returns where they begin, or
// returns nil. The part must be loaded.
func (p *part) File() (*os.File, int64) {
	f, offset := p.batch.File()
	return f, offset + int64(p.from)
}

// load returns the bytes of the whole batch.
func (p *part) load() ([]byte, error) {
	if !p.loaded {
		select {
		case p.turns <- struct{}{}:
		default:
			if p.counted == 0 {
				p.batch.Drop() // while it waits
			}
			p.turns <- struct{}{}
		}
		p.account.Add(-p.counted)
		p.loaded, p.counted = true, 0
	}
	return p.batch.Load()
}

// Pause implements [rpc.Payload]. It lets others have their turn while the client has
// no room for the rest of a message, or another message is sent. The part keeps its
// bytes if there is room: if the log is removed meanwhile, a message that has begun can
// still be completed.
func (p *part) Pause() {
	if !p.loaded {
		return
	}
	if !p.account.Try(int64(p.Size())) {
		p.Drop()
		return
	}
	p.loaded, p.counted = false, int64(p.Size())
	<-p.turns
}

// Drop implements [rpc.Payload].
func (p *part) Drop() {
	p.batch.Drop()
	p.account.Add(-p.counted)
	p.counted = 0
	if p.loaded {
		p.loaded = false
		<-p.turns
	}
}
