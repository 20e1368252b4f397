package execserver

import (
	"encoding/json"
	"iter"
	"strconv"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
)

// push sends the events of a process after a cursor as notifications, in order,
// until the process is closed or the connection ends. The log is known to have
// events up to last.
func (c *conn) push(p *process, after, last spool.Seq) {
	id := appendJSONString(nil, p.id)
	var b []byte
	for e, err := range c.events(p.run, after, last) {
		if err != nil {
			if c.ctx.Err() == nil {
				// Without events the client would wait for ever. Close the
				// connection: the client reconnects and reads what it missed.
				c.server.log.Warn("following a process", "process", p.id, "run", p.run, "err", err)
				c.end(nil)
			}
			return
		}
		denied := false
		if e.Kind == spool.KindExited && p.isolated {
			if o, ok := e.Outcome(); ok {
				denied = c.denied(c.ctx, p, o)
			}
		}
		b = appendNotification(b[:0], id, &e, p.tty, denied)
		if c.rpc.Send(false, b) != nil {
			return
		}
		if e.Kind == spool.KindClosed {
			p.done.Store(true)
		}
	}
	if c.ctx.Err() == nil { // the process is closed
		p.closeProxy()
	}
}

// events follows a run for a caller that does not keep an event after it
// requests the next: they share one buffer.
func (c *conn) events(run spool.RunID, after, last spool.Seq) iter.Seq2[spool.Event, error] {
	return func(yield func(spool.Event, error) bool) {
		for b, err := range c.batches(c.ctx, run, after, last) {
			if err != nil {
				yield(spool.Event{}, err)
				return
			}
			for len(b) > 0 {
				e, n, err := record.Decode(b)
				if !yield(e, err) || err != nil {
					return
				}
				b = b[n:]
			}
		}
	}
}

func appendNotification(b, id []byte, e *spool.Event, tty, denied bool) []byte {
	switch e.Kind {
	case spool.KindExited:
		b = append(b, `{"method":"process/exited","params":{"processId":`...)
	case spool.KindClosed:
		b = append(b, `{"method":"process/closed","params":{"processId":`...)
	default:
		b = append(b, `{"method":"process/output","params":{"processId":`...)
	}
	b = append(b, id...)
	b = append(b, `,"seq":`...)
	b = strconv.AppendUint(b, uint64(e.Seq), 10)
	switch e.Kind {
	case spool.KindExited:
		o, _ := e.Outcome()
		b = append(b, `,"exitCode":`...)
		b = strconv.AppendInt(b, int64(o.Code), 10)
		b = append(b, `,"sandboxDenied":`...)
		b = strconv.AppendBool(b, denied)
	case spool.KindClosed:
	default:
		b = appendChunk(b, e, tty)
	}
	return append(b, "}}"...)
}

func appendJSONString(b []byte, s string) []byte {
	q, err := json.Marshal(s)
	if err != nil { // encoding a string never fails
		return append(b, `""`...)
	}
	return append(b, q...)
}
