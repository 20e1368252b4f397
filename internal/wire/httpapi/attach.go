package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/lens"
	"github.com/spool-run/spool/internal/screen"
	"github.com/spool-run/spool/internal/strict"
)

// attachProtocol is the subprotocol of a WebSocket that is attached to a run.
const attachProtocol = "spool.attach.v1"

// AttachFrame is a text message to an attached client. It has one or more members.
type AttachFrame struct {
	// Seq is the cursor: the client has the output of all events up to this
	// one. After a cut it goes on from there.
	Seq spool.Seq `json:"seq,omitempty"`
	// Info describes the run: at the beginning, and when its state changes.
	Info *spool.Info `json:"info,omitempty"`
	// Screen announces that the next binary message draws the screen.
	Screen *AttachScreen `json:"screen,omitempty"`
	// Resized is the new size of the terminal, from here on.
	Resized *spool.Resized `json:"resized,omitempty"`
	// Skipped are events whose output does not come: it is gone, or the client
	// was too far behind.
	Skipped *AttachSkip `json:"skipped,omitempty"`
	// Truncated is output that the run dropped here.
	Truncated *spool.Truncation `json:"truncated,omitempty"`
	// Problem is why something that the client sent was not done.
	Problem *Problem `json:"problem,omitempty"`
	// End is the last message.
	End *AttachEnd `json:"end,omitempty"`
}

// AttachScreen describes a screen that the next binary message draws.
type AttachScreen struct {
	Seq   spool.Seq `json:"seq"` // the event after which it is
	Rows  int       `json:"rows"`
	Cols  int       `json:"cols"`
	Exact bool      `json:"exact"` // nothing is missing that was drawn long ago
}

// AttachSkip names events.
type AttachSkip struct {
	From spool.Seq `json:"from"`
	To   spool.Seq `json:"to"`
}

// AttachEnd is why an attached client is cut off: a reason of [StreamEnd].
type AttachEnd struct {
	Reason  string         `json:"reason"`
	Outcome *spool.Outcome `json:"outcome,omitempty"` // of a run that is closed
}

// AttachRequest is a text message of an attached client. It has one member.
type AttachRequest struct {
	Resize *spool.Size `json:"resize,omitempty"` // the terminal gets this size
	Signal string      `json:"signal,omitempty"` // such as SIGINT
	EOF    bool        `json:"eof,omitempty"`    // nothing comes after the bytes so far
	Ack    int64       `json:"ack,omitempty"`    // bytes that were shown since the last one
}

// attachOperation is the raw WebSocket of a run.
func attachOperation() operation {
	return operation{method: "GET", pattern: "/v1/runs/{run}/attach", name: "attachRun", scope: access.Read, protocol: attachProtocol,
		summary: "A WebSocket with the output of a run, which takes its input",
		query: []param{
			{name: "after", kind: numberParam, min: fromNow, max: math.MaxInt64, cursor: true, doc: "Cursor: the last number of an event that the client has; -1 means only what comes"},
			{name: "screen", kind: flagParam, doc: "Begin with the screen of the terminal as it is now, instead of after"},
			{name: "skip", kind: flagParam, doc: "With screen: draw the screen again instead of sending output that is older than 4 MiB"},
			{name: "window", kind: numberParam, min: 1, most: func(l *Limits) int64 { return l.Window }, doc: "Bytes that the server sends ahead of what the client has acknowledged; without it there are no acknowledgements"},
		}, status: 101, problems: []string{"not_found", "bad_cursor", "too_many_streams", "unsupported", "upgrade"}, serve: (*call).attach}
}

// attach connects the client with the input and the output of a run.
func (c *call) attach() error {
	if err := c.wantsWebSocket(); err != nil {
		return err
	}
	view := c.flag("screen")
	if view && c.query.Has("after") || !view && c.flag("skip") {
		return problemf("invalid", "screen excludes after, and skip needs screen")
	}
	end, err := c.server.streams.begin(c)
	if err != nil {
		return err
	}
	defer end()
	a := &attachment{call: c, skip: c.flag("skip"), window: c.number("window", 0), acks: make(chan struct{}, 1)}
	if a.info, err = c.backend.Stat(c.ctx, c.run()); err != nil {
		return err
	}
	first := AttachFrame{Info: &a.info}
	var drawn *screen.View
	if view {
		if drawn, err = c.server.lens.Screen(c.ctx, c.run(), lens.ScreenQuery{At: a.info.Last, Quick: true}); err != nil {
			return err
		}
		first.Screen = screenOf(drawn)
	} else if a.after, err = c.cursor(); err != nil {
		return err
	}
	a.told = a.after
	if a.conn, err = c.upgrade(attachProtocol); err != nil {
		return nil
	}
	a.conn.SetReadLimit(c.server.limits.Message)
	ctx, cancel := context.WithCancelCause(c.ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		err := errPanicked
		c.server.survives(func() { err = a.receive(ctx) })
		cancel(err)
	})
	wg.Go(func() { cancel(c.keepAlive(ctx, a.conn)) })
	err = errPanicked // which net/http would contain, without an end of the connection
	c.server.survives(func() { err = a.run(ctx, first, drawn) })
	a.end(ctx, err)
	cancel(nil)
	wg.Wait()
	return nil
}

// attachment is a client that is attached to a run. One goroutine sends what the run
// wrote; another one receives.
type attachment struct {
	call *call
	conn *websocket.Conn
	info spool.Info

	after spool.Seq // the last event whose output was sent
	told  spool.Seq // the last cursor that was sent
	bytes int64     // of the output of the run up to there; only known with a screen
	skip  bool
	buf   []byte

	window int64 // zero without acknowledgements
	sent   int64
	mu     sync.Mutex
	acked  int64
	acks   chan struct{} // has an element when acked has grown
}

// run sends output until the log ends or something fails.
func (a *attachment) run(ctx context.Context, first AttachFrame, drawn *screen.View) error {
	if err := a.frame(first); err != nil {
		return err
	}
	if drawn != nil {
		a.bytes = a.info.Bytes
		if err := a.paint(ctx, drawn); err != nil {
			return err
		}
	}
	for {
		page, err := a.call.backend.Read(ctx, a.call.run(), spool.Query{After: a.after, MaxBytes: a.call.server.limits.StreamPage, Wait: a.call.server.limits.LongPoll})
		if err != nil {
			return err
		}
		if a.skip && page.Info.Bytes-a.bytes > skipBytes {
			if err := a.skipTo(ctx); err != nil {
				return err
			}
			continue
		}
		for i := range page.Events {
			if err := a.event(ctx, &page.Events[i]); err != nil {
				return err
			}
		}
		a.after = max(a.after, page.Next)
		if err := a.flush(ctx); err != nil {
			return err
		}
		if page.Info.State != a.info.State {
			a.info = page.Info
			if err := a.frame(AttachFrame{Info: &a.info}); err != nil {
				return err
			}
		}
		if page.Failure != "" {
			return problemf("backend_lost", "%s", page.Failure)
		}
		if page.End() {
			return errComplete
		}
	}
}

// errComplete is why an attachment ends whose log has ended.
var errComplete = errors.New("the log is complete")

// event takes an event: what it says must come after the output before it.
func (a *attachment) event(ctx context.Context, e *spool.Event) error {
	frame := AttachFrame{}
	switch e.Kind {
	case spool.KindOutput:
		a.buf = append(a.buf, e.Bytes...)
		a.bytes += int64(len(e.Bytes))
		return nil
	case spool.KindResized:
		frame.Resized = new(spool.Resized)
		if json.Unmarshal(e.Data, frame.Resized) != nil {
			return nil
		}
	case spool.KindTruncated:
		frame.Truncated = new(spool.Truncation)
		if json.Unmarshal(e.Data, frame.Truncated) != nil {
			return nil
		}
		if gap := frame.Truncated; gap.To != 0 {
			frame.Skipped, frame.Truncated = &AttachSkip{gap.From, gap.To}, nil
		}
	default:
		return nil
	}
	if err := a.send(ctx); err != nil {
		return err
	}
	frame.Seq, a.after, a.told = e.Seq, e.Seq, e.Seq
	return a.frame(frame)
}

// flush sends the output so far, and the cursor.
func (a *attachment) flush(ctx context.Context) error {
	if err := a.send(ctx); err != nil {
		return err
	}
	if a.told == a.after {
		return nil
	}
	a.told = a.after
	return a.frame(AttachFrame{Seq: a.after})
}

// send sends the bytes that were gathered, as far ahead of the client as it allows.
func (a *attachment) send(ctx context.Context) error {
	for b := a.buf; len(b) > 0; {
		n, err := a.room(ctx, min(len(b), a.call.server.limits.StreamPage))
		if err != nil {
			return err
		}
		if err := a.call.sendSocket(a.conn, websocket.MessageBinary, b[:n]); err != nil {
			return err
		}
		a.sent += int64(n)
		b = b[n:]
	}
	if a.buf = a.buf[:0]; cap(a.buf) > a.call.server.limits.StreamPage {
		a.buf = nil
	}
	return nil
}

// room returns how many bytes may be sent now, of those that are wanted. It waits
// until there are some.
func (a *attachment) room(ctx context.Context, want int) (int, error) {
	if a.window == 0 {
		return want, ctx.Err()
	}
	timer := time.NewTimer(a.call.server.limits.Stalled)
	defer timer.Stop()
	for {
		a.mu.Lock()
		free := a.window - (a.sent - a.acked)
		a.mu.Unlock()
		if free > 0 {
			return int(min(int64(want), free)), nil
		}
		select {
		case <-a.acks:
		case <-timer.C:
			return 0, errSlow
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// frame sends a text message.
func (a *attachment) frame(f AttachFrame) error {
	b, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("encode a message: %w", err)
	}
	return a.call.sendSocket(a.conn, websocket.MessageText, b)
}

// paint draws a screen, which was announced.
func (a *attachment) paint(ctx context.Context, drawn *screen.View) error {
	rows, cols := drawn.Size()
	a.buf = append(a.buf[:0], drawn.Paint(rows, cols)...)
	a.after = drawn.Last
	return a.flush(ctx)
}

// skipTo draws the screen as it is now instead of sending what leads to it.
func (a *attachment) skipTo(ctx context.Context) error {
	info, err := a.call.backend.Stat(ctx, a.call.run())
	if err != nil {
		return err
	}
	drawn, err := a.call.server.lens.Screen(ctx, a.call.run(), lens.ScreenQuery{At: info.Last, Quick: true})
	if err != nil {
		return err
	}
	skipped := &AttachSkip{a.after + 1, drawn.Last}
	a.bytes = info.Bytes
	if err := a.frame(AttachFrame{Skipped: skipped, Screen: screenOf(drawn)}); err != nil {
		return err
	}
	return a.paint(ctx, drawn)
}

func screenOf(v *screen.View) *AttachScreen {
	s := &AttachScreen{Seq: v.Last, Exact: v.Exact}
	s.Rows, s.Cols = v.Size()
	return s
}

// receive does what the client wants, in its order, until it leaves or must.
func (a *attachment) receive(ctx context.Context) error {
	for {
		kind, b, err := a.conn.Read(context.Background()) // the end of a context would cut the connection
		if err != nil {
			return errLeft
		}
		if err := a.take(ctx, kind == websocket.MessageBinary, b); err != nil {
			p := a.call.complete(*toProblem(err))
			if p.Code == "forbidden" || p.Code == "closing" || p.Status == 400 || ctx.Err() != nil {
				return err
			}
			if err := a.frame(AttachFrame{Problem: &p}); err != nil {
				return err
			}
		}
	}
}

// take does what a message asks for.
func (a *attachment) take(ctx context.Context, binary bool, b []byte) error {
	c := a.call
	if binary {
		if err := a.pace(ctx, access.RateInputs); err != nil || len(b) == 0 {
			return err
		}
		_, err := c.backend.Send(ctx, c.run(), spool.Input{Kind: spool.InputStdin, Bytes: b})
		return err
	}
	q, err := parseAttach(b)
	if err != nil {
		return err
	}
	if q.Ack > 0 {
		a.mu.Lock()
		a.acked += q.Ack
		a.mu.Unlock()
		select {
		case a.acks <- struct{}{}:
		default:
		}
		return nil
	}
	if err := a.pace(ctx, access.RateRequests); err != nil {
		return err
	}
	switch {
	case q.Resize != nil:
		return c.backend.Control(ctx, c.run(), spool.Control{Op: spool.ControlResize, Size: *q.Resize})
	case q.Signal != "":
		return c.backend.Control(ctx, c.run(), spool.Control{Op: spool.ControlSignal, Signal: q.Signal})
	}
	_, err = c.backend.Send(ctx, c.run(), spool.Input{Kind: spool.InputEOF})
	return err
}

// parseAttach decodes a text message of a client.
func parseAttach(b []byte) (q AttachRequest, err error) {
	if err := strict.Unmarshal(b, &q, "message"); err != nil {
		return q, bodyProblem(err)
	}
	given := 0
	for _, is := range []bool{q.Resize != nil, q.Signal != "", q.EOF, q.Ack != 0} {
		if is {
			given++
		}
	}
	if given != 1 || q.Ack < 0 {
		return q, problemf("invalid", "a message has one of the members resize, signal, eof and ack")
	}
	return q, nil
}

// pace waits as long as the rate of the subject demands.
func (a *attachment) pace(ctx context.Context, rate int) error {
	for {
		wait := a.call.server.rates.Take(a.call.subject, rate)
		if wait <= 0 {
			return nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}

// end tells the client why it is over.
func (a *attachment) end(ctx context.Context, err error) {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, errComplete) && !errors.Is(err, errSlow) {
		err = cause
	}
	switch {
	case errors.Is(err, errLeft):
		_ = a.conn.CloseNow()
		return
	case errors.Is(err, errComplete):
		_ = a.frame(AttachFrame{End: &AttachEnd{Reason: "closed", Outcome: a.info.Outcome}}) // the client may have left
		_ = a.conn.Close(websocket.StatusNormalClosure, "closed")
		return
	}
	code, reason := a.call.closeFor(err)
	if slices.Contains([]string{"revoked", "shutdown", "slow"}, reason) {
		_ = a.frame(AttachFrame{End: &AttachEnd{Reason: reason}})
	} else {
		p := a.call.complete(*toProblem(err))
		_ = a.frame(AttachFrame{Problem: &p, End: &AttachEnd{Reason: "lost"}})
	}
	_ = a.conn.Close(code, reason)
}
