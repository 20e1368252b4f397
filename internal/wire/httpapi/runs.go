package httpapi

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
)

// RunList is a page of a list of runs.
type RunList struct {
	Runs []spool.Info `json:"runs"`
	// Next is the cursor of the next page; empty after the last one.
	Next string `json:"next,omitempty"`
	// Errors are those of runs that cannot be read.
	Errors []Problem `json:"errors,omitempty"`
}

// RunCounts are the numbers of runs by their state.
type RunCounts struct {
	Counts map[spool.State]int `json:"counts"`
}

// filter returns the runs that the query selects.
func (c *call) filter() (spool.Filter, error) {
	f := spool.Filter{
		Prefix: spool.RunID(c.text("prefix")), Name: c.text("name"), NameGlob: c.text("name_glob"), Engine: c.text("engine"),
		State: spool.State(c.text("state")), Live: c.flag("live"), Waiting: c.flag("waiting"), Outcome: spool.OutcomeKind(c.text("outcome")),
		Since: c.when("since"), Before: c.when("before"), Oldest: c.flag("oldest"),
	}
	for _, label := range c.query["label"] {
		key, value, ok := strings.Cut(label, ":")
		if key == "" {
			return f, problemf("invalid", "label %.100q: use KEY:VALUE, or KEY", label)
		}
		if !ok {
			f.HasLabels = append(f.HasLabels, key)
			continue
		}
		if f.Labels == nil {
			f.Labels = make(map[string]string)
		}
		f.Labels[key] = value
	}
	return f, f.Check()
}

func (c *call) listRuns() error {
	f, err := c.filter()
	if err != nil {
		return err
	}
	l := &c.server.limits
	limit := int(c.number("limit", int64(min(listPage, l.List))))
	f.Limit, f.After = limit+1, c.text("cursor") // one more tells whether there are more
	if err := f.Check(); err != nil {
		return problemf("bad_cursor", "%s", err)
	}
	list := RunList{Runs: []spool.Info{}}
	size := 0
	for info, err := range c.backend.List(c.ctx, f) {
		switch {
		case err != nil && (f.After != "" && info.ID == "" || errors.Is(err, spool.ErrClosed) || errors.Is(err, spool.ErrDenied) || c.ctx.Err() != nil):
			return err // not of one run
		case err != nil:
			p := c.complete(*toProblem(err))
			p.Run = info.ID
			list.Errors = append(list.Errors, p)
			if len(list.Errors) > l.List {
				return err
			}
			continue
		case len(list.Runs) == limit, size > l.ListBytes:
			last := list.Runs[len(list.Runs)-1]
			list.Next = last.Cursor()
			return c.reply(http.StatusOK, list)
		}
		list.Runs = append(list.Runs, info)
		for _, arg := range info.Argv {
			size += len(arg) + 4
		}
	}
	return c.reply(http.StatusOK, list)
}

func (c *call) countRuns() error {
	f, err := c.filter()
	if err != nil {
		return err
	}
	counter, err := power[spool.Counter](c, "count runs")
	if err != nil {
		return err
	}
	counts, err := counter.Count(c.ctx, f)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, RunCounts{counts})
}

// power returns the backend as an interface that not every backend has.
func power[T any](c *call, what string) (T, error) {
	p, ok := c.backend.(T)
	if !ok {
		return p, fmt.Errorf("%s: %w by this server", what, spool.ErrUnsupported)
	}
	return p, nil
}

func (c *call) startRun() error {
	var spec spool.Spec
	if err := c.decode(&spec, "spec"); err != nil {
		return err
	}
	return c.start(spec, c.begin)
}

// begin starts a run. If the client wants to wait for its end, it waits as long as that
// in the same request to the backend, if the backend can.
func (c *call) begin(ctx context.Context, spec spool.Spec) (spool.Info, error) {
	e, ok := c.backend.(spool.Executor)
	if wait := c.wait(); ok && wait > 0 {
		if spec.ID == "" {
			spec.ID = newID() // finds it when the wait is over
		}
		waitCtx, cancel := context.WithTimeout(c.ctx, wait)
		defer cancel()
		info, err := e.Execute(waitCtx, spec)
		if waitCtx.Err() != nil {
			info, err = c.backend.Stat(ctx, spec.ID)
		}
		if err == nil || waitCtx.Err() == nil && !errors.Is(err, spool.ErrUnsupported) {
			return info, err
		}
	}
	return c.backend.Start(ctx, spec)
}

func (c *call) forkRun() error {
	var spec spool.Spec
	if err := c.decode(&spec, "spec"); err != nil {
		return err
	}
	if spec.Engine != "" {
		return problemf("invalid", "a fork has the engine of its run: leave out engine")
	}
	return c.start(spec, func(ctx context.Context, spec spool.Spec) (spool.Info, error) {
		run, err := c.handle().Fork(ctx, spec)
		if err != nil {
			return spool.Info{}, err
		}
		return run.Info(ctx)
	})
}

// start starts a run and answers with its description, at once or after its end.
func (c *call) start(spec spool.Spec, begin func(context.Context, spool.Spec) (spool.Info, error)) error {
	if err := errors.Join(access.CheckLabels(spec.Labels), access.CheckPrograms(&spec)); err != nil {
		return err
	}
	if key := c.r.Header.Get("Idempotency-Key"); key != "" && spec.ID == "" {
		spec.ID = c.idOf(key)
	}
	status := http.StatusCreated
	if spec.ID != "" {
		if _, err := c.backend.Stat(c.ctx, spec.ID); err == nil {
			status = http.StatusOK
		}
	}
	until := time.Now().Add(c.wait())
	// A client that leaves does not stop a start halfway.
	info, err := begin(c.server.ctx, spec)
	if err == nil && info.State != spool.StateClosed {
		info, err = c.awaitClosed(info.ID, time.Until(until))
	}
	if err != nil {
		return err
	}
	c.w.Header().Set("Location", "/v1/runs/"+string(info.ID))
	c.w.Header().Set("ETag", etag(&info))
	return c.reply(status, &info)
}

// newID returns an id that no run has.
func newID() spool.RunID { return spool.RunID(strings.ToLower(rand.Text()[:16])) }

// idOf turns the key of a client into the id of a run: the key itself if it can be
// one, and else a digest of it and of the subject.
func (c *call) idOf(key string) spool.RunID {
	if id := spool.RunID(key); id.Check() == nil {
		return id
	}
	digest := sha256.Sum256([]byte(c.subject.Name + "\x00" + key))
	return spool.RunID(hex.EncodeToString(digest[:16]))
}

// awaitClosed waits for the end of a run so long, and describes the run.
func (c *call) awaitClosed(id spool.RunID, wait time.Duration) (spool.Info, error) {
	if wait > 0 {
		ctx, cancel := context.WithTimeout(c.ctx, wait)
		defer cancel()
		if _, err := spool.Attach(c.backend, id).Wait(ctx); err != nil && ctx.Err() == nil {
			return spool.Info{}, err
		}
	}
	return c.backend.Stat(c.ctx, id)
}

func (c *call) statRun() error {
	info, err := c.statAwaited()
	if err != nil {
		return err
	}
	tag := etag(&info)
	c.w.Header().Set("ETag", tag)
	if c.r.Header.Get("If-None-Match") == tag {
		c.w.WriteHeader(http.StatusNotModified)
		return nil
	}
	return c.reply(http.StatusOK, &info)
}

func (c *call) statAwaited() (spool.Info, error) {
	switch {
	case c.text("state") != "":
		return c.awaitClosed(c.run(), c.wait())
	case c.query.Has("after"):
		q := spool.Query{After: spool.Seq(c.number("after", 0)), MaxBytes: 1, Wait: c.wait()}
		if _, err := c.backend.Read(c.ctx, c.run(), q); err != nil {
			return spool.Info{}, err
		}
	case c.wait() > 0:
		return spool.Info{}, problemf("invalid", "wait_ms needs state or after: what to wait for")
	}
	return c.backend.Stat(c.ctx, c.run())
}

// RemoveRequest names runs to delete.
type RemoveRequest struct {
	Runs []spool.RunID `json:"runs"`
	// Dry deletes nothing: the answer is what would be deleted.
	Dry bool `json:"dry,omitempty"`
}

func (c *call) deleteRun() error {
	if _, err := c.remove(RemoveRequest{Runs: []spool.RunID{c.run()}}); err != nil {
		return err
	}
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

func (c *call) removeRuns() error {
	var r RemoveRequest
	if err := c.decode(&r, "request"); err != nil {
		return err
	}
	removed, err := c.remove(r)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, removed)
}

func (c *call) remove(r RemoveRequest) (spool.Removal, error) {
	remover, err := power[spool.Remover](c, "remove runs")
	if err != nil {
		return spool.Removal{}, err
	}
	removed, err := remover.Remove(c.ctx, r.Runs, r.Dry)
	if errors.Is(err, spool.ErrBusy) {
		err = problemf("live", "%s", err)
	}
	return removed, err
}

func (c *call) storage() error {
	remover, err := power[spool.Remover](c, "describe storage")
	if err != nil {
		return err
	}
	storage, err := remover.Storage(c.ctx)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, storage)
}

// RenameRequest gives a run another name.
type RenameRequest struct {
	Name string `json:"name"`
}

func (c *call) renameRun() error {
	var r RenameRequest
	if err := c.decode(&r, "request"); err != nil {
		return err
	}
	renamer, err := power[spool.Renamer](c, "rename runs")
	if err != nil {
		return err
	}
	info, err := renamer.Rename(c.ctx, c.run(), r.Name)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, &info)
}

func (c *call) findRun() error {
	run, err := spool.Find(c.ctx, c.backend, c.r.PathValue("name"))
	if err != nil {
		return err
	}
	to := url.URL{Path: "/v1/runs/" + string(run.ID()), RawQuery: c.r.URL.RawQuery}
	c.w.Header().Set("Location", to.String())
	c.w.WriteHeader(http.StatusTemporaryRedirect)
	return nil
}

func (c *call) controlRun() error {
	var control spool.Control
	if err := c.decode(&control, "control"); err != nil {
		return err
	}
	if err := c.backend.Control(c.ctx, c.run(), control); err != nil {
		return err
	}
	return c.reply(http.StatusAccepted, struct{}{})
}

// ResourceList is what live runs use.
type ResourceList struct {
	Runs []spool.Resources `json:"runs"`
}

func (c *call) resources() error {
	meter, err := power[spool.Meter](c, "measure runs")
	if err != nil {
		return err
	}
	var ids []spool.RunID
	for _, id := range c.query["run"] {
		ids = append(ids, spool.RunID(id))
	}
	used, err := meter.Measure(c.ctx, ids)
	if err != nil {
		return err
	}
	if used == nil {
		used = []spool.Resources{}
	}
	return c.reply(http.StatusOK, ResourceList{used})
}

// ServerInfo describes the server.
type ServerInfo struct {
	Version  string           `json:"version"`
	Time     time.Time        `json:"time"`
	Subject  string           `json:"subject"` // who asks
	Scopes   access.Scopes    `json:"scopes"`  // what it may do
	Limits   map[string]int64 `json:"limits"`
	Features []string         `json:"features"`
}

func (c *call) serverInfo() error {
	l := &c.server.limits
	info := ServerInfo{
		Version: c.server.version, Time: time.Now().UTC(), Subject: c.subject.String(), Scopes: c.subject.Scopes,
		Limits: map[string]int64{
			"body_bytes": l.Body, "stdin_bytes": l.Stdin, "streams": int64(l.Streams), "streams_of_subject": int64(l.StreamsOf),
			"streams_of_run": int64(l.StreamsOfRun), "streams_of_connection": int64(l.StreamsOfConn), "long_poll_ms": l.LongPoll.Milliseconds(), "heartbeat_ms": l.Heartbeat.Milliseconds(),
			"list_runs": int64(l.List), "page_bytes": int64(l.Page), "page_events": int64(l.PageEvents),
			"lines": int64(l.Lines), "hits": int64(l.Hits), "pattern_bytes": int64(l.Pattern), "scrollback": int64(l.Scrollback),
			"blob_bytes": l.Blob, "form_bytes": l.Form, "message_bytes": l.Message, "window_bytes": l.Window,
		},
		Features: []string{},
	}
	for name, has := range map[string]bool{
		"count": is[spool.Counter](c), "remove": is[spool.Remover](c), "rename": is[spool.Renamer](c),
		"inspect": is[spool.Inspector](c), "measure": is[spool.Meter](c), "workspaces": is[spool.Workspaces](c), "watch": is[spool.Watcher](c),
	} {
		if has {
			info.Features = append(info.Features, name)
		}
	}
	slices.Sort(info.Features)
	return c.reply(http.StatusOK, info)
}

func is[T any](c *call) bool { _, ok := c.backend.(T); return ok }
