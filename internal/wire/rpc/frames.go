package rpc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
)

// Payload is what a message carries. Its bytes need not be in memory while the
// peer has no room for them.
type Payload interface {
	// Size is the number of bytes.
	Size() int
	// Load returns the bytes, the same each time. They are valid until Pause or
	// Drop.
	Load() ([]byte, error)
	// Pause is called before a wait, after which Load is called again. A payload
	// that fails to load then ends the message, so it may keep its bytes.
	Pause()
	// Drop gives the bytes back.
	Drop()
}

// ErrUnsent is wrapped by the error of [Conn.SendPayload] if the payload could not be
// loaded and no part of the message was sent. The connection goes on.
var ErrUnsent = errors.New("the message was not sent")

// Bytes is a payload in memory.
type Bytes []byte

// Size implements [Payload].
func (b Bytes) Size() int { return len(b) }

// Load implements [Payload].
func (b Bytes) Load() ([]byte, error) { return b, nil }

// Pause implements [Payload].
func (b Bytes) Pause() {}

// Drop implements [Payload].
func (b Bytes) Drop() {}

// PayloadConn is a network connection that writes payloads.
type PayloadConn interface {
	net.Conn
	// WritePayload writes head and the payload, and drops it. While it waits for
	// the peer it has paused the payload, if the connection allows that.
	WritePayload(head []byte, p Payload) error
}

// Frames is a server's end of a WebSocket connection. It writes the frames of
// messages itself: each with one system call if the peer has room, and without a
// copy. The websocket package, which has a Frames for its connection, writes only
// control frames, each with one call of Write.
type Frames struct {
	PayloadConn

	mu      sync.Mutex
	writing bool
	control []byte     // frames that follow the one that is being written
	idle    *sync.Cond // writing became false
}

// maxControl is how many bytes of control frames wait for a frame that is being
// written. A peer that pings more often without reading is cut off.
const maxControl = 4 << 10

// ControlBytes is the largest size of a control frame of a server.
const ControlBytes = 2 + 125

var errControl = errors.New("too many control frames wait for a peer that does not read")

// NewFrames returns the frames of a connection.
func NewFrames(c PayloadConn) *Frames {
	f := &Frames{PayloadConn: c}
	f.idle = sync.NewCond(&f.mu)
	return f
}

// Write writes a control frame, or has it follow the frame that is being written.
func (f *Frames) Write(p []byte) (int, error) {
	f.mu.Lock()
	if f.writing {
		defer f.mu.Unlock()
		if len(f.control)+len(p) > maxControl {
			return 0, errControl
		}
		f.control = append(f.control, p...)
		return len(p), nil
	}
	f.writing = true
	f.mu.Unlock()
	n, err := f.PayloadConn.Write(p)
	return n, errors.Join(err, f.end())
}

// end writes the control frames that wait, and lets the next frame be written.
func (f *Frames) end() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var err error
	for len(f.control) > 0 && err == nil {
		waiting := f.control
		f.control = nil
		f.mu.Unlock()
		_, err = f.PayloadConn.Write(waiting)
		f.mu.Lock()
	}
	f.writing = false
	f.idle.Signal()
	return err
}

// The bits of the first two bytes of a frame.
const (
	frameFinal  = 0x80
	frameText   = 1
	frameBinary = 2
	frame16     = 126 // the length follows in two bytes
	frame64     = 127 // the length follows in eight bytes
)

// frameRoom is the room for the head of a frame and of the message in it.
const frameRoom = 32

// appendFrameHead appends the head of a frame with a payload of size bytes.
func appendFrameHead(dst []byte, bits byte, size int) []byte {
	dst = append(dst, bits)
	switch {
	case size < frame16:
		return append(dst, byte(size))
	case size < 1<<16:
		return binary.BigEndian.AppendUint16(append(dst, frame16), uint16(size))
	}
	return binary.BigEndian.AppendUint64(append(dst, frame64), uint64(size))
}

// write writes one frame. The first bytes of its payload are prefix.
func (f *Frames) write(bits byte, prefix []byte, p Payload) error {
	head := appendFrameHead(make([]byte, 0, frameRoom), bits, len(prefix)+p.Size())
	f.mu.Lock()
	for f.writing {
		p.Pause()
		f.idle.Wait()
	}
	f.writing = true
	f.mu.Unlock()
	if _, err := p.Load(); err != nil {
		p.Drop()
		if ended := f.end(); ended != nil {
			return ended
		}
		return fmt.Errorf("%w: %w", ErrUnsent, err)
	}
	err := f.WritePayload(append(head, prefix...), p)
	return errors.Join(err, f.end())
}

// tryWriter is a [PayloadConn] that can write without waiting for the peer.
type tryWriter interface {
	// TryWrite writes what the peer has room for, and returns how much. An error is that
	// of the next Write.
	TryWrite(p []byte) int
}

// tryMessage writes a text message if no other is being written, and the peer has room for its
// beginning, and reports whether it did. If the peer has no room for the end, later is to
// call a function that writes it on another goroutine.
func (f *Frames) tryMessage(b []byte, later func(func())) bool {
	t, ok := f.PayloadConn.(tryWriter)
	if !ok || len(b) > maxTry {
		return false
	}
	f.mu.Lock()
	if f.writing {
		f.mu.Unlock()
		return false
	}
	f.writing = true
	f.mu.Unlock()
	frame := append(appendFrameHead(make([]byte, 0, frameRoom+len(b)), frameFinal|frameText, len(b)), b...)
	n := t.TryWrite(frame)
	if partly := n > 0 && n < len(frame); partly || !f.tryEnd() {
		later(func() {
			var err error
			if partly {
				_, err = f.PayloadConn.Write(frame[n:])
			}
			if errors.Join(err, f.end()) != nil {
				_ = f.Close()
			}
		})
	}
	return n > 0
}

// tryEnd is end that does not wait. It reports false if control frames are to be written.
func (f *Frames) tryEnd() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.control) > 0 {
		return false
	}
	f.writing = false
	f.idle.Signal()
	return true
}

// maxTry is the largest message that is written without waiting: a larger one is rarely
// worth the copy.
const maxTry = 4 << 10

// message writes the parts as one message: in one frame if there is one part, and
// it is not too large, else in one frame for each part of them and an empty one.
func (f *Frames) message(isBinary bool, parts ...[]byte) error {
	op := byte(frameText)
	if isBinary {
		op = frameBinary
	}
	if len(parts) == 1 && len(parts[0]) <= frameBytes {
		return f.write(frameFinal|op, nil, Bytes(parts[0]))
	}
	for _, p := range parts {
		for len(p) > 0 {
			n := min(len(p), frameBytes)
			if err := f.write(op, nil, Bytes(p[:n])); err != nil {
				return err
			}
			p, op = p[n:], 0
		}
	}
	return f.write(frameFinal|op, nil, Bytes(nil))
}
