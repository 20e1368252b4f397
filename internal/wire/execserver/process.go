package execserver

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/wire/rpc"
)

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
