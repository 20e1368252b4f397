package httpapi_test

import (
	"bufio"
	"bytes"
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
	"sync/atomic"
	"syscall"
	"time"

	fastjson "github.com/segmentio/encoding/json"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
	"github.com/spool-run/spool/internal/wire/httpapi"
	"github.com/spool-run/spool/search"
)

// rest is a backend made of nothing but requests to the HTTP API: what it can do, a
// client in any language can.
type rest struct {
	url    string
	client *http.Client
	token  string
	closed atomic.Bool
	again  atomic.Int64 // reconnects of streams
}

var (
	_ spool.Backend    = (*rest)(nil)
	_ record.Follower  = (*rest)(nil)
	_ spool.Remover    = (*rest)(nil)
	_ spool.Renamer    = (*rest)(nil)
	_ spool.Counter    = (*rest)(nil)
	_ spool.Watcher    = (*rest)(nil)
	_ spool.Inspector  = (*rest)(nil)
	_ spool.Workspaces = (*rest)(nil)
)

// Close makes every later call fail.
func (b *rest) Close() error {
	b.closed.Store(true)
	b.client.CloseIdleConnections()
	return nil
}

// request sends a request and returns an answer that is a success.
func (b *rest) request(ctx context.Context, method, path string, query url.Values, header http.Header, body io.Reader) (*http.Response, error) {
	if b.closed.Load() {
		return nil, spool.ErrClosed
	}
	u := b.url + path
	if len(query) > 0 {
		u += "?" + query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, method, u, body)
	if err != nil {
		return nil, err
	}
	for k, v := range header {
		r.Header[k] = v
	}
	if b.token != "" {
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	resp, err := b.client.Do(r)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, err
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, problemError(resp)
}

// problemError turns a problem back into what the backend returned.
func problemError(resp *http.Response) error {
	var p httpapi.Problem
	if err := json.NewDecoder(resp.Body).Decode(&p); err != nil {
		return fmt.Errorf("status %d without a problem: %w", resp.StatusCode, err)
	}
	var errs []error
	if s := httpapi.SentinelOf(p.Code); s != nil {
		errs = append(errs, s)
	}
	if p.Errno != 0 {
		errs = append(errs, syscall.Errno(p.Errno))
	}
	err := error(&answered{&p, p.Detail, errs})
	if reason, ok := strings.CutPrefix(p.Code, "start_"); ok {
		return &spool.StartError{Reason: reason, Hint: p.Hint, Err: &answered{&p, strings.TrimPrefix(p.Detail, "start: "), errs}}
	}
	return err
}

// answered has the text of a problem and the identity of our errors.
type answered struct {
	problem *httpapi.Problem
	text    string
	errs    []error
}

func (e *answered) Error() string   { return e.text }
func (e *answered) Unwrap() []error { return e.errs }

// call sends JSON and decodes the answer.
func (b *rest) call(ctx context.Context, method, path string, query url.Values, in, out any) error {
	var body io.Reader
	header := http.Header{}
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(data)
		header.Set("Content-Type", "application/json")
	}
	resp, err := b.request(ctx, method, path, query, header, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("decode the answer to %s %s: %w", method, path, err)
	}
	return nil
}

// at is the address of a run. An empty id has none.
func (b *rest) at(id spool.RunID, rest string) (string, error) {
	if b.closed.Load() {
		return "", spool.ErrClosed
	}
	if id == "" {
		return "", spool.ErrNotFound
	}
	return "/v1/runs/" + url.PathEscape(string(id)) + rest, nil
}

func (b *rest) Start(ctx context.Context, spec spool.Spec) (info spool.Info, err error) {
	return info, b.call(ctx, "POST", "/v1/runs", nil, spec, &info)
}

func (b *rest) Stat(ctx context.Context, id spool.RunID) (info spool.Info, err error) {
	path, err := b.at(id, "")
	if err != nil {
		return info, err
	}
	return info, b.call(ctx, "GET", path, nil, nil, &info)
}

// filter is the query of a filter, but for limit and cursor.
func filterQuery(f spool.Filter) url.Values {
	q := url.Values{}
	set := func(name, value string) {
		if value != "" {
			q.Set(name, value)
		}
	}
	set("prefix", string(f.Prefix))
	set("name", f.Name)
	set("name_glob", f.NameGlob)
	set("engine", f.Engine)
	set("state", string(f.State))
	set("outcome", string(f.Outcome))
	if f.Live {
		q.Set("live", "1")
	}
	if f.Waiting {
		q.Set("waiting", "1")
	}
	if f.Oldest {
		q.Set("oldest", "1")
	}
	if !f.Since.IsZero() {
		q.Set("since", f.Since.UTC().Format(time.RFC3339Nano))
	}
	if !f.Before.IsZero() {
		q.Set("before", f.Before.UTC().Format(time.RFC3339Nano))
	}
	for k, v := range f.Labels {
		q.Add("label", k+":"+v)
	}
	for _, k := range f.HasLabels {
		q.Add("label", k)
	}
	return q
}

func (b *rest) List(ctx context.Context, f spool.Filter) iter.Seq2[spool.Info, error] {
	return func(yield func(spool.Info, error) bool) {
		q := filterQuery(f)
		if f.After != "" {
			q.Set("cursor", f.After)
		}
		for left := f.Limit; ; {
			q.Set("limit", strconv.Itoa(min(left, 1000)))
			if left == 0 {
				q.Set("limit", "1000")
			}
			var page httpapi.RunList
			if err := b.call(ctx, "GET", "/v1/runs", q, nil, &page); err != nil {
				yield(spool.Info{}, err)
				return
			}
			for _, p := range page.Errors {
				if !yield(spool.Info{ID: p.Run}, errors.New(p.Detail)) {
					return
				}
			}
			for _, info := range page.Runs {
				if !yield(info, nil) {
					return
				}
			}
			if left > 0 {
				if left -= len(page.Runs); left <= 0 {
					return
				}
			}
			if page.Next == "" {
				return
			}
			q.Set("cursor", page.Next)
		}
	}
}

func (b *rest) Count(ctx context.Context, f spool.Filter) (map[spool.State]int, error) {
	var counts httpapi.RunCounts
	err := b.call(ctx, "GET", "/v1/count", filterQuery(f), nil, &counts)
	return counts.Counts, err
}

func (b *rest) Read(ctx context.Context, id spool.RunID, q spool.Query) (spool.Page, error) {
	path, err := b.at(id, "/events")
	if err != nil {
		return spool.Page{}, err
	}
	v := url.Values{"after": {strconv.FormatUint(uint64(q.After), 10)}}
	if q.MaxBytes > 0 {
		v.Set("max_bytes", strconv.Itoa(q.MaxBytes))
	}
	until := time.Now().Add(q.Wait)
	for {
		wait := time.Until(until)
		if wait > 0 {
			v.Set("wait_ms", strconv.FormatInt(max(1, min(wait.Milliseconds(), 10_000)), 10))
		} else {
			v.Del("wait_ms")
		}
		var page httpapi.EventPage
		if err := b.call(ctx, "GET", path, v, nil, &page); err != nil {
			return spool.Page{}, err
		}
		p := spool.Page{Events: page.Events, Next: page.Next, Info: page.Info, Failure: page.Failure}
		if len(p.Events) > 0 || p.End() || wait <= 0 {
			return p, nil
		}
	}
}

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

func (b *rest) Send(ctx context.Context, id spool.RunID, in spool.Input) (receipt spool.Receipt, err error) {
	path, err := b.at(id, "/input")
	if err != nil {
		return receipt, err
	}
	if in.Kind != spool.InputStdin {
		return receipt, b.call(ctx, "POST", path, nil, in, &receipt)
	}
	q := url.Values{}
	if in.ID != "" {
		q.Set("id", in.ID)
	}
	resp, err := b.request(ctx, "POST", path, q, http.Header{"Content-Type": {"application/octet-stream"}}, bytes.NewReader(in.Bytes))
	if err != nil {
		return receipt, err
	}
	defer resp.Body.Close()
	return receipt, json.NewDecoder(resp.Body).Decode(&receipt)
}

func (b *rest) Control(ctx context.Context, id spool.RunID, c spool.Control) error {
	path, err := b.at(id, "/control")
	if err != nil {
		return err
	}
	return b.call(ctx, "POST", path, nil, c, nil)
}

func (b *rest) Blob(ctx context.Context, id spool.RunID, d spool.Digest) (io.ReadCloser, error) {
	path, err := b.at(id, "/blobs/"+url.PathEscape(string(d)))
	if err != nil {
		return nil, err
	}
	if d == "" {
		return nil, spool.ErrInvalid // has no address
	}
	resp, err := b.request(ctx, "GET", path, nil, nil, nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

func (b *rest) Remove(ctx context.Context, ids []spool.RunID, dry bool) (removed spool.Removal, err error) {
	return removed, b.call(ctx, "POST", "/v1/remove", nil, httpapi.RemoveRequest{Runs: ids, Dry: dry}, &removed)
}

func (b *rest) Storage(ctx context.Context) (s spool.Storage, err error) {
	return s, b.call(ctx, "GET", "/v1/storage", nil, nil, &s)
}

func (b *rest) Rename(ctx context.Context, id spool.RunID, name string) (info spool.Info, err error) {
	path, err := b.at(id, "")
	if err != nil {
		return info, err
	}
	return info, b.call(ctx, "PATCH", path, nil, httpapi.RenameRequest{Name: name}, &info)
}

func (b *rest) Inspect(ctx context.Context, id spool.RunID, question json.RawMessage) (answer json.RawMessage, err error) {
	path, err := b.at(id, "/inspect")
	if err != nil {
		return nil, err
	}
	return answer, b.call(ctx, "POST", path, nil, question, &answer)
}

func (b *rest) Search(ctx context.Context, q search.Query) (search.Page, error) {
	v := filterQuery(q.Filter)
	v.Set("q", q.Pattern)
	if !q.Literal {
		v.Set("mode", "regex")
	}
	if q.IgnoreCase {
		v.Set("ignore_case", "1")
	}
	if q.Limit != 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	if q.After != "" {
		v.Set("cursor", q.After)
	}
	if q.Filter.Limit != 0 {
		return search.Page{}, spool.ErrInvalid // has no parameter
	}
	for _, id := range q.Runs {
		v.Add("run", string(id))
	}
	var page httpapi.SearchPage
	err := b.call(ctx, "GET", "/v1/search", v, nil, &page)
	result := search.Page{Hits: page.Hits, Next: page.Next, Bytes: page.Bytes}
	for _, p := range page.Errors {
		result.Errors = append(result.Errors, errors.New(p.Detail))
	}
	return result, err
}

func (b *rest) Changes(ctx context.Context, id spool.RunID, q spool.ChangeQuery) (page spool.ChangePage, err error) {
	path, err := b.at(id, "/changes")
	if err != nil {
		return page, err
	}
	v := url.Values{}
	if q.Patch {
		v.Set("patch", "1")
	}
	if q.After != "" {
		v.Set("after", q.After)
	}
	if q.MaxBytes > 0 {
		v.Set("max_bytes", strconv.Itoa(q.MaxBytes))
	}
	return page, b.call(ctx, "GET", path, v, nil, &page)
}

func (b *rest) Apply(ctx context.Context, id spool.RunID, paths []string, dry bool) (page spool.ChangePage, err error) {
	path, err := b.at(id, "/apply")
	if err != nil {
		return page, err
	}
	var r httpapi.ApplyRequest
	for _, p := range paths {
		r.PathsBase64 = append(r.PathsBase64, []byte(p))
	}
	r.Dry = dry
	err = b.call(ctx, "POST", path, nil, r, &page)
	var said *answered
	if errors.As(err, &said) && said.problem.Changes != nil {
		page = *said.problem.Changes
	}
	return page, err
}

func (b *rest) Discard(ctx context.Context, id spool.RunID) error {
	path, err := b.at(id, "/discard")
	if err != nil {
		return err
	}
	return b.call(ctx, "POST", path, nil, nil, nil)
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
