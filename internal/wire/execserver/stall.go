package execserver

import (
	"bufio"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spool-run/spool/internal/bulkconn"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// writeStep is the most that is written at once. A client whose connection
// takes longer than Limits.Stalled for so many bytes does not read.
const writeStep = 256 << 10

// clock is the origin of the times of a watchedConn.
var clock = time.Now()

// watchedConn is a network connection that knows since when a write waits.
type watchedConn struct {
	net.Conn
	network net.Conn        // below TLS
	raw     syscall.RawConn // of Conn; nil if it is encrypted
	bulk    *bulkconn.Conn  // below TLS; nil if it is none
	chunk   []byte          // of a payload that is being encrypted
	since   atomic.Int64    // time since clock at which the write began; zero without one
	waiting atomic.Int64    // likewise of a wait for the connection to be writable
}

func (c *watchedConn) Write(p []byte) (int, error) {
	written := 0
	for {
		c.since.Store(int64(time.Since(clock)))
		n, err := c.Conn.Write(p[:min(len(p), writeStep)])
		written += n
		p = p[n:]
		if len(p) == 0 || err != nil {
			c.since.Store(0)
			return written, err
		}
	}
}

// ready waits until the client has room, or the connection has ended. Only one
// goroutine calls it at a time.
func (c *watchedConn) ready() {
	if c == nil {
		return
	}
	c.waiting.Store(int64(time.Since(clock)))
	waitWritable(c.network)
	c.waiting.Store(0)
}

// stalledFor returns how long the present write, or wait, has lasted.
func (c *watchedConn) stalledFor() time.Duration {
	var longest time.Duration
	for _, since := range []int64{c.since.Load(), c.waiting.Load()} {
		if since != 0 {
			longest = max(longest, time.Since(clock)-time.Duration(since))
		}
	}
	return longest
}

// hijacker is a ResponseWriter that gives its connection as a watchedConn.
type hijacker struct {
	http.ResponseWriter
	conn   *watchedConn // set by Hijack
	frames *rpc.Frames  // likewise, on conn
}

// Hijack implements [http.Hijacker].
func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	h.conn = &watchedConn{Conn: c, network: c}
	if t, ok := c.(interface{ NetConn() net.Conn }); ok { // TLS
		h.conn.network = t.NetConn()
		if b, ok := h.conn.network.(*bulkconn.Conn); ok {
			h.conn.network, h.conn.bulk = b.Conn, b
		}
	} else if s, ok := c.(syscall.Conn); ok {
		h.conn.raw, _ = s.SyscallConn() // it fails only if the connection has ended
	}
	limitSendQueue(h.conn.network)
	h.frames = rpc.NewFrames(h.conn)
	// The writer of the request is empty: the connection is new.
	return h.frames, bufio.NewReadWriter(rw.Reader, bufio.NewWriterSize(h.frames, rpc.ControlBytes)), nil
}

// watch ends a connection that has made no progress for too long. The caller
// must call the function it returns.
func (s *Server) watch(c *watchedConn, t rpc.Transport, end func(error)) (stop func()) {
	limit := s.opts.Limits.Stalled
	short := min(limit, s.waits.crowded)
	received, _ := t.(*rpc.Received)
	return repeat(short/8, func() bool {
		switch waited := c.stalledFor(); {
		case waited >= limit, waited >= short && (s.budget.Crowded() || s.intake.Crowded()):
			end(errStalled)
		case received != nil && received.StalledFor() >= short && s.intake.Crowded():
			end(errUnsent)
		default:
			return false
		}
		return true
	})
}

// repeat calls f at intervals until it returns true, without a goroutine meanwhile. The
// caller must call the function it returns.
func repeat(every time.Duration, f func() bool) (stop func()) {
	every = max(every, time.Millisecond)
	var over atomic.Bool
	var timer *time.Timer
	set := make(chan struct{})
	timer = time.AfterFunc(every, func() {
		<-set
		if !over.Load() && !f() && !over.Load() {
			timer.Reset(every)
		}
	})
	close(set)
	return func() {
		over.Store(true)
		timer.Stop()
	}
}
