package client

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/spool-run/spool/internal/wire/rpc"
	"github.com/spool-run/spool/internal/wire/runproto"
)

// connection is a connection to the server with its streams of events.
type connection struct {
	rpc *rpc.Conn

	mu      sync.Mutex
	streams map[uint32]*stream // nil once the connection ended
	nextID  uint32
}

func (l *connection) alive() bool {
	select {
	case <-l.rpc.Done():
		return false
	default:
		return true
	}
}

// open makes a stream before the server is asked for it, so that nothing it
// sends comes too early.
func (l *connection) open(window int64) (*stream, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.streams == nil {
		return nil, rpc.ErrConnClosed
	}
	l.nextID++
	s := &stream{conn: l, id: l.nextID, window: window, filled: make(chan struct{}, 1)}
	l.streams[s.id] = s
	return s, nil
}

// end tells all streams that nothing more comes.
func (l *connection) end(err error) {
	l.mu.Lock()
	streams := l.streams
	l.streams = nil
	l.mu.Unlock()
	for _, s := range streams {
		s.finish(fmt.Errorf("%w: %w", rpc.ErrConnClosed, err))
	}
}

func (l *connection) stream(id uint32) *stream {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.streams[id]
}

// Request implements [rpc.Handler]: the server asks us nothing yet.
func (l *connection) Request(r *rpc.Request) {
	r.Reply(nil, rpc.Errorf(rpc.CodeMethodNotFound, "unknown method %s", r.Method))
}

// Notification implements [rpc.Handler].
func (l *connection) Notification(method string, params json.RawMessage) error {
	if method != "run/end" {
		return nil // of a later version
	}
	var p runproto.EndParams
	if err := json.Unmarshal(params, &p); err != nil {
		return fmt.Errorf("decode %s: %w", method, err)
	}
	if s := l.stream(p.Follow); s != nil {
		var err error
		if p.Error != nil {
			err = runproto.DecodeError(p.Error)
		}
		s.finish(err)
	}
	return nil
}

// Malformed implements [rpc.Handler].
func (l *connection) Malformed(err error) error { return err }

// Binary implements [rpc.BinaryHandler]: records of one follow.
func (l *connection) Binary(b []byte) error {
	if len(b) < runproto.BinaryHeader || b[0] != runproto.BinaryEvents {
		return fmt.Errorf("binary message of unknown type")
	}
	if s := l.stream(binary.LittleEndian.Uint32(b[1:])); s != nil {
		s.push(b)
	}
	return nil
}

// stream is the receiving end of a follow. What waits in it is bounded by the
// window, because the server stops there until we acknowledge.
type stream struct {
	conn   *connection
	id     uint32
	window int64
	unread int64 // consumed but not acknowledged; used by the reader only

	mu     sync.Mutex
	frames [][]byte // whole messages
	ended  bool
	err    error
	filled chan struct{} // has room for one; filled when there is news
}

func (s *stream) push(frame []byte) {
	s.mu.Lock()
	s.frames = append(s.frames, frame)
	s.mu.Unlock()
	s.wake()
}

func (s *stream) finish(err error) {
	s.mu.Lock()
	if !s.ended {
		s.ended, s.err = true, err
	}
	s.mu.Unlock()
	s.wake()
}

func (s *stream) wake() {
	select {
	case s.filled <- struct{}{}:
	default:
	}
}

// next returns the frames that came, waiting for some. ok is false once the
// stream ended and all was returned.
func (s *stream) next(ctx context.Context) (frames [][]byte, ok bool, err error) {
	for {
		s.mu.Lock()
		frames, s.frames = s.frames, nil
		ended, err := s.ended, s.err
		s.mu.Unlock()
		if len(frames) > 0 {
			return frames, true, nil
		}
		if ended {
			return nil, false, err
		}
		select {
		case <-s.filled:
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		}
	}
}

// consumed makes room for as many bytes of events, now and then.
func (s *stream) consumed(n int64) {
	s.unread += n
	if s.unread < s.window/4 {
		return
	}
	_ = s.conn.rpc.Notify("run/ack", runproto.AckParams{Follow: s.id, Bytes: s.unread}) // a lost connection ends the stream
	s.unread = 0
}

// close forgets the stream and lets the server forget it too.
func (s *stream) close() {
	s.conn.mu.Lock()
	delete(s.conn.streams, s.id)
	s.conn.mu.Unlock()
	s.mu.Lock()
	over := s.ended
	s.mu.Unlock()
	if !over {
		_ = s.conn.rpc.Notify("run/unfollow", runproto.UnfollowParams{Follow: s.id}) // a lost connection has forgotten it
	}
}
