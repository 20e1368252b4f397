package execserver

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// Limits of process/read answers. A message stays below the 64 MiB and 262,144
// values that clients accept.
const (
	readBytes  = 32 << 20
	readChunks = 50_000
	// resumeBytes limits the first answer after a session was resumed. The
	// server pushes the rest after it, event by event, so that a client makes
	// progress even if its connections are too short for a large answer.
	resumeBytes = 1 << 20
)

// routeRead releases the events of a resumed process after the answer with
// which the client catches up.
func (c *conn) routeRead() route {
	var held *resumption // nil if no events wait for this answer
	var answer *readAnswer
	return route{
		family: "exec",
		call: func(ctx context.Context, params json.RawMessage) (result any, err error) {
			if held, answer, err = c.processRead(ctx, params); err != nil {
				return nil, err
			}
			return &sized{answer.encode(), answer.room, true}, nil
		},
		after: func(any) {
			if held != nil {
				held.goOn(answer.last())
			}
		},
	}
}

// processRead builds the answer to process/read.
func (c *conn) processRead(ctx context.Context, params json.RawMessage) (*resumption, *readAnswer, error) {
	var p struct {
		ProcessID string  `json:"processId"`
		AfterSeq  *uint64 `json:"afterSeq"`
		MaxBytes  *uint64 `json:"maxBytes"`
		WaitMs    *uint64 `json:"waitMs"`
	}
	if err := decode(params, &p, "processId"); err != nil {
		return nil, nil, err
	}
	proc, err := c.session.lookup(ctx, p.ProcessID)
	if err != nil {
		return nil, nil, err
	}
	q := spool.Query{MaxBytes: readBytes}
	if p.AfterSeq != nil {
		q.After = spool.Seq(*p.AfterSeq)
	}
	var held *resumption
	if p.MaxBytes != nil {
		q.MaxBytes = int(min(*p.MaxBytes, readBytes))
	} else if held = c.claim(proc); held != nil {
		q.MaxBytes = resumeBytes
	}
	if p.WaitMs != nil {
		q.Wait = time.Duration(min(*p.WaitMs, uint64(maxWait/time.Millisecond))) * time.Millisecond
	}
	answer := &readAnswer{maxBytes: q.MaxBytes, limited: p.MaxBytes != nil, next: q.After}
	if err := c.fill(ctx, proc.run, q, answer); err != nil {
		if held != nil {
			held.goOn(held.after)
		}
		return nil, nil, rpc.Errorf(rpc.CodeInternal, "read process %s: %s", p.ProcessID, err)
	}
	if o := answer.page.Info.Outcome; proc.isolated && o != nil {
		answer.denied = c.denied(ctx, proc, *o)
	}
	return held, answer, nil
}

// fill reads the events of an answer: a first page, and more as far as there is
// room. Without an error it has entered.
func (c *conn) fill(ctx context.Context, run spool.RunID, q spool.Query, a *readAnswer) error {
	limit := a.maxBytes
	page, first, err := c.readFirst(ctx, run, q)
	if err != nil {
		return err
	}
	a.room = first
	for a.add(page) {
		if a.room == first && limit > firstPage {
			bytes, more := c.roomToRead(limit)
			if a.room += more; bytes < limit {
				// The client may take the answer for complete, because it
				// allowed more.
				a.maxBytes, a.limited = max(bytes, firstPage), false
				if a.bytes >= a.maxBytes {
					return nil
				}
			}
		}
		q.After, q.Wait, q.MaxBytes = page.Next, 0, max(1, a.maxBytes-a.bytes)
		if page, err = c.backend.Read(ctx, run, q); err != nil {
			c.giveUp(a.room, true)
			return err
		}
	}
	return nil
}

// maxWait limits a long poll; a client may repeat it.
const maxWait = time.Hour

// readAnswer is the answer to process/read. It is encoded by hand, because it
// is mostly base64.
type readAnswer struct {
	maxBytes int
	limited  bool // the client set the limit
	room     int64

	chunks []byte
	count  int
	bytes  int       // decoded bytes in chunks
	next   spool.Seq // seq of the last chunk, or the cursor of the request
	exited bool      // the exit event was added
	denied bool      // the sandbox seems to be why the process failed
	whole  bool      // all available events were added
	page   spool.Page
}

// add adds the events of a page and reports whether to read the next one. The
// chunks and the state of the process in an answer must be consistent. So a
// page that ends before the last event does not end the answer while there is
// space.
func (a *readAnswer) add(page spool.Page) bool {
	a.page = page
	if a.chunks == nil {
		size := 0
		for i := range page.Events {
			size += base64.StdEncoding.EncodedLen(len(page.Events[i].Bytes)) + 64
		}
		a.chunks = make([]byte, 0, size)
	}
	for i := range page.Events {
		e := &page.Events[i]
		if e.Kind == spool.KindExited || e.Kind == spool.KindClosed {
			a.exited = true
			continue
		}
		if a.count > 0 {
			if a.count == readChunks || a.bytes+len(e.Bytes) > a.maxBytes {
				return false
			}
			a.chunks = append(a.chunks, ',')
		}
		a.count++
		a.bytes += len(e.Bytes)
		a.next = e.Seq
		a.chunks = append(a.chunks, `{"seq":`...)
		a.chunks = strconv.AppendUint(a.chunks, uint64(e.Seq), 10)
		a.chunks = appendChunk(a.chunks, e, page.Info.TTY)
		a.chunks = append(a.chunks, '}')
	}
	// Events after this page are in the next answer, or pushed.
	a.whole = page.Failure != "" || page.Next >= page.Info.Last
	return !a.whole && len(page.Events) > 0 && (a.count == 0 || a.bytes < a.maxBytes)
}

// last returns the seq up to which the answer tells the client everything.
func (a *readAnswer) last() spool.Seq {
	if a.whole && (!a.limited || a.count == 0) {
		return a.page.Info.Last
	}
	return a.next
}

func (a *readAnswer) encode() json.RawMessage {
	info, failure := a.page.Info, a.page.Failure
	if info.Outcome != nil && info.Outcome.Kind != spool.Exited {
		failure = info.Outcome.String()
	}
	exited := info.Outcome != nil && info.Outcome.Kind == spool.Exited
	closed := info.State == spool.StateClosed
	if !a.whole && !a.limited {
		// The client did not limit the answer and assumes that it is complete
		// up to next: report the state at that point.
		exited, closed, failure = exited && a.exited, false, ""
	}
	b := append(make([]byte, 0, len(a.chunks)+256), `{"chunks":[`...)
	b = append(b, a.chunks...)
	b = append(b, `],"nextSeq":`...)
	b = strconv.AppendUint(b, uint64(a.last())+1, 10)
	b = append(b, `,"exited":`...)
	b = strconv.AppendBool(b, exited)
	b = append(b, `,"exitCode":`...)
	if exited {
		b = strconv.AppendInt(b, int64(info.Outcome.Code), 10)
	} else {
		b = append(b, "null"...)
	}
	b = append(b, `,"closed":`...)
	b = strconv.AppendBool(b, closed)
	b = append(b, `,"failure":`...)
	if failure == "" {
		b = append(b, "null"...)
	} else {
		b = appendJSONString(b, failure)
	}
	b = append(b, `,"sandboxDenied":`...)
	b = strconv.AppendBool(b, exited && a.denied)
	return append(b, '}')
}

// appendChunk appends the stream and chunk members of an event. An event other
// than output is an empty chunk, so that clients see no gap.
func appendChunk(b []byte, e *spool.Event, tty bool) []byte {
	stream := e.Stream
	var data []byte
	if e.Kind == spool.KindOutput {
		data = e.Bytes
	} else if stream = spool.Stdout; tty {
		stream = spool.PTY
	}
	b = append(b, `,"stream":"`...)
	b = append(b, stream...)
	b = append(b, `","chunk":"`...)
	b = appendBase64(b, data)
	return append(b, '"')
}
