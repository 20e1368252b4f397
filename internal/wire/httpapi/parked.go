package httpapi

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/contain"
)

// lastChunk ends an answer of HTTP/1.1: what has none was cut.
const lastChunk = "0\r\n\r\n"

// talkBytes is how much a client may say after its request before it is cut off: reading
// that costs more than it should.
const talkBytes = 4 << 10

// parked is a stream that has left its request: it took the connection from net/http,
// whose buffers and goroutines are gone. While it waits for events it belongs to the
// group of those that wait for the same. A client that does not take all at once is
// served by a goroutine of its own, alone, until it has caught up.
//
// One goroutine, watch, waits for the client to leave, and then ends the stream. The
// function that sets the state to over also closes the connection.
type parked struct {
	server  *Server
	counted *stream
	request string // its id
	conn    net.Conn
	raw     syscall.RawConn // nil if nothing can be sent without waiting: it is always alone
	form    *streamForm

	mu     sync.Mutex // before that of parking
	state  parkedState
	group  *group                  // while it waits
	cancel context.CancelCauseFunc // while it is alone
	after  spool.Seq               // the last event that was sent or passed over, unless it is alone
}

// parkedState says who may write to the client.
type parkedState uint8

const (
	alone   parkedState = iota // its own goroutine
	waiting                    // its group
	over                       // nobody
)

// parkable reports whether the stream may take the connection of its request: nothing
// between here and the network changes what is written, and nothing but the end of the
// connection ends the request.
func (c *call) parkable() bool {
	r := c.r
	if r.Method != http.MethodGet || r.ProtoMajor != 1 || r.ProtoMinor != 1 || r.TLS != nil || r.ContentLength != 0 {
		return false
	}
	if _, limited := r.Context().Deadline(); limited {
		return false
	}
	if _, ok := c.patient.ResponseWriter.(http.Hijacker); !ok || reflect.TypeOf(c.patient.ResponseWriter).Elem().PkgPath() != "net/http" {
		return false // the writer of another program, which may do more than write
	}
	return reflect.ValueOf(c.backend).Comparable()
}

// park takes the connection from the request. What was written is with the client.
func (c *call) park(s *eventStream, counted *stream) bool {
	conn, _, err := c.patient.ResponseWriter.(http.Hijacker).Hijack()
	if err != nil {
		s.park = nil
		return false
	}
	c.patient.gone = true
	p := &parked{server: c.server, counted: counted, request: c.id, conn: conn, form: s.form()}
	switch plain := conn.(type) {
	case *net.TCPConn:
		p.raw, _ = plain.SyscallConn() // it fails only if the connection has ended
	case *net.UnixConn:
		p.raw, _ = plain.SyscallConn()
	}
	if c.server.parking.count != nil {
		c.server.parking.count(1)
	}
	if !p.wait(s.after) {
		p.mu.Lock()
		p.after = s.after
		p.apart(nil, false)
		p.mu.Unlock()
	}
	c.server.streams.leave(counted, p)
	go p.watch()
	return true
}

// watch waits for the end of the connection, and ends the stream with it.
func (p *parked) watch() {
	var b [64]byte
	for said := 0; said <= talkBytes; { // what a client says after its request is nothing to us
		n, err := p.conn.Read(b[:])
		if err != nil {
			break
		}
		said += n
	}
	p.mu.Lock()
	switch p.state {
	case alone:
		p.cancel(nil)
	case waiting:
		p.server.parking.leave(p.group)
	case over:
	}
	p.state = over
	p.mu.Unlock()
	_ = p.conn.Close() // it may be closed
	if p.server.parking.count != nil {
		p.server.parking.count(-1)
	}
	p.server.streams.end(p.counted) // for which the end of the server waits
}

// wait has the stream wait with others, if it has all that they have.
func (p *parked) wait(after spool.Seq) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == over {
		return true
	}
	if p.raw == nil {
		return false
	}
	p.after = after
	if !p.server.parking.join(p) {
		return false
	}
	p.state, p.cancel = waiting, nil
	return true
}

// end ends the stream, and tells the client why.
func (p *parked) end(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch p.state {
	case waiting:
		p.server.parking.leave(p.group)
		p.apart(nil, false)
		p.cancel(cause)
	case alone:
		p.cancel(cause)
	case over:
	}
}

// send has the group of the stream write to the client what it takes at once. The rest
// is for a goroutine of its own. After the last, the connection is closed. It reports
// whether the stream still waits in its group.
func (p *parked) send(now *sending, b []byte, last bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != waiting {
		return false
	}
	n, err := now.send(p.raw, b)
	if err == nil && n == len(b) && !last {
		return true
	}
	p.server.parking.leave(p.group)
	if err == nil && n < len(b) {
		p.after = now.after
		p.apart(bytes.Clone(b[n:]), last)
	} else { // or the client left
		p.close()
	}
	return false
}

// cut closes the connection of a stream that waits, without an end: the client comes
// back with its cursor.
func (p *parked) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == waiting {
		p.server.parking.leave(p.group)
		p.close()
	}
}

// part has a stream that waits, and was sent nothing by its group, go on alone.
func (p *parked) part() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == waiting {
		p.server.parking.leave(p.group)
		p.apart(nil, false)
	}
}

// close closes the connection. The caller holds mu.
func (p *parked) close() {
	p.state, p.group = over, nil
	_ = p.conn.Close() // there is nothing that it could lose
}

// apart has a goroutine serve the client alone. The caller holds mu.
func (p *parked) apart(rest []byte, last bool) {
	ctx, cancel := context.WithCancelCause(p.server.ctx)
	p.state, p.group, p.cancel = alone, nil, cancel
	p.server.wg.Go(func() {
		defer cancel(nil)
		if p.server.survives(func() { p.serve(ctx, rest, last) }) {
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.state == alone {
			p.close()
		}
	})
}

// survives reports whether a function returned. If it panicked the program goes on, as
// it does with net/http: the backend may be that of another program.
func (s *Server) survives(do func()) (ok bool) { return contain.Do(s.log, "a stream", do) }

// serve sends the rest of what was sent, and then, unless that was the last, events until
// the client has all there are.
func (p *parked) serve(ctx context.Context, rest []byte, last bool) {
	l := &p.server.limits
	to := &chunkWriter{conn: p.conn, stalled: l.Stalled, grace: l.SlowGrace, part: l.StreamPage}
	to.write(rest)
	if !last {
		s := p.form.stream(ctx, p.server)
		s.request, s.to, s.park = p.request, to, func() bool { return ctx.Err() == nil && p.wait(s.after) }
		s.from(p.after)
		switch {
		case to.err != nil:
		case to.slow:
			s.end("slow")
		case s.goOn():
			return
		}
		if context.Cause(ctx) != context.Canceled { // the client is there
			to.write([]byte(lastChunk))
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == alone {
		p.close()
	}
}

// chunkWriter writes the parts of an answer of HTTP/1.1 to a connection, as a
// [patientWriter] does.
type chunkWriter struct {
	conn    net.Conn
	stalled time.Duration
	grace   time.Duration
	part    int
	slow    bool
	err     error // the first one
}

// Write implements [io.Writer].
func (w *chunkWriter) Write(p []byte) (n int, err error) {
	for n < len(p) && w.err == nil {
		part := p[n:min(len(p), n+w.part)]
		w.write(appendChunk(make([]byte, 0, len(part)+chunkBytes), part))
		n += len(part)
	}
	return n, w.err
}

// write writes bytes to the connection. A client that does not take them in time is slow,
// and later cut off.
func (w *chunkWriter) write(b []byte) {
	if len(b) == 0 || w.err != nil {
		return
	}
	began := time.Now()
	_ = w.conn.SetWriteDeadline(began.Add(w.stalled + w.grace)) // the write fails as well
	_, w.err = w.conn.Write(b)
	_ = w.conn.SetWriteDeadline(time.Time{})
	w.slow = w.slow || time.Since(began) >= w.stalled
}

// FlushError has nothing to do: nothing is held back.
func (w *chunkWriter) FlushError() error { return w.err }

func (w *chunkWriter) wasSlow() bool { return w.slow }

// streamForm is what the streams of a group have in common: they send the same bytes.
type streamForm struct {
	backend   spool.Backend
	run       spool.RunID
	kinds     string // separated by line feeds
	turn      spool.Seq
	lines     bool
	named     bool
	base64    bool
	heartbeat time.Duration
}

// form returns the form of a stream. It keeps nothing of its request.
func (s *eventStream) form() *streamForm {
	return &streamForm{
		backend: s.backend, run: spool.RunID(strings.Clone(string(s.run))), kinds: strings.Join(s.filter.kinds, "\n"), turn: s.filter.turn,
		lines: s.lines, named: s.named, base64: s.base64, heartbeat: s.heartbeat,
	}
}

// stream returns a stream of this form.
func (f *streamForm) stream(ctx context.Context, server *Server) *eventStream {
	s := &eventStream{
		server: server, backend: f.backend, run: f.run, ctx: ctx,
		filter: eventFilter{turn: f.turn}, lines: f.lines, named: f.named, base64: f.base64, heartbeat: f.heartbeat,
	}
	if f.kinds != "" {
		s.filter.kinds = strings.Split(f.kinds, "\n")
	}
	return s
}
