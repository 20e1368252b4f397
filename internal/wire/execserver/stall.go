package execserver

import (
	"bufio"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// writeStep is the most that is written at once. A client whose connection
// takes longer than Limits.Stalled for so many bytes does not read.
const writeStep = 256 << 10

// clock is the origin of the times of a watchedConn.
var clock = time.Now()

// watchedConn is a network connection that knows since when a write waits.
type watchedConn struct {
	net.Conn
	network net.Conn     // below TLS
	since   atomic.Int64 // time since clock at which the write began; zero without one
	waiting atomic.Int64 // likewise of a wait for the connection to be writable
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
	conn *watchedConn // set by Hijack
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
	}
	limitSendQueue(h.conn.network)
	rw.Writer.Reset(h.conn) // it is empty: the connection is new
	return h.conn, rw, nil
}

// watchWrites calls stalled once a write has made no progress for the limit, or
// for the shorter limit while crowded returns true. The caller must call the
// function it returns.
func watchWrites(c *watchedConn, limit time.Duration, crowded func() bool, stalled func()) (stop func()) {
	every := max(min(limit, crowdedStalled)/8, time.Millisecond)
	var over atomic.Bool
	var timer *time.Timer
	set := make(chan struct{})
	timer = time.AfterFunc(every, func() {
		<-set
		switch waited := c.stalledFor(); {
		case over.Load():
		case waited >= limit, waited >= crowdedStalled && crowded():
			stalled()
		default:
			timer.Reset(every)
		}
	})
	close(set)
	return func() {
		over.Store(true)
		timer.Stop()
	}
}
