package httpapi

import (
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
)

// idleBytes is the size of the buffer that a stream keeps while it waits.
const idleBytes = 1 << 10

// StreamEnd is the data of the frame "end", after which a stream is over. Clients of
// a stream that is cut without one come back with their cursor.
type StreamEnd struct {
	// Reason is one of
	//
	//	closed    the log is complete
	//	done      the turn is, of a stream of a turn
	//	shutdown  the server ends: come back
	//	slow      the client took nothing for a long time: come back
	//	limit     there are too many streams: come back later
	//	revoked   the token is no longer valid: do not
	//	lost      the owner of the run cannot be reached: come back later
	Reason string    `json:"reason"`
	Last   spool.Seq `json:"last"` // the last event that was sent or passed over
}

// stream answers with all events after a cursor, history and live alike.
func (c *call) stream(form string) error {
	after, err := c.cursor()
	if err != nil {
		return err
	}
	counted, err := c.server.streams.count(c)
	if err != nil {
		return c.limited(form, after, err)
	}
	parked := false
	defer func() {
		if !parked {
			c.server.streams.end(counted)
		}
	}()
	first, err := c.backend.Read(c.ctx, c.run(), spool.Query{After: after, MaxBytes: c.server.limits.StreamPage})
	if err != nil {
		return err
	}
	if err := c.streamHeaders(&first, after); err != nil {
		return err
	}
	if form == formSSE && first.Info.State == spool.StateClosed && after >= first.Info.Last {
		c.w.WriteHeader(http.StatusNoContent) // an EventSource stops for good
		return nil
	}
	h := c.unbuffered(form)
	s := c.newStream(after)
	s.filter, s.named, s.base64 = eventFilter{c.query["kind"], spool.Seq(c.number("turn", 0))}, c.flag("named"), c.flag("base64")
	if form == formNDJSON {
		s.lines, s.heartbeat = true, time.Duration(c.number("heartbeat_ms", 0))*time.Millisecond
		if c.takesGzip() {
			h.Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(c.w)
			defer func() { _ = z.Close() }() // the client may have left
			s.zip = z
		}
	}
	if !first.End() && s.zip == nil && c.parkable() {
		h.Set("Connection", "close") // which is ours then
		s.park = func() bool { return c.park(s, counted) }
	}
	c.w.WriteHeader(http.StatusOK)
	if c.r.Method == http.MethodHead {
		return nil
	}
	s.begin(&first.Info)
	s.page = first
	parked = s.copy()
	return nil
}

// newStream returns a stream of the events of the run after a cursor to the client.
func (c *call) newStream(after spool.Seq) *eventStream {
	return &eventStream{
		server: c.server, backend: c.backend, run: c.run(), request: c.id, ctx: c.ctx, to: c.patient,
		after: after, heartbeat: c.server.limits.Heartbeat,
	}
}

// streamTurn answers with the events of a turn, up to its end.
func (c *call) streamTurn(status int, turn spool.Seq) error {
	after := turn - 1
	if c.r.Header.Get("Last-Event-ID") != "" {
		cursor, err := c.cursor()
		if err != nil {
			return err
		}
		after = max(after, cursor)
	}
	end, err := c.server.streams.begin(c)
	if err != nil {
		return c.limited(formSSE, after, err)
	}
	defer end()
	first, err := c.backend.Read(c.ctx, c.run(), spool.Query{After: after, MaxBytes: c.server.limits.StreamPage})
	if err != nil {
		return err
	}
	if err := c.streamHeaders(&first, after); err != nil {
		return err
	}
	if after > turn { // it has some of it; perhaps all
		done := first.Info.State == spool.StateClosed && after >= first.Info.Last
		err := c.each(turn, min(after, first.Info.Last), func(e *spool.Event) bool {
			done = done || e.Kind == spool.KindDone && e.Turn == turn
			return !done
		})
		if err != nil {
			return err
		}
		if done {
			c.w.WriteHeader(http.StatusNoContent)
			return nil
		}
	}
	c.unbuffered(formSSE)
	c.w.WriteHeader(status)
	if c.r.Method == http.MethodHead {
		return nil
	}
	s := c.newStream(after)
	s.turn, s.filter = turn, eventFilter{turn: turn}
	s.begin(&first.Info)
	s.page = first
	s.copy()
	return nil
}

// streamHeaders says in the headers of a stream which events there are.
func (c *call) streamHeaders(page *spool.Page, after spool.Seq) error {
	beginning := *page
	if after > 0 {
		var err error
		if beginning, err = c.backend.Read(c.ctx, c.run(), spool.Query{MaxBytes: 1}); err != nil {
			return err
		}
	}
	first := spool.Seq(1)
	if len(beginning.Events) > 0 {
		if gap, ok := gapOf(&beginning.Events[0]); ok {
			first = gap.To + 1
		}
	}
	h := c.w.Header()
	h.Set("Spool-First", strconv.FormatUint(uint64(first), 10))
	h.Set("Spool-Last", strconv.FormatUint(uint64(page.Info.Last), 10))
	return nil
}

// limited answers a request for a stream that there is no room for. An event source of
// a page, which has a ticket, gives up for good if the answer is no stream: it gets one
// that ends at once.
func (c *call) limited(form string, after spool.Seq, err error) error {
	var p *Problem
	_, ticket := c.r.Context().Value(ticketKey{}).(*access.Subject)
	if !errors.As(err, &p) || p.Code != "too_many_streams" || form != formSSE || !ticket {
		return err
	}
	c.unbuffered(formSSE)
	c.w.WriteHeader(http.StatusOK)
	s := c.newStream(after)
	s.retry()
	s.end("limit")
	return nil
}

// eventStream writes the events of a run to a client, or to many that are parked: it
// reads, writes and reads again. A slow client holds one page.
type eventStream struct {
	server  *Server
	backend spool.Backend
	run     spool.RunID
	request string          // the id of the request; empty for those of many
	ctx     context.Context // ends with the client, the server or the right to be here
	to      patient
	zip     *gzip.Writer // to to; nil if the stream is not compressed
	page    spool.Page   // that is written; empty while it waits
	buf     []byte

	park func() bool     // parks the stream, which has sent all there is, or reports false; nil if it cannot
	took func(spool.Seq) // hears of the cursor after each page before it is written; nil if nobody does

	filter    eventFilter
	lines     bool // an event a line instead of server-sent events
	named     bool
	base64    bool // no bytes as text
	heartbeat time.Duration

	turn spool.Seq // the stream ends with this turn; zero for those of runs
	done bool      // it has ended
	over bool      // the end was written

	after  spool.Seq // the last event that was sent or passed over
	told   spool.Seq // the last cursor that the client knows
	spoke  time.Time // when something was sent
	toldAt time.Time // when the client last learned its cursor
}

// goOn reads a page, and writes it and those after it.
func (s *eventStream) goOn() (parked bool) { return s.read(s.patience()) && s.copy() }

// copy writes the page that was read and those after it until the log or the stream
// ends, or the stream is parked.
func (s *eventStream) copy() (parked bool) {
	for {
		if parked, over := s.write(); over {
			return parked
		}
		if !s.read(s.patience()) {
			return false
		}
		if len(s.page.Events) == 0 && s.heartbeat > 0 && time.Since(s.spoke) >= s.heartbeat {
			s.comment()
		}
	}
}

// write writes the page that was read, and parks the stream if there is no more. It
// reports whether it is over here.
func (s *eventStream) write() (parked, over bool) {
	page := &s.page
	if !s.events(page.Events) {
		return false, true
	}
	if s.done {
		s.end("done")
		return false, true
	}
	s.after = max(s.after, page.Next)
	if page.Failure != "" {
		s.failure(page.Failure)
		return false, true
	}
	if page.End() {
		s.end("closed")
		return false, true
	}
	whole := page.Next >= page.Info.Last
	parking := whole && s.park != nil && s.after <= page.Info.Last
	s.cursor(parking)
	if !s.flush() {
		return false, true
	}
	if whole && cap(s.buf) > idleBytes {
		s.buf = nil // many streams wait
	}
	parked = parking && s.park()
	return parked, parked
}

// patience is how long to wait for the next page: at most until the next heartbeat.
func (s *eventStream) patience() time.Duration {
	if s.heartbeat > 0 {
		return max(time.Millisecond, s.heartbeat-time.Since(s.spoke))
	}
	return s.server.limits.LongPoll
}

// read reads the next page, for which it waits at most a time. It reports false if there
// is none. A page is large, so it is not on the stacks of those who wait.
func (s *eventStream) read(wait time.Duration) bool {
	s.page = spool.Page{}
	var err error
	if s.page, err = s.backend.Read(s.ctx, s.run, spool.Query{After: s.after, MaxBytes: s.server.limits.StreamPage, Wait: wait}); err != nil {
		s.giveUp(err)
		return false
	}
	if s.took != nil {
		s.took(s.page.Next)
	}
	return true
}

// begin writes what comes before the events.
func (s *eventStream) begin(info *spool.Info) {
	s.from(s.after)
	if s.lines {
		_ = s.to.FlushError() // the client learns that it may wait; the next write fails as well
		return
	}
	s.retry()
	s.frame("info", info)
}

// from says that the client has all up to a cursor, and knows.
func (s *eventStream) from(after spool.Seq) {
	s.spoke, s.toldAt = time.Now(), time.Now()
	s.after, s.told = after, after
}

// retry writes how long a client waits before it comes back. A restart must not be a
// stampede.
func (s *eventStream) retry() {
	ms := s.server.limits.RetryMs
	s.buf = append(s.buf, "retry: "...)
	s.buf = strconv.AppendInt(s.buf, int64(ms-ms/4+rand.IntN(ms/2+1)), 10)
	s.buf = append(s.buf, "\n\n"...)
}

// events writes events. A frame has an id if and only if it is an event of the log. It
// sends many in parts, so that a client decodes one while the next is encoded, and
// reports false if the client is gone or takes nothing.
func (s *eventStream) events(events []spool.Event) bool {
	for i := range events {
		e := &events[i]
		if s.done {
			return true
		}
		if len(s.buf) >= partBytes {
			s.after = max(s.after, events[i-1].Seq)
			if !s.flush() {
				return false
			}
		}
		if !s.filter.match(e) {
			continue
		}
		s.told = max(s.told, e.Seq)
		if s.turn != 0 && e.Kind == spool.KindDone && e.Turn == s.turn {
			s.done, s.after = true, e.Seq
		}
		if s.lines {
			s.buf = append(s.append(e), '\n')
			continue
		}
		if e.Seq == 0 {
			s.buf = append(s.buf, "event: failure\n"...)
		} else {
			s.buf = append(strconv.AppendUint(append(s.buf, "id: "...), uint64(e.Seq), 10), '\n')
			if s.named {
				s.buf = append(append(append(s.buf, "event: "...), e.Kind...), '\n')
			}
		}
		s.buf = append(s.buf, "data: "...)
		s.buf = append(s.append(e), "\n\n"...)
	}
	return true
}

// append appends the JSON form of an event to the buffer.
func (s *eventStream) append(e *spool.Event) []byte {
	if !s.base64 || len(e.Bytes) == 0 {
		return e.AppendJSON(s.buf)
	}
	bare := *e
	bare.Bytes = nil
	b := bare.AppendJSON(s.buf)
	b = append(b[:len(b)-1], `,"base64":"`...)
	return append(base64.StdEncoding.AppendEncode(b, e.Bytes), `"}`...)
}

// cursor tells the client of a filtered stream how far it is, now or now and then.
func (s *eventStream) cursor(now bool) {
	if s.lines || s.filter.isAll() || s.told >= s.after || !now && time.Since(s.toldAt) < s.server.limits.CursorEvery {
		return
	}
	s.told, s.toldAt = s.after, time.Now()
	s.buf = append(s.buf, "event: cursor\ndata: {\"after\":"...)
	s.buf = append(strconv.AppendUint(s.buf, uint64(s.after), 10), "}\n\n"...)
}

// comment writes something that clients pass over, so that no proxy takes the
// connection for dead.
func (s *eventStream) comment() {
	if s.lines {
		s.buf = append(s.buf, '\n')
		return
	}
	s.buf = append(s.buf, ": \n\n"...)
}

// failure writes that the owner of the run was lost.
func (s *eventStream) failure(text string) {
	if !s.lines {
		data, _ := json.Marshal(text) // a string always encodes
		s.buf = append(s.buf, "event: failure\ndata: {\"failure\":"...)
		s.buf = append(append(s.buf, data...), "}\n\n"...)
	}
	s.end("lost")
}

// giveUp ends the stream after an error of a read.
func (s *eventStream) giveUp(err error) {
	cause := context.Cause(s.ctx)
	switch {
	case errors.Is(cause, errRevoked):
		s.end("revoked")
	case errors.Is(cause, spool.ErrClosed), errors.Is(err, spool.ErrClosed):
		s.end("shutdown")
	case s.ctx.Err() != nil: // the client left
	default:
		s.server.log.Warn("a stream ended", "request", s.request, "run", s.run, "err", err)
		s.end("lost")
	}
}

// end writes that the stream is over, and why.
func (s *eventStream) end(reason string) {
	s.over = true
	if !s.lines {
		data, _ := json.Marshal(StreamEnd{reason, s.after}) // plain fields always encode
		s.buf = append(append(append(s.buf, "event: end\ndata: "...), data...), "\n\n"...)
	}
	s.flush()
}

// flush sends what was written. It reports false if the client is gone or takes
// nothing.
func (s *eventStream) flush() bool {
	if len(s.buf) == 0 {
		return true
	}
	var err error
	if s.zip != nil {
		_, err = s.zip.Write(s.buf)
		err = errors.Join(err, s.zip.Flush())
	} else {
		_, err = s.to.Write(s.buf)
	}
	if err == nil {
		err = s.to.FlushError()
	}
	s.buf, s.spoke = s.buf[:0], time.Now()
	if err == nil && s.to.wasSlow() && !s.over {
		s.end("slow")
	}
	return err == nil && !s.over
}
