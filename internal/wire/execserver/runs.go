package execserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/strict"
	"github.com/spool-run/spool/internal/wire/rpc"
	"github.com/spool-run/spool/internal/wire/runproto"
)

// Bounds of the run/* methods.
const (
	listPage   = 1000
	listErrors = 100
	// listBytes and listValues stop a page early: runs can have long
	// command lines.
	listBytes  = 8 << 20
	listValues = 100_000
	// runReadBytes stay below the 64 MiB of a message even if every byte
	// is escaped, runReadEvents below its 262,144 values.
	runReadBytes  = 8 << 20
	runReadEvents = 16_000
	blobChunk     = 1 << 20
	maxFollows    = 4096
	maxWindow     = 64 << 20
)

// runMethods are the run/* methods that answer once.
var runMethods = map[string]func(*conn, context.Context, json.RawMessage) (any, error){
	"run/start": (*conn).runStart, "run/execute": (*conn).runExecute, "run/stat": (*conn).runStat, "run/list": (*conn).runList, "run/read": (*conn).runRead,
	"run/send": (*conn).runSend, "run/close_stdin": (*conn).runCloseStdin, "run/blob": (*conn).runBlob,
	"run/control": (*conn).runControl, "run/resize": (*conn).runResize,
	"run/remove": (*conn).runRemove, "run/storage": (*conn).runStorage, "run/measure": (*conn).runMeasure,
	"run/rename": (*conn).runRename, "run/inspect": (*conn).runInspect,
	"run/search": (*conn).runSearch, "run/changes": (*conn).runChanges, "run/apply": (*conn).runApply, "run/discard": (*conn).runDiscard,
}

func (c *conn) routeRun(r *rpc.Request) (route, bool) {
	switch r.Method {
	case "run/follow":
		return c.routeFollow(), true
	case "run/watch":
		return c.routeWatch(), true
	case "run/start_follow":
		return c.routeStartFollow(), true
	}
	method, ok := runMethods[r.Method]
	if more, extended := c.more.Methods[r.Method]; extended && !ok {
		method, ok = func(c *conn, ctx context.Context, p json.RawMessage) (any, error) {
			return c.large(ctx, listRoom, func() (any, error) { return more(ctx, p) })
		}, true
	}
	if !ok {
		return route{}, false
	}
	rt := route{family: "run", call: func(ctx context.Context, p json.RawMessage) (any, error) {
		result, err := method(c, ctx, p)
		return result, runproto.EncodeError(err)
	}}
	switch r.Method {
	case "run/send", "run/close_stdin":
		rt.lane = "run " + peek(r.Params, "run")
	case "run/control", "run/resize", "run/stat":
		rt.control = true
	}
	return rt, true
}

func (c *conn) runStart(_ context.Context, params json.RawMessage) (any, error) {
	info, err := c.start(params)
	if err != nil {
		return nil, err
	}
	return &info, nil // it encodes itself
}

// maxExecuting is how many requests of a connection wait for the end of their runs. They
// have the places of other requests.
const maxExecuting = 256

// runExecute is runStart that answers once the run is closed, or at once if too many wait
// already or the backend cannot wait.
func (c *conn) runExecute(ctx context.Context, params json.RawMessage) (any, error) {
	defer c.executing.Add(-1)
	e, ok := c.backend.(spool.Executor)
	if c.executing.Add(1) > maxExecuting || !ok {
		return c.runStart(ctx, params)
	}
	spec, err := c.spec(params)
	if err != nil {
		return nil, err
	}
	info, err := e.Execute(ctx, spec)
	switch {
	case errors.Is(err, spool.ErrUnsupported):
		return c.runStart(ctx, params)
	case err != nil:
		return nil, err
	}
	return &info, nil
}

// start starts a run.
func (c *conn) start(encoded json.RawMessage) (spool.Info, error) {
	spec, err := c.spec(encoded)
	if err != nil {
		return spool.Info{}, err
	}
	return c.backend.Start(c.server.ctx, spec)
}

// spec returns the spec of a run to start.
func (c *conn) spec(encoded json.RawMessage) (spec spool.Spec, err error) {
	if err := strict.Unmarshal(encoded, &spec, "spec"); err != nil {
		return spec, &spool.StartError{Reason: "invalid", Err: fmt.Errorf("%w: %w", spool.ErrInvalid, err)}
	}
	if !c.server.opts.Trusted {
		if err := access.CheckLabels(spec.Labels, labelPrefix); err != nil {
			return spec, err
		}
	}
	if err := access.CheckPrograms(&spec); err != nil {
		return spec, err
	}
	if !c.server.opts.Keep { // the end of the server is that of the run
		labels := map[string]string{labelServer: c.server.id}
		maps.Copy(labels, spec.Labels)
		spec.Labels = labels
		c.server.started.Store(true)
	}
	return spec, nil
}

func (c *conn) runStat(ctx context.Context, params json.RawMessage) (any, error) {
	var p runproto.RunParams
	if err := decode(params, &p, "run"); err != nil {
		return nil, err
	}
	return c.backend.Stat(ctx, p.Run)
}

func (c *conn) runList(ctx context.Context, params json.RawMessage) (any, error) {
	var p runproto.ListParams
	if err := decode(params, &p); err != nil {
		return nil, err
	}
	if err := p.Filter.Check(); err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	if counter, ok := c.backend.(spool.Counter); ok && p.Count {
		counts, err := counter.Count(ctx, p.Filter)
		if err != nil {
			return nil, err
		}
		for _, state := range []spool.State{spool.StateRunning, spool.StateExited, spool.StateClosed} {
			counts[state] += 0 // all are named, also without such runs
		}
		return runproto.ListResult{Runs: []spool.Info{}, Counts: counts}, nil
	}
	return c.large(ctx, listRoom, func() (any, error) { return c.listRuns(ctx, &p) })
}

func (c *conn) listRuns(ctx context.Context, p *runproto.ListParams) (any, error) {
	result := runproto.ListResult{Runs: []spool.Info{}}
	// One more than fits tells whether there are more.
	f, size := p.Filter, listSize{}
	if f.Limit == 0 || f.Limit > listPage {
		f.Limit = listPage + 1
	}
	for info, err := range c.backend.List(ctx, f) {
		switch {
		case err != nil && (f.After != "" && info.ID == "" || errors.Is(err, spool.ErrClosed) || ctx.Err() != nil):
			return nil, err // not of one run
		case err != nil && len(result.Errors) < listErrors:
			var e *rpc.Error
			if errors.As(runproto.EncodeError(err), &e) {
				result.Errors = append(result.Errors, e)
			}
		case err != nil:
		case len(result.Runs) == listPage || size.isFull():
			result.More = true
			return result, nil
		default:
			result.Runs = append(result.Runs, info)
			size.add(&info)
		}
	}
	return result, nil
}

// listSize is about how much a page of run/list takes on the wire.
type listSize struct{ bytes, values int }

func (s *listSize) add(info *spool.Info) {
	s.values += 32 + len(info.Argv) + len(info.Labels)
	for _, arg := range info.Argv {
		s.bytes += len(arg)
	}
}

func (s *listSize) isFull() bool { return s.bytes > listBytes || s.values > listValues }

func (c *conn) runRead(ctx context.Context, params json.RawMessage) (any, error) {
	var p runproto.ReadParams
	if err := decode(params, &p, "run"); err != nil {
		return nil, err
	}
	q := spool.Query{After: p.After, MaxBytes: p.MaxBytes, Wait: time.Duration(max(0, min(p.WaitMs, int64(maxWait/time.Millisecond)))) * time.Millisecond}
	if q.MaxBytes <= 0 {
		q.MaxBytes = spool.DefaultPageBytes
	}
	q.MaxBytes = min(q.MaxBytes, runReadBytes)
	page, room, err := c.readFirst(ctx, p.Run, q)
	if err != nil {
		return nil, err
	}
	more, err := c.readOn(ctx, p.Run, &page, q.MaxBytes)
	room += more
	if err != nil {
		c.giveUp(room, true)
		return nil, err
	}
	if len(page.Events) > runReadEvents {
		page.Events = page.Events[:runReadEvents]
		page.Next = page.Events[runReadEvents-1].Seq
	}
	if page.Events == nil {
		page.Events = []spool.Event{}
	}
	return &sized{runproto.ReadResult{Events: page.Events, Next: page.Next, Info: page.Info}, room, true}, nil
}

// readOn adds the events after a first page, up to want bytes in all, if there
// is room, and returns the room it took.
func (c *conn) readOn(ctx context.Context, run spool.RunID, page *spool.Page, want int) (room int64, err error) {
	for i := range page.Events {
		want -= page.Events[i].Size()
	}
	if want <= 0 || page.Failure != "" || page.Next >= page.Info.Last {
		return 0, nil
	}
	bytes, room := c.roomToRead(want)
	if bytes == 0 {
		return 0, nil
	}
	more, err := c.backend.Read(ctx, run, spool.Query{After: page.Next, MaxBytes: bytes})
	if err != nil {
		c.account.Add(-room)
		return 0, err
	}
	// The events that the pages hold must not exceed the limit together.
	for n := range more.Events {
		if want -= more.Events[n].Size(); want < 0 && len(page.Events) > 0 {
			more.Events = more.Events[:n]
			more.Next = page.Next
			if n > 0 {
				more.Next = more.Events[n-1].Seq
			}
			break
		}
	}
	more.Events = slices.Concat(page.Events, more.Events)
	*page = more
	return room, nil
}

func (c *conn) runSend(ctx context.Context, params json.RawMessage) (any, error) {
	var p runproto.SendParams
	if err := decode(params, &p, "run", "input"); err != nil {
		return nil, err
	}
	return c.backend.Send(ctx, p.Run, p.Input)
}

func (c *conn) runCloseStdin(ctx context.Context, params json.RawMessage) (any, error) {
	var p runproto.RunParams
	if err := decode(params, &p, "run"); err != nil {
		return nil, err
	}
	return c.backend.Send(ctx, p.Run, spool.Input{Kind: spool.InputEOF})
}

func (c *conn) runControl(ctx context.Context, params json.RawMessage) (any, error) {
	var p runproto.ControlParams
	if err := decode(params, &p, "run", "control"); err != nil {
		return nil, err
	}
	return struct{}{}, c.backend.Control(ctx, p.Run, p.Control)
}

func (c *conn) runResize(ctx context.Context, params json.RawMessage) (any, error) {
	var p struct {
		runproto.RunParams
		spool.Size
	}
	if err := decode(params, &p, "run", "rows", "cols"); err != nil {
		return nil, err
	}
	return struct{}{}, c.backend.Control(ctx, p.Run, spool.Control{Op: spool.ControlResize, Size: p.Size})
}

func (c *conn) runBlob(ctx context.Context, params json.RawMessage) (any, error) {
	var p runproto.BlobParams
	if err := decode(params, &p, "run", "digest"); err != nil {
		return nil, err
	}
	if p.Max <= 0 || p.Max > blobChunk {
		p.Max = blobChunk
	}
	if p.Offset < 0 {
		return nil, rpc.Errorf(rpc.CodeInvalidParams, "offset must not be negative")
	}
	return c.large(ctx, int64(p.Max), func() (any, error) { return c.readBlob(ctx, &p) })
}

func (c *conn) readBlob(ctx context.Context, p *runproto.BlobParams) (any, error) {
	r, err := c.backend.Blob(ctx, p.Run, p.Digest)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if s, ok := r.(io.Seeker); ok {
		_, err = s.Seek(p.Offset, io.SeekStart)
	} else {
		_, err = io.CopyN(io.Discard, r, p.Offset)
	}
	if err != nil {
		return nil, err
	}
	chunk := make([]byte, p.Max)
	n, err := io.ReadFull(r, chunk)
	eof := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	if err != nil && !eof {
		return nil, err
	}
	return runproto.BlobResult{Bytes: chunk[:n], EOF: eof}, nil
}

// power returns the backend as an interface that not every backend has.
func power[T any](c *conn, method string) (T, error) {
	p, ok := c.backend.(T)
	if !ok {
		return p, fmt.Errorf("%s: %w by this server", method, spool.ErrUnsupported)
	}
	return p, nil
}

func (c *conn) runRemove(ctx context.Context, params json.RawMessage) (any, error) {
	var p runproto.RemoveParams
	if err := decode(params, &p, "runs"); err != nil {
		return nil, err
	}
	b, err := power[spool.Remover](c, "run/remove")
	if err != nil {
		return nil, err
	}
	return b.Remove(ctx, p.Runs, p.Dry)
}

func (c *conn) runStorage(ctx context.Context, params json.RawMessage) (any, error) {
	var p runproto.StorageParams
	if len(params) > 0 {
		if err := decode(params, &p); err != nil {
			return nil, err
		}
	}
	if p.By != "" {
		b, err := power[spool.StorageGrouper](c, "run/storage")
		if err != nil {
			return nil, err
		}
		return b.StorageBy(ctx, p.By)
	}
	b, err := power[spool.Remover](c, "run/storage")
	if err != nil {
		return nil, err
	}
	return b.Storage(ctx)
}

func (c *conn) runRename(ctx context.Context, params json.RawMessage) (any, error) {
	var p runproto.RenameParams
	if err := decode(params, &p, "run", "name"); err != nil {
		return nil, err
	}
	b, err := power[spool.Renamer](c, "run/rename")
	if err != nil {
		return nil, err
	}
	return b.Rename(ctx, p.Run, p.Name)
}

func (c *conn) runInspect(ctx context.Context, params json.RawMessage) (any, error) {
	var p runproto.InspectParams
	if err := decode(params, &p, "run", "question"); err != nil {
		return nil, err
	}
	b, err := power[spool.Inspector](c, "run/inspect")
	if err != nil {
		return nil, err
	}
	return b.Inspect(ctx, p.Run, p.Question)
}

func (c *conn) runMeasure(ctx context.Context, params json.RawMessage) (any, error) {
	var p runproto.MeasureParams
	if err := decode(params, &p); err != nil {
		return nil, err
	}
	b, err := power[spool.Meter](c, "run/measure")
	if err != nil {
		return nil, err
	}
	used, err := b.Measure(ctx, p.Runs)
	return runproto.MeasureResult{Runs: used}, err
}
