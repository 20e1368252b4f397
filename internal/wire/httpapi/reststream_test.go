package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	fastjson "github.com/segmentio/encoding/json"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
	"github.com/spool-run/spool/internal/wire/httpapi"
)

// Follow reads the events as a server-sent stream and comes back with its cursor
// whenever the stream is cut.
func (b *rest) Follow(ctx context.Context, id spool.RunID, after spool.Seq) iter.Seq2[spool.Event, error] {
	return func(yield func(spool.Event, error) bool) {
		path, err := b.at(id, "/events")
		if err != nil {
			yield(spool.Event{}, err)
			return
		}
		for tries := 0; ; tries++ {
			if ctx.Err() != nil {
				yield(spool.Event{}, context.Cause(ctx))
				return
			}
			header := http.Header{"Accept": {"text/event-stream"}, "Last-Event-Id": {strconv.FormatUint(uint64(after), 10)}}
			resp, err := b.request(ctx, "GET", path, url.Values{"base64": {"1"}}, header, nil)
			if err != nil {
				var said *answered
				if ctx.Err() == nil && !errors.As(err, &said) && !errors.Is(err, spool.ErrClosed) && tries < 1000 {
					b.again.Add(1)
					continue
				}
				yield(spool.Event{}, err)
				return
			}
			if resp.StatusCode == http.StatusNoContent {
				resp.Body.Close()
				return
			}
			from := after
			over := b.frames(resp.Body, &after, yield)
			resp.Body.Close()
			if over {
				return
			}
			if after > from {
				tries = 0
			}
			b.again.Add(1)
		}
	}
}

// frames reads the frames of a stream. It reports whether the log or the reader is
// at its end.
func (b *rest) frames(r io.Reader, after *spool.Seq, yield func(spool.Event, error) bool) (over bool) {
	frames := newFrames(r)
	for {
		f, err := frames.next()
		if err != nil {
			return false
		}
		switch {
		case f.event == "end":
			return strings.Contains(f.data, `"closed"`)
		case f.event == "" && f.data != "":
			e, err := decodeEvent(f.data)
			if err != nil {
				yield(e, err)
				return true
			}
			if f.id != strconv.FormatUint(uint64(e.Seq), 10) {
				yield(e, fmt.Errorf("event %d has the id %q", e.Seq, f.id))
				return true
			}
			gap := e.Kind == spool.KindTruncated
			if e.Seq != *after+1 && !(gap && e.Seq > *after) {
				yield(e, fmt.Errorf("event %d came after %d", e.Seq, *after))
				return true
			}
			*after = e.Seq
			if !yield(e, nil) {
				return true
			}
		}
	}
}

// decodeEvent decodes an event as fast as a client may: some tests read much.
func decodeEvent(text string) (spool.Event, error) {
	var w struct {
		Run    spool.RunID     `json:"run"`
		Seq    spool.Seq       `json:"seq"`
		Time   time.Time       `json:"time"`
		Kind   spool.Kind      `json:"kind"`
		Turn   spool.Seq       `json:"turn"`
		Stream spool.Stream    `json:"stream"`
		Text   *string         `json:"text"`
		Base64 []byte          `json:"base64"`
		Data   json.RawMessage `json:"data"`
	}
	if err := fastjson.Unmarshal([]byte(text), &w); err != nil {
		return spool.Event{}, err
	}
	e := spool.Event{Run: w.Run, Seq: w.Seq, Time: w.Time, Kind: w.Kind, Turn: w.Turn, Stream: w.Stream, Bytes: w.Base64, Data: w.Data}
	if w.Text != nil {
		e.Bytes = []byte(*w.Text)
	}
	return e, nil
}

// frame is one message of a server-sent stream.
type frame struct{ event, id, data, comment, retry string }

// frames splits a stream into its messages, comments included.
type frames struct{ r *bufio.Reader }

func newFrames(r io.Reader) *frames { return &frames{bufio.NewReaderSize(r, 64<<10)} }

func (s *frames) next() (f frame, err error) {
	for {
		line, err := s.r.ReadString('\n')
		if err != nil {
			return f, err // a frame without its end is none
		}
		line = strings.TrimSuffix(line, "\n")
		if line == "" {
			return f, nil
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "":
			f.comment = ":" + value
		case "event":
			f.event = value
		case "id":
			f.id = value
		case "data":
			f.data = value
		case "retry":
			f.retry = value
		}
	}
}

func (b *rest) FollowRecords(ctx context.Context, id spool.RunID, after spool.Seq) iter.Seq2[*record.Batch, error] {
	return func(yield func(*record.Batch, error) bool) {
		for e, err := range b.Follow(ctx, id, after) {
			if err != nil {
				yield(nil, err)
				return
			}
			records, err := record.Append(nil, &e)
			batch := record.NewBatch(records)
			if !yield(&batch, err) {
				return
			}
		}
	}
}

// Watch implements [spool.Watcher] with server-sent events.
func (b *rest) Watch(ctx context.Context, f spool.Filter) iter.Seq2[spool.Info, error] {
	return func(yield func(spool.Info, error) bool) {
		if err := f.CheckWatch(); err != nil {
			yield(spool.Info{}, err)
			return
		}
		resp, err := b.request(ctx, "GET", "/v1/watch", filterQuery(f), http.Header{"Accept": {"text/event-stream"}}, nil)
		if err != nil {
			yield(spool.Info{}, err)
			return
		}
		defer resp.Body.Close()
		frames := newFrames(resp.Body)
		for {
			frame, err := frames.next()
			var info spool.Info
			switch {
			case ctx.Err() != nil:
				err = context.Cause(ctx)
			case err != nil:
			case frame.id != "":
				err = fmt.Errorf("a frame %s has an id", frame.event)
			case frame.event == "run":
				err = json.Unmarshal([]byte(frame.data), &info)
			case frame.event == "removed":
				var gone httpapi.RunRemoved
				err = json.Unmarshal([]byte(frame.data), &gone)
				info = spool.Info{ID: gone.Run, State: spool.StateRemoved}
			case frame.event != "sync":
				continue
			}
			if !yield(info, err) || err != nil {
				return
			}
		}
	}
}
