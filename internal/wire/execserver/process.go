package execserver

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"iter"
	"strconv"
	"syscall"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/record"
	"github.com/spool-run/spool/internal/wire/execserver/fileuri"
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

// defaultSize is the size of a terminal until it is resized.
var defaultSize = spool.Size{Rows: 24, Cols: 80}

func (c *conn) routeProcess(r *rpc.Request) (route, bool) {
	const family = "exec"
	switch r.Method {
	case "process/start":
		return c.routeStart(r), true
	case "process/read":
		return c.routeRead(), true
	case "process/write":
		return route{family: family, lane: "process " + peek(r.Params, "processId"), call: c.processWrite}, true
	case "process/signal":
		return route{family: family, control: true, call: c.processSignal}, true
	case "process/terminate":
		return route{family: family, control: true, call: c.processTerminate}, true
	}
	return route{}, false
}

// startParams are the params of process/start.
type startParams struct {
	ProcessID string            `json:"processId"`
	Argv      []string          `json:"argv"`
	Cwd       string            `json:"cwd"`
	Env       map[string]string `json:"env"`
	TTY       bool              `json:"tty"`
	PipeStdin bool              `json:"pipeStdin"`
	Arg0      *string           `json:"arg0"`
	EnvPolicy json.RawMessage   `json:"envPolicy"`
	Metadata  *struct {
		ThreadID   *string `json:"threadId"`
		ToolCallID *string `json:"toolCallId"`
	} `json:"metadata"`
	Sandbox               json.RawMessage `json:"sandbox"`
	EnforceManagedNetwork bool            `json:"enforceManagedNetwork"`
	NetworkProxy          json.RawMessage `json:"networkProxy"`

	ShellSnapshot *snapshotRequest `json:"shellSnapshot"`
}

// envPolicy is a [spool.EnvPolicy] in the spelling of the dialect.
type envPolicy struct {
	Inherit               string            `json:"inherit"`
	IgnoreDefaultExcludes bool              `json:"ignoreDefaultExcludes"`
	Exclude               []string          `json:"exclude"`
	Set                   map[string]string `json:"set"`
	IncludeOnly           []string          `json:"includeOnly"`
}

// spec checks the params and returns the spec of the run.
func (p *startParams) spec(sess *session) (spool.Spec, error) {
	var spec spool.Spec
	if len(p.Argv) == 0 {
		return spec, rpc.Errorf(rpc.CodeInvalidParams, "argv must not be empty")
	}
	cwd, err := fileuri.Parse(p.Cwd)
	var foreign *fileuri.HostError
	if errors.As(err, &foreign) {
		return spec, rpc.Errorf(rpc.CodeInvalidParams, "cwd URI `%s` is not valid on this exec-server host: %s", foreign.URI, err)
	}
	if err != nil {
		return spec, rpc.Errorf(rpc.CodeInvalidParams, "%s", err)
	}
	if err := checkProcess(p.Sandbox, cwd); err != nil {
		return spec, err
	}
	if p.EnforceManagedNetwork || !isNull(p.NetworkProxy) {
		return spec, rpc.Errorf(rpc.CodeInvalidParams, "this server cannot enforce a managed network: it does not advertise networkProxyLaunch")
	}
	spec = spool.Spec{
		Argv: p.Argv, Cwd: cwd, Env: make(map[string]string, len(p.Env)+2), Stdin: p.PipeStdin,
		Labels: map[string]string{labelSession: sess.label(), labelProcess: p.ProcessID},
	}
	for k, v := range p.Env {
		spec.Env[k] = v
	}
	if p.TTY {
		spec.TTY = &defaultSize
	}
	if p.Arg0 != nil {
		spec.Arg0 = *p.Arg0
	}
	if m := p.Metadata; m != nil {
		if m.ThreadID != nil {
			id, ok := parseUUID(*m.ThreadID)
			if !ok {
				return spec, rpc.Errorf(rpc.CodeInvalidParams, "metadata.threadId must be a UUID")
			}
			spec.Env["CODEX_THREAD_ID"] = id
		}
		if m.ToolCallID != nil {
			spec.Env["CODEX_TOOL_CALL_ID"] = *m.ToolCallID
		}
	}
	if !isNull(p.EnvPolicy) {
		var policy envPolicy
		if err := decode(p.EnvPolicy, &policy, "inherit", "ignoreDefaultExcludes", "exclude", "set", "includeOnly"); err != nil {
			return spec, err
		}
		switch policy.Inherit {
		case "all", "core", "none":
		default:
			return spec, rpc.Errorf(rpc.CodeInvalidParams, "unknown variant `%s`, expected one of `core`, `all`, `none`", policy.Inherit)
		}
		spec.EnvPolicy = (*spool.EnvPolicy)(&policy)
	}
	return spec, nil
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// routeStart reserves the process id on the reading goroutine, so that a
// terminate right after the start finds it.
func (c *conn) routeStart(r *rpc.Request) route {
	rt := route{family: "exec", call: func(context.Context, json.RawMessage) (any, error) { return nil, nil }}
	refuse := func(err error) route {
		rt.call = func(context.Context, json.RawMessage) (any, error) { return nil, err }
		return rt
	}
	if err := c.checkReady(rt.family); err != nil {
		return refuse(err)
	}
	var p startParams
	if err := decode(r.Params, &p, "processId", "argv", "cwd", "env", "tty"); err != nil {
		return refuse(err)
	}
	spec, err := p.spec(c.session)
	if err != nil {
		return refuse(err)
	}
	restore := false
	if p.ShellSnapshot != nil {
		if restore, err = p.ShellSnapshot.check(p.Argv); err != nil {
			return refuse(err)
		}
	}
	c.session.sweep()
	proc, err := c.session.reserve(p.ProcessID, c)
	if err != nil {
		return refuse(err)
	}
	rt.lane = "process " + p.ProcessID
	rt.call = func(context.Context, json.RawMessage) (any, error) {
		if restore && c.subject.Scopes.Require(access.StartOf(spool.EngineProcess)) == nil {
			if err := c.session.snapshots.apply(c.server.ctx, p.ShellSnapshot, &spec); err != nil {
				c.server.log.Info("a shell starts with its startup files", "process", proc.id, "err", err)
			}
		}
		return c.processStart(proc, spec)
	}
	rt.after = func(any) { c.followers.Go(func() { c.push(proc, 0, 0) }) }
	return rt
}

func (c *conn) processStart(p *process, spec spool.Spec) (any, error) {
	// Do not use the connection's context: the session must own a successful
	// start even if the client has disconnected.
	info, err := c.backend.Start(c.server.ctx, spec)
	if err != nil {
		c.session.release(p)
		return nil, startError(err)
	}
	p.mu.Lock()
	p.run, p.tty = info.ID, info.TTY
	cancelled := p.cancelled
	close(p.started)
	p.mu.Unlock()
	if cancelled {
		c.session.drop(p)
		_ = c.backend.Control(c.server.ctx, info.ID, spool.Control{Op: spool.ControlKill})
		return nil, rpc.Errorf(rpc.CodeInvalidRequest, "process %s start was cancelled", p.id)
	}
	return struct {
		ProcessID   string `json:"processId"`
		SandboxType string `json:"sandboxType"`
	}{p.id, "none"}, nil
}

// startError describes a failed start in the wording that codex clients know.
func startError(err error) error {
	var se *spool.StartError
	if !errors.As(err, &se) {
		return rpc.Errorf(rpc.CodeInternal, "%s", err)
	}
	if se.Reason == "invalid" {
		return rpc.Errorf(rpc.CodeInternal, "%s", se.Err)
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return rpc.Errorf(rpc.CodeInternal, "%s", osText(errno))
	}
	return rpc.Errorf(rpc.CodeInternal, "%s", err)
}

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
	return append(b, `,"sandboxDenied":false}`...)
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

// push sends the events of a process after a cursor as notifications, in order,
// until the process is closed or the connection ends. The log is known to have
// events up to last.
func (c *conn) push(p *process, after, last spool.Seq) {
	id := appendJSONString(nil, p.id)
	var b []byte
	for e, err := range c.events(p.run, after, last) {
		if err != nil {
			if c.ctx.Err() == nil {
				// Without events the client would wait for ever. Close the
				// connection: the client reconnects and reads what it missed.
				c.server.log.Warn("following a process", "process", p.id, "run", p.run, "err", err)
				c.cancel()
			}
			return
		}
		b = appendNotification(b[:0], id, &e, p.tty)
		if c.rpc.Send(false, b) != nil {
			return
		}
		if e.Kind == spool.KindClosed {
			p.done.Store(true)
		}
	}
}

// events follows a run for a caller that does not keep an event after it
// requests the next: they share one buffer.
func (c *conn) events(run spool.RunID, after, last spool.Seq) iter.Seq2[spool.Event, error] {
	return func(yield func(spool.Event, error) bool) {
		for b, err := range c.batches(c.ctx, run, after, last, 0) {
			if err != nil {
				yield(spool.Event{}, err)
				return
			}
			for len(b) > 0 {
				e, n, err := record.Decode(b)
				if !yield(e, err) || err != nil {
					return
				}
				b = b[n:]
			}
		}
	}
}

func appendNotification(b, id []byte, e *spool.Event, tty bool) []byte {
	switch e.Kind {
	case spool.KindExited:
		b = append(b, `{"method":"process/exited","params":{"processId":`...)
	case spool.KindClosed:
		b = append(b, `{"method":"process/closed","params":{"processId":`...)
	default:
		b = append(b, `{"method":"process/output","params":{"processId":`...)
	}
	b = append(b, id...)
	b = append(b, `,"seq":`...)
	b = strconv.AppendUint(b, uint64(e.Seq), 10)
	switch e.Kind {
	case spool.KindExited:
		o, _ := e.Outcome()
		b = append(b, `,"exitCode":`...)
		b = strconv.AppendInt(b, int64(o.Code), 10)
		b = append(b, `,"sandboxDenied":false`...)
	case spool.KindClosed:
	default:
		b = appendChunk(b, e, tty)
	}
	return append(b, "}}"...)
}

func appendJSONString(b []byte, s string) []byte {
	q, err := json.Marshal(s)
	if err != nil { // encoding a string never fails
		return append(b, `""`...)
	}
	return append(b, q...)
}

func (c *conn) processWrite(ctx context.Context, params json.RawMessage) (any, error) {
	var p struct {
		ProcessID string `json:"processId"`
		Chunk     string `json:"chunk"`
		WriteID   string `json:"writeId"`
	}
	if err := decode(params, &p, "processId", "chunk", "writeId"); err != nil {
		return nil, err
	}
	if p.WriteID == "" {
		return nil, rpc.Errorf(rpc.CodeInvalidParams, "writeId must not be empty")
	}
	data, err := decodeBase64(p.Chunk)
	if err != nil {
		return nil, rpc.Errorf(rpc.CodeInvalidParams, "%s", err)
	}
	type status struct {
		Status string `json:"status"`
	}
	proc, err := c.session.lookup(ctx, p.ProcessID)
	if errors.Is(err, errGone) {
		return nil, err
	}
	if err != nil {
		return status{"unknownProcess"}, nil
	}
	_, err = c.backend.Send(ctx, proc.run, spool.Input{ID: p.WriteID, Kind: spool.InputStdin, Bytes: data})
	switch {
	case errors.Is(err, spool.ErrInputClosed), errors.Is(err, spool.ErrEnded):
		return status{"stdinClosed"}, nil
	case errors.Is(err, spool.ErrNotFound):
		return status{"unknownProcess"}, nil
	case err != nil:
		return nil, rpc.Errorf(rpc.CodeInternal, "failed to write to process stdin: %s", err)
	}
	return status{"accepted"}, nil
}

func (c *conn) processSignal(ctx context.Context, params json.RawMessage) (any, error) {
	var p struct {
		ProcessID string `json:"processId"`
		Signal    string `json:"signal"`
	}
	if err := decode(params, &p, "processId", "signal"); err != nil {
		return nil, err
	}
	if p.Signal != "interrupt" {
		return nil, rpc.Errorf(rpc.CodeInvalidParams, "unknown variant `%s`, expected `interrupt`", p.Signal)
	}
	if proc, err := c.session.lookup(ctx, p.ProcessID); err == nil {
		err := c.backend.Control(ctx, proc.run, spool.Control{Op: spool.ControlInterrupt})
		if err != nil && !errors.Is(err, spool.ErrEnded) && !errors.Is(err, spool.ErrNotFound) {
			return nil, rpc.Errorf(rpc.CodeInternal, "signal process %s: %s", p.ProcessID, err)
		}
	}
	return struct{}{}, nil
}

func (c *conn) processTerminate(ctx context.Context, params json.RawMessage) (any, error) {
	var p struct {
		ProcessID string `json:"processId"`
	}
	if err := decode(params, &p, "processId"); err != nil {
		return nil, err
	}
	running, err := c.terminate(ctx, p.ProcessID)
	if err != nil {
		return nil, rpc.Errorf(rpc.CodeInternal, "terminate process %s: %s", p.ProcessID, err)
	}
	return struct {
		Running bool `json:"running"`
	}{running}, nil
}

// terminate kills a process and reports whether it was running.
func (c *conn) terminate(ctx context.Context, id string) (bool, error) {
	c.session.mu.Lock()
	proc, ok := c.session.procs[id]
	c.session.mu.Unlock()
	if _, lasting := c.server.opts.Backend.(leaser); !ok && lasting {
		n := c.server.killLabelled(map[string]string{labelSession: c.session.label(), labelProcess: id})
		return n > 0, nil
	}
	if !ok {
		return false, nil
	}
	proc.mu.Lock()
	select {
	case <-proc.started:
	default:
		proc.cancelled = true
	}
	cancelled := proc.cancelled
	proc.mu.Unlock()
	if cancelled {
		return true, nil
	}
	if proc.run == "" {
		return false, nil
	}
	info, err := c.server.opts.Backend.Stat(ctx, proc.run) // a process of the session is the subject's
	if err != nil || info.State == spool.StateClosed {
		return false, nil
	}
	running := info.Outcome == nil
	if err := c.backend.Control(ctx, proc.run, spool.Control{Op: spool.ControlKill}); err != nil {
		return running, err
	}
	return running, nil
}
