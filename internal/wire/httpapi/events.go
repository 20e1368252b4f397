package httpapi

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/spool-run/spool"
)

// EventPage is a stretch of a log.
type EventPage struct {
	Events []spool.Event `json:"events"`
	Next   spool.Seq     `json:"next"` // the cursor to go on from
	Info   spool.Info    `json:"info"` // the run now, which may be ahead of Next
	// Failure is set when the owner of the run was lost, so that the rest of the
	// log cannot be read.
	Failure string `json:"failure,omitempty"`
}

// AppendJSON appends the JSON form in one pass: pages are large.
func (p *EventPage) AppendJSON(dst []byte) []byte {
	size := 1 << 10
	for i := range p.Events {
		size += p.Events[i].Size() + 128
	}
	dst = append(slices.Grow(dst, size+size/8), `{"events":[`...)
	for i := range p.Events {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = p.Events[i].AppendJSON(dst)
	}
	dst = strconv.AppendUint(append(dst, `],"next":`...), uint64(p.Next), 10)
	dst = p.Info.AppendJSON(append(dst, `,"info":`...))
	if p.Failure != "" {
		text, _ := json.Marshal(p.Failure) // a string always encodes
		dst = append(append(dst, `,"failure":`...), text...)
	}
	return append(dst, '}')
}

// Forms of the events of a run.
const (
	formSSE    = "text/event-stream"
	formNDJSON = "application/x-ndjson"
	formJSON   = "application/json"
)

// events answers with a page or a stream of events.
func (c *call) events() error {
	form, err := c.accepts(formSSE, formNDJSON, formJSON)
	if err != nil {
		return err
	}
	c.w.Header().Add("Vary", "Accept")
	if form != formJSON {
		return c.stream(form)
	}
	after, err := c.cursor()
	if err != nil {
		return err
	}
	want := eventFilter{c.query["kind"], spool.Seq(c.number("turn", 0))}
	page, err := c.page(after, int(c.number("max_bytes", int64(min(spool.DefaultPageBytes, c.server.limits.Page)))), want)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, page)
}

// page reads events that the filter selects. It waits for the first as long as the
// client wants.
func (c *call) page(after spool.Seq, maxBytes int, want eventFilter) (*EventPage, error) {
	until := time.Now().Add(c.wait())
	result := &EventPage{Events: []spool.Event{}, Next: after}
	for skimmed := 0; ; {
		page, err := c.backend.Read(c.ctx, c.run(), spool.Query{After: result.Next, MaxBytes: maxBytes, Wait: max(0, time.Until(until))})
		if err != nil {
			return nil, err
		}
		if most := c.server.limits.PageEvents; len(page.Events) > most {
			page.Events = page.Events[:most]
			page.Next = page.Events[most-1].Seq
		}
		for i := range page.Events {
			skimmed += page.Events[i].Size()
			if want.match(&page.Events[i]) {
				result.Events = append(result.Events, page.Events[i])
			}
		}
		stuck := page.Next == result.Next
		result.Next, result.Info, result.Failure = page.Next, page.Info, page.Failure
		if len(result.Events) > 0 || page.End() || stuck || skimmed > maxSkimBytes {
			return result, nil
		}
	}
}

// eventFilter selects events. The zero value selects all.
type eventFilter struct {
	kinds []string
	turn  spool.Seq
}

func (f *eventFilter) match(e *spool.Event) bool {
	return (len(f.kinds) == 0 || slices.Contains(f.kinds, string(e.Kind))) && (f.turn == 0 || e.Turn == f.turn || e.Seq == f.turn)
}

func (f *eventFilter) isAll() bool { return len(f.kinds) == 0 && f.turn == 0 }

// fromNow is the cursor of a client that wants only what comes.
const fromNow = -1

// cursor returns where the client wants to go on. The header Last-Event-ID, which a
// browser sends when it reconnects, comes before the query.
func (c *call) cursor() (spool.Seq, error) {
	text := c.r.Header.Get("Last-Event-ID")
	n := c.number("after", 0)
	if text != "" {
		var err error
		if n, err = strconv.ParseInt(text, 10, 64); err != nil || n < 0 {
			return 0, problemf("bad_cursor", "the header Last-Event-ID must be the number of an event, not %.100q", text)
		}
	} else if tail := c.number("tail_bytes", -1); tail >= 0 {
		if c.query.Has("after") {
			return 0, problemf("invalid", "after and tail_bytes exclude each other")
		}
		after, _, err := c.tail(tail, nil)
		return after, err
	}
	if n == fromNow {
		info, err := c.backend.Stat(c.ctx, c.run())
		return info.Last, err
	}
	return spool.Seq(n), nil
}

// tail finds the last bytes of the output as it is now: the cursor before the event
// in which they begin, and how many bytes of that event come before them. It looks
// at the end of the log first and goes back as far as it must.
func (c *call) tail(bytes int64, streams []string) (after spool.Seq, skip int64, err error) {
	info, err := c.backend.Stat(c.ctx, c.run())
	if err != nil {
		return 0, 0, err
	}
	for back := spool.Seq(64); ; back *= 4 {
		from := spool.Seq(0)
		if info.Last > back {
			from = info.Last - back
		}
		type piece struct {
			before spool.Seq // the cursor before it
			size   int64
		}
		var pieces []piece
		sum := int64(0)
		for at := from; at < info.Last; {
			page, err := c.backend.Read(c.ctx, c.run(), spool.Query{After: at})
			if err != nil {
				return 0, 0, err
			}
			for i := range page.Events {
				e := &page.Events[i]
				if e.Kind == spool.KindOutput && e.Seq <= info.Last && (len(streams) == 0 || slices.Contains(streams, string(e.Stream))) {
					pieces = append(pieces, piece{e.Seq - 1, int64(len(e.Bytes))})
					sum += int64(len(e.Bytes))
				}
			}
			if page.Next == at {
				break
			}
			at = page.Next
		}
		if sum < bytes && from > 0 {
			continue
		}
		for _, p := range pieces {
			if sum -= p.size; sum < bytes {
				return p.before, max(0, p.size-(bytes-sum)), nil
			}
		}
		return info.Last, 0, nil
	}
}

// event answers with one event.
func (c *call) event() error {
	e, err := c.eventAt()
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, e)
}

// eventAt reads the event that the path names.
func (c *call) eventAt() (*spool.Event, error) {
	seq, err := c.seq()
	if err != nil {
		return nil, err
	}
	page, err := c.backend.Read(c.ctx, c.run(), spool.Query{After: seq - 1, MaxBytes: 1})
	if err != nil {
		return nil, err
	}
	if len(page.Events) == 0 {
		return nil, problemf("no_event", "the log has %d events, not %d", page.Info.Last, seq)
	}
	e := &page.Events[0]
	if gap, ok := gapOf(e); ok && gap.From <= seq {
		p := problemf("trimmed", "the events %d to %d are gone", gap.From, gap.To)
		p.First = gap.To + 1
		return nil, p
	}
	return e, nil
}

// seq returns the number of an event in the path.
func (c *call) seq() (spool.Seq, error) {
	n, err := strconv.ParseUint(c.r.PathValue("seq"), 10, 64)
	if err != nil || n == 0 || n > math.MaxInt64 {
		return 0, problemf("no_event", "%.100q is no number of an event", c.r.PathValue("seq"))
	}
	return spool.Seq(n), nil
}

// gapOf returns the events for which a truncated event stands, if it does.
func gapOf(e *spool.Event) (spool.Truncation, bool) {
	var gap spool.Truncation
	if e.Kind != spool.KindTruncated || json.Unmarshal(e.Data, &gap) != nil {
		return gap, false
	}
	return gap, gap.To != 0
}

// etag is the entity tag of a description of a run.
func etag(info *spool.Info) string { return fmt.Sprintf("\"%d-%s\"", info.Last, info.State) }
