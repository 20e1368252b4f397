package rpc

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"syscall"
)

// Frames returns a transport for a stream between processes of one machine:
// each message is its length in four little-endian bytes and then itself. The
// highest bit of the length marks a binary one. There is no handshake.
func Frames(c io.ReadWriteCloser, name string) Transport {
	return &frames{conn: c, r: bufio.NewReaderSize(c, 16<<10), name: name}
}

type frames struct {
	conn io.ReadWriteCloser
	r    *bufio.Reader
	name string

	mu  sync.Mutex
	out []byte
}

const (
	frameHeader = 4
	frameBinary = 1 << 31
	// keptOut is how large the write buffer may stay between messages.
	keptOut = 64 << 10
	// maxTry is the largest message that is worth a try: with its length it is
	// what a pipe takes whole or not at all.
	maxTry = 4<<10 - frameHeader
)

func (f *frames) Read(context.Context) ([]byte, bool, error) {
	head, err := f.r.Peek(frameHeader)
	if err != nil {
		return nil, false, err
	}
	n := binary.LittleEndian.Uint32(head)
	isBinary := n&frameBinary != 0
	if n &^= frameBinary; n > MaxMessage {
		return nil, false, fmt.Errorf("message of %d bytes exceeds %d", n, MaxMessage)
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

func (f *frames) more() bool { return f.r.Buffered() > 0 }

func (f *frames) Write(_ context.Context, binaryMessage bool, parts ...[]byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.frame(binaryMessage, parts...)
	_, err := f.conn.Write(f.out)
	if cap(f.out) > keptOut {
		f.out = nil
	}
	return err
}

// frame makes f.out a message. Callers hold f.mu.
func (f *frames) frame(binaryMessage bool, parts ...[]byte) {
	f.out = append(f.out[:0], 0, 0, 0, 0)
	for _, p := range parts {
		f.out = append(f.out, p...)
	}
	n := uint32(len(f.out) - frameHeader)
	if binaryMessage {
		n |= frameBinary
	}
	binary.LittleEndian.PutUint32(f.out, n)
}

// tryWrite writes a message if nobody else is writing and the peer has room
// for it.
func (f *frames) tryWrite(binaryMessage bool, b []byte) bool {
	sc, ok := f.conn.(syscall.Conn)
	if !ok || len(b) > maxTry || !f.mu.TryLock() {
		return false
	}
	defer f.mu.Unlock()
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	f.frame(binaryMessage, b)
	var n int
	if err := raw.Write(func(fd uintptr) bool {
		n, err = syscall.Write(int(fd), f.out)
		return true // once
	}); err != nil || n <= 0 {
		return false
	}
	if n < len(f.out) { // which the kernel does not do to so little
		_ = f.conn.Close()
	}
	return true
}

func (f *frames) Ping(context.Context) error { return nil }
func (f *frames) Close() error               { return f.conn.Close() }
func (f *frames) String() string             { return f.name }
