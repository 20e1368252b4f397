package execserver

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"syscall"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/wire/execserver/fileuri"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// defaultSize is the size of a terminal until it is resized.
var defaultSize = spool.Size{Rows: 24, Cols: 80}

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

	proxy *proxyLaunch // networkProxy, once it is checked; nil for none
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
	if p.proxy, err = parseProxyLaunch(p.NetworkProxy, p.ProcessID); err != nil {
		return spec, err
	}
	if p.EnforceManagedNetwork && p.proxy == nil {
		return spec, rpc.Errorf(rpc.CodeInvalidParams, "this server cannot enforce a managed network without a networkProxy")
	}
	isolation, err := processIsolation(p.Sandbox, cwd, p.EnforceManagedNetwork)
	if err != nil {
		return spec, err
	}
	spec = spool.Spec{
		Argv: p.Argv, Cwd: cwd, Env: make(map[string]string, len(p.Env)+2), Stdin: p.PipeStdin, Isolation: isolation,
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
	settle(&spec)
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
		if err := c.startProxy(proc, &p, &spec); err != nil {
			c.session.release(proc)
			return nil, rpc.Errorf(rpc.CodeInternal, "%s", err)
		}
		return c.processStart(proc, spec, sandboxType(p.Sandbox))
	}
	rt.after = func(any) { c.following(func() { c.push(proc, 0, 0) }) }
	return rt
}

// startProxy starts the network proxy that a process is to have.
func (c *conn) startProxy(proc *process, p *startParams, spec *spool.Spec) error {
	if p.proxy == nil {
		return nil
	}
	proxy, err := p.proxy.startProxy(c.session, p.ProcessID)
	if err != nil {
		return err
	}
	maps.Copy(spec.Env, proxy.variables(proxy.addr))
	if p.EnforceManagedNetwork && spec.Isolation != nil {
		spec.Isolation.Proxy = proxy.addr
	}
	proc.mu.Lock()
	proc.proxy = proxy
	proc.mu.Unlock()
	return nil
}

func (c *conn) processStart(p *process, spec spool.Spec, sandboxType string) (any, error) {
	// Do not use the connection's context: the session must own a successful
	// start even if the client has disconnected.
	info, err := c.backend.Start(c.server.ctx, spec)
	if err != nil {
		p.closeProxy()
		c.session.release(p)
		return nil, startError(err)
	}
	p.mu.Lock()
	p.run, p.tty, p.isolated = info.ID, info.TTY, isIsolated(info)
	cancelled := p.cancelled
	close(p.started)
	p.mu.Unlock()
	if cancelled {
		p.closeProxy()
		c.session.drop(p)
		_ = c.backend.Control(c.server.ctx, info.ID, spool.Control{Op: spool.ControlKill})
		return nil, rpc.Errorf(rpc.CodeInvalidRequest, "process %s start was cancelled", p.id)
	}
	return struct {
		ProcessID   string `json:"processId"`
		SandboxType string `json:"sandboxType"`
	}{p.id, sandboxType}, nil
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
	if se.Reason == "unsupported" {
		text := se.Err.Error()
		if se.Hint != "" {
			text += ": " + se.Hint
		}
		return rpc.Errorf(rpc.CodeInvalidParams, "%s", text)
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return rpc.Errorf(rpc.CodeInternal, "%s", osText(errno))
	}
	return rpc.Errorf(rpc.CodeInternal, "%s", err)
}
