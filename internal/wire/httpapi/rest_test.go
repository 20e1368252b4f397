package httpapi_test

import (
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

// Execute implements [spool.Executor]: the answer to a start may come at the end.
func (b *rest) Execute(ctx context.Context, spec spool.Spec) (info spool.Info, err error) {
	wait := url.Values{"wait_ms": {"10000"}}
	return info, b.call(ctx, "POST", "/v1/runs", wait, spec, &info)
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
