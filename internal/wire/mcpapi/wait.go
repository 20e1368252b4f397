package mcpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/lens"
	"github.com/spool-run/spool/internal/visible"
)

// Waiting are the arguments of a call that waits.
type Waiting struct {
	WaitMs  int    `json:"wait_ms"`
	Until   string `json:"until"`
	Match   string `json:"match"`
	QuietMs int    `json:"quiet_ms"`
}

// The reasons why a wait ended.
const (
	whyEnd    = "end"
	whyOutput = "output"
	whyQuiet  = "quiet"
	whyMatch  = "match"
	whyAsk    = "ask"
	whyTurn   = "turn"
	whyTime   = "time"
)

// closeGrace is how long a call waits for the last output of a run that has exited:
// usually nothing else holds it open.
const closeGrace = 200 * time.Millisecond

// recent is the number of events before a wait in which its progress finds the last
// line of output.
const recent = 64

// waiter waits for something to happen to a run.
type waiter struct {
	run   *spool.Run
	until string
	match *regexp.Regexp
	quiet time.Duration
	turn  spool.Seq // if not zero, the end of this turn
	after spool.Seq // from where on something counts

	call *call

	next    spool.Seq
	asks    map[spool.Seq]spool.Seq // the open ones that were seen, with their turns
	partial map[spool.Stream][]byte // lines without an end
	count   int                     // lines that were seen
	last    string                  // the last of them
	why     string
	exited  time.Time
}

// waiter returns a waiter for what the arguments say, from an event on.
func (c *call) waiter(run *spool.Run, w *Waiting, after spool.Seq) (*waiter, error) {
	x := &waiter{run: run, until: w.Until, quiet: time.Duration(w.QuietMs) * time.Millisecond, after: after, call: c,
		asks: make(map[spool.Seq]spool.Seq), partial: make(map[spool.Stream][]byte)}
	switch {
	case w.Until == whyMatch && w.Match == "":
		return nil, fmt.Errorf("%w: until=match needs the argument match", spool.ErrInvalid)
	case w.Until != whyMatch && w.Match != "":
		return nil, fmt.Errorf("%w: match goes with until=match", spool.ErrInvalid)
	case w.Match != "":
		var err error
		if x.match, err = regexp.Compile(w.Match); err != nil {
			return nil, fmt.Errorf("%w: match: %w", spool.ErrInvalid, err)
		}
	}
	return x, nil
}

// wait waits at most so long, and returns why it ended.
func (w *waiter) wait(ctx context.Context, most time.Duration) (string, error) {
	deadline := time.Now().Add(most)
	info, err := w.run.Info(ctx)
	if err != nil {
		return "", err
	}
	if most == 0 {
		return "", nil
	}
	w.next = w.after
	switch {
	case w.until == whyMatch || w.until == whyOutput || w.until == whyTurn || w.turn != 0:
	case w.until == whyEnd && info.Last > recent: // for what is said about progress
		w.next = max(w.next, info.Last-recent)
	case w.until == whyEnd:
	default:
		w.next = max(w.next, info.Last) // what is in the log already does not count
	}
	w.look(&info)
	if w.why == "" {
		keepAlive(ctx)
	}
	changed := time.Now()
	report := changed.Add(w.call.opts.Progress)
	for w.why == "" {
		now := time.Now()
		until := deadline
		if w.until == whyQuiet {
			until = earlier(until, changed.Add(w.quiet))
		}
		if !w.exited.IsZero() {
			until = earlier(until, w.exited.Add(closeGrace))
		}
		if w.token() != nil {
			until = earlier(until, report)
		}
		page, err := w.run.Read(ctx, spool.Query{After: w.next, Wait: max(until.Sub(now), 0)})
		if err != nil {
			return "", err
		}
		if page.Failure != "" {
			return "", errors.New(page.Failure)
		}
		now = time.Now()
		for i := range page.Events {
			w.event(&page.Events[i])
		}
		if len(page.Events) > 0 {
			changed = now
		}
		w.next = page.Next
		if w.why != "" {
			break
		}
		w.look(&page.Info)
		behind := page.Next < page.Info.Last // there is more, which may be what is waited for
		switch {
		case w.why != "":
		case !w.exited.IsZero() && now.Sub(w.exited) >= closeGrace:
			w.why = whyEnd
		case !now.Before(deadline) && (!behind || now.Sub(deadline) > most):
			w.why = whyTime
		case w.until == whyQuiet && !behind && now.Sub(changed) >= w.quiet:
			w.why = whyQuiet
		case w.token() != nil && !now.Before(report):
			w.progress(ctx, &page.Info)
			report = now.Add(w.call.opts.Progress)
		}
	}
	return w.why, nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// look takes what the state of the run says.
func (w *waiter) look(info *spool.Info) {
	switch {
	case info.State == spool.StateClosed:
		if w.next >= info.Last || w.until != whyMatch && w.turn == 0 {
			w.why = whyEnd
		}
	case info.Asks != nil || len(w.asks) > 0:
		w.why = whyAsk
	case info.State == spool.StateExited && w.exited.IsZero():
		w.exited = time.Now()
	}
}

// event takes an event.
func (w *waiter) event(e *spool.Event) {
	if w.why != "" {
		return
	}
	switch e.Kind {
	case spool.KindOutput:
		w.output(e)
	case spool.KindAsk:
		if e.OpensAsk() {
			w.asks[e.Seq] = e.Turn
		}
	case spool.KindDone:
		if w.turn == e.Turn || w.turn == 0 && w.until == whyTurn {
			w.why = whyTurn
		}
	}
	for ask, turn := range w.asks {
		if e.ClosesAsk(ask, turn) {
			delete(w.asks, ask)
		}
	}
}

// output looks at lines as they come, also at one without an end, such as a prompt.
func (w *waiter) output(e *spool.Event) {
	if w.until == whyOutput {
		w.why = whyOutput
	}
	open := append(w.partial[e.Stream], e.Bytes...)
	for {
		line, rest, ended := bytes.Cut(open, []byte("\n"))
		text := line[max(0, len(line)-lens.MaxLine):]
		if len(text) > 0 {
			w.last = string(text)
		}
		if w.match != nil && w.why == "" && w.match.MatchString(visible.Unstyled(string(bytes.TrimSuffix(text, []byte("\r"))))) {
			w.why = whyMatch
		}
		if !ended {
			open = text
			break
		}
		w.count++
		open = rest
	}
	w.partial[e.Stream] = bytes.Clone(open)
}

// token is what the client gave to hear how far the call is; nil means nothing.
func (w *waiter) token() any { return w.call.req.Params.GetProgressToken() }

// progress tells the client how far the run is.
func (w *waiter) progress(ctx context.Context, info *spool.Info) {
	text := fmt.Sprintf("%d bytes", info.Bytes)
	if w.count > 0 {
		text += fmt.Sprintf(", %d new lines", w.count)
	}
	if w.last != "" {
		text += ": " + visible.Short(w.last, 200)
	}
	// An error means that the client is gone, which ctx says too.
	_ = w.call.req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
		ProgressToken: w.token(), Progress: time.Since(info.Created).Seconds(), Message: text,
	})
}
