package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"time"

	"github.com/spool-run/spool"
)

// watchBuffer is how many descriptions wait for a client of a watch while it takes
// others.
const watchBuffer = 64

// RunRemoved names a run that was deleted.
type RunRemoved struct {
	Run spool.RunID `json:"run"`
}

// watched is a step of a watch.
type watched struct {
	info spool.Info
	err  error
}

// watch answers with the runs that the query selects, and then with each that
// changes. It is what is, not what was: its frames have no ids, and a client that
// comes back gets everything again.
func (c *call) watch() error {
	if _, err := c.accepts(formSSE); err != nil {
		return err
	}
	f, err := c.filter()
	if err != nil {
		return err
	}
	watcher, err := power[spool.Watcher](c, "watch runs")
	if err != nil {
		return err
	}
	end, err := c.server.streams.beginWatch(c)
	if err != nil {
		return err
	}
	defer end()
	c.unbuffered(formSSE)
	c.w.WriteHeader(http.StatusOK)
	if c.r.Method == http.MethodHead {
		return nil
	}
	ctx, cancel := context.WithCancel(c.ctx)
	steps := make(chan watched, watchBuffer)
	go func() {
		defer close(steps)
		for info, err := range watcher.Watch(ctx, f) {
			select {
			case steps <- watched{info: info, err: err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	defer func() {
		cancel()
		for range steps { // it ends before the answer does
		}
	}()
	s := c.newStream(0)
	s.retry()
	s.watch(steps, newAskList(c, nil, nil))
	return nil
}

// watch writes the steps of a watch until it or the stream ends.
func (s *eventStream) watch(steps <-chan watched, asks *askList) {
	synced := false
	heart := time.NewTicker(s.heartbeat)
	defer heart.Stop()
	var failed error
	for {
		if len(steps) == 0 { // write what there is
			if synced && asks.changed() {
				if err := asks.load(); err != nil {
					s.giveUp(err)
					return
				}
				s.frame("asks", asks.list())
			}
			if !s.flush() {
				return
			}
		}
		select {
		case step, ok := <-steps:
			switch {
			case !ok:
				if failed == nil {
					failed = context.Cause(s.ctx)
				}
				s.giveUp(failed)
				return
			case step.err != nil:
				failed = step.err
			case step.info.ID == "":
				failed, synced = nil, true
				asks.force = true
				s.frame("sync", struct{}{})
			case step.info.State == spool.StateRemoved:
				failed = nil
				asks.note(&step.info)
				s.frame("removed", RunRemoved{step.info.ID})
			default:
				failed = nil
				asks.note(&step.info)
				s.frame("run", &step.info)
			}
			if len(s.buf) > s.server.limits.StreamPage && !s.flush() {
				return
			}
		case <-heart.C:
			if time.Since(s.spoke) >= s.heartbeat/2 {
				s.comment()
			}
		}
	}
}

// frame writes a frame without an id.
func (s *eventStream) frame(name string, v any) {
	s.buf = append(append(append(s.buf, "event: "...), name...), "\ndata: "...)
	if a, ok := v.(appender); ok {
		s.buf = a.AppendJSON(s.buf)
	} else {
		data, _ := json.Marshal(v) // our types always encode
		s.buf = append(s.buf, data...)
	}
	s.buf = append(s.buf, "\n\n"...)
}

// asks answers with the open asks of runs, once their set differs from the one that
// the client has, or the time is up.
func (c *call) asks() error {
	watcher, err := power[spool.Watcher](c, "watch runs")
	if err != nil {
		return err
	}
	since, wait := c.text("since"), c.wait()
	list := newAskList(c, c.query["run"], c.query["kind"])
	for info, err := range c.backend.List(c.ctx, spool.Filter{Waiting: true}) {
		switch {
		case errors.Is(err, spool.ErrClosed), errors.Is(err, spool.ErrDenied), err != nil && c.ctx.Err() != nil:
			return err
		case err == nil: // otherwise it is of one run
			list.note(&info)
		}
	}
	if err := list.load(); err != nil {
		return err
	}
	if wait > 0 && c.query.Has("since") && list.version() == since {
		ctx, cancel := context.WithTimeout(c.ctx, wait)
		defer cancel()
		if list, err = c.awaitAsks(watcher.Watch(ctx, spool.Filter{Waiting: true}), list); err != nil {
			return err
		}
	}
	return c.reply(http.StatusOK, list.list())
}

// awaitAsks returns the asks once they differ from those of a list, or the list if the
// watch ends before.
func (c *call) awaitAsks(watch iter.Seq2[spool.Info, error], old *askList) (*askList, error) {
	list, synced := newAskList(c, old.runs, old.kinds), false
	list.known = old.known
	for info, err := range watch {
		switch {
		case err != nil && (c.ctx.Err() != nil || errors.Is(err, spool.ErrClosed)):
			return nil, err
		case err != nil: // the time is up, or it is of one run
			continue
		case info.ID != "":
			list.note(&info)
		default:
			synced = true
		}
		if !synced {
			continue
		}
		if err := list.load(); err != nil {
			return nil, err
		}
		if list.version() != old.version() {
			return list, nil
		}
	}
	return old, nil
}
