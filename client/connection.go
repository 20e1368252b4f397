package client

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/wire/rpc"
	"github.com/spool-run/spool/internal/wire/runproto"
)

// connection is a connection to the server with its streams of events.
type connection struct {
	rpc *rpc.Conn

	mu      sync.Mutex
	streams map[uint32]*stream // nil once the connection ended
	nextID  uint32
	ahead   []*stream // those that no reader has asked for yet, oldest first
	old     bool      // the server cannot send ahead
}

func (l *connection) alive() bool {
	select {
	case <-l.rpc.Done():
		return false
	default:
		return true
	}
}

// open registers a stream. It is called before the request to the server, whose
// events may arrive before its answer.
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

// end ends all streams.
func (l *connection) end(err error) {
	l.mu.Lock()
	streams := l.streams
	l.streams, l.ahead = nil, nil
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

// Request implements [rpc.Handler]. The server sends no requests.
func (l *connection) Request(r *rpc.Request) {
	r.Reply(nil, rpc.Errorf(rpc.CodeMethodNotFound, "unknown method %s", r.Method))
}

// Notification implements [rpc.Handler].
func (l *connection) Notification(method string, params json.RawMessage) error {
	if method == "run/changed" {
		var p runproto.UnfollowParams // only which watch it is of
		if err := json.Unmarshal(params, &p); err != nil {
			return fmt.Errorf("decode %s: %w", method, err)
		}
		if s := l.stream(p.Follow); s != nil {
			s.push(slices.Clone(params))
		}
		return nil
	}
	if method != "run/end" {
		return nil // a newer server may send more
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

// stream is the receiving end of a follow. The window bounds its frames: the
// server stops there until the client acknowledges some.
type stream struct {
	conn   *connection
	id     uint32
	run    spool.RunID // set while it is in connection.ahead
	window int64
	unread int64 // consumed but not acknowledged; used by the reader only

	mu     sync.Mutex
	frames [][]byte // whole messages
	ended  bool
	err    error
	filled chan struct{} // has room for one; filled when frames or the end came
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

// next waits for frames and returns them. ok is false once the stream has ended
// and all frames were returned.
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

// consumed counts n bytes of events as read, and acknowledges them once they are
// a quarter of the window.
func (s *stream) consumed(n int64) {
	s.unread += n
	if s.unread < s.window/4 {
		return
	}
	_ = s.conn.rpc.Notify("run/ack", runproto.AckParams{Follow: s.id, Bytes: s.unread}) // a lost connection ends the stream
	s.unread = 0
}

// close removes the stream and ends the follow on the server.
func (s *stream) close() {
	s.conn.mu.Lock()
	delete(s.conn.streams, s.id)
	s.conn.mu.Unlock()
	s.mu.Lock()
	over := s.ended
	s.mu.Unlock()
	if !over {
		_ = s.conn.rpc.Notify("run/unfollow", runproto.UnfollowParams{Follow: s.id}) // a lost connection has ended it
	}
}
