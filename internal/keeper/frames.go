package keeper

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"runtime"
	"sync"
	"syscall"

	"github.com/spool-run/spool/internal/wire/rpc"
)

// frames is an [rpc.Transport] over a byte stream between two processes of one
// machine. A message is its length in four little-endian bytes, then its bytes.
// The highest bit of the length marks a binary message. There is no handshake.
type frames struct {
	stream io.ReadWriteCloser
	r      *bufio.Reader
	name   string

	mu  sync.Mutex
	out []byte // the message being written

	soonMu   sync.Mutex
	soon     []byte // messages that a goroutine, flush, writes together
	flushing bool   // it runs
	ended    bool
	flushes  sync.WaitGroup
}

const (
	frameHeader = 4
	frameBinary = 1 << 31
	// keptOut is the largest write buffer that is kept between messages.
	keptOut = 64 << 10
	// maxTry is the largest message that tryWrite writes. With its header it
	// is as large as a pipe accepts whole or not at all.
	maxTry = 4<<10 - frameHeader
	// maxSoon is how many bytes of messages wait for a write at the most.
	maxSoon = keptOut
)

func newFrames(stream io.ReadWriteCloser, name string) *frames {
	return &frames{stream: stream, r: bufio.NewReaderSize(stream, 16<<10), name: name}
}

// Read implements [rpc.Transport].
func (f *frames) Read(context.Context) ([]byte, bool, error) {
	head, err := f.r.Peek(frameHeader)
	if err != nil {
		return nil, false, err
	}
	n := binary.LittleEndian.Uint32(head)
	isBinary := n&frameBinary != 0
	if n &^= frameBinary; n > rpc.MaxMessage {
		return nil, false, fmt.Errorf("message of %d bytes exceeds %d", n, rpc.MaxMessage)
	}
	if _, err := f.r.Discard(frameHeader); err != nil {
		return nil, false, err
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(f.r, b); err != nil {
		return nil, false, err
	}
	return b, isBinary, nil
}

// pending reports whether at least a part of a further message has been read.
func (f *frames) pending() bool { return f.r.Buffered() > 0 }

// Write implements [rpc.Transport].
func (f *frames) Write(_ context.Context, isBinary bool, parts ...[]byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.out = appendFrame(f.out[:0], isBinary, parts...)
	_, err := f.stream.Write(f.out)
	if cap(f.out) > keptOut {
		f.out = nil
	}
	return err
}

// appendFrame appends a message.
func appendFrame(dst []byte, isBinary bool, parts ...[]byte) []byte {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	for _, p := range parts {
		dst = append(dst, p...)
	}
	n := uint32(len(dst) - at - frameHeader)
	if isBinary {
		n |= frameBinary
	}
	binary.LittleEndian.PutUint32(dst[at:], n)
	return dst
}

// writeSoon has a goroutine write a message, together with those that others give
// meanwhile, and does not wait for that. It reports false, and the message is not
// written, if the peer does not take what it was given before, or the connection ended.
func (f *frames) writeSoon(isBinary bool, b []byte) bool {
	f.soonMu.Lock()
	defer f.soonMu.Unlock()
	if f.ended || len(f.soon)+len(b)+frameHeader > maxSoon {
		return false
	}
	f.soon = appendFrame(f.soon, isBinary, b)
	if !f.flushing {
		f.flushing = true
		f.flushes.Go(f.flush)
	}
	return true
}

// flush writes messages until there are none. A failed write ends the connection.
func (f *frames) flush() {
	for {
		runtime.Gosched() // those who can run now may have something to say, too
		f.mu.Lock()
		f.soonMu.Lock()
		if f.flushing = len(f.soon) > 0; !f.flushing {
			f.soonMu.Unlock()
			f.mu.Unlock()
			return
		}
		f.out, f.soon = f.soon, f.out[:0]
		f.soonMu.Unlock()
		if _, err := f.stream.Write(f.out); err != nil {
			_ = f.stream.Close()
		}
		f.mu.Unlock()
	}
}

// end waits for the messages of writeSoon, which ends with a connection that is closed.
func (f *frames) end() {
	f.soonMu.Lock()
	f.ended = true
	f.soonMu.Unlock()
	f.flushes.Wait()
}

// tryWrite writes a message if it can do so without waiting: no other goroutine
// is writing and the stream has room. It reports whether it wrote the message.
func (f *frames) tryWrite(isBinary bool, b []byte) bool {
	sc, ok := f.stream.(syscall.Conn)
	if !ok || len(b) > maxTry || !f.mu.TryLock() {
		return false
	}
	defer f.mu.Unlock()
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	f.out = appendFrame(f.out[:0], isBinary, b)
	var n int
	if err := raw.Write(func(fd uintptr) bool {
		n, err = syscall.Write(int(fd), f.out)
		return true // do not wait for room
	}); err != nil || n <= 0 {
		return false
	}
	if n < len(f.out) { // the kernel does not split so small a write
		_ = f.stream.Close()
	}
	return true
}

// Ping implements [rpc.Transport]. The kernel reports a peer that is gone.
func (f *frames) Ping(context.Context) error { return nil }

// Close implements [rpc.Transport].
func (f *frames) Close() error { return f.stream.Close() }

func (f *frames) String() string { return f.name }
