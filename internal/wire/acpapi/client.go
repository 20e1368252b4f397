package acpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/contain"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// client is a connection with an editor.
type client struct {
	*Server
	conn *conn
	ctx  context.Context // ends with the connection
	work sync.WaitGroup

	mu       sync.Mutex
	version  int    // of the protocol
	name     string // of the client, once it is known
	can      abilities
	sessions map[spool.RunID]*session
}

// abilities are what a client can do for its user, of what we use.
type abilities struct {
	forms   bool // fill in a form
	notices bool
}

// methods are what a client may ask for.
var methods = map[string]func(c *client, r *request) (any, error){
	"authenticate":              (*client).authenticate,
	"session/list":              (*client).listSessions,
	"session/close":             (*client).closeSession,
	"session/delete":            (*client).deleteSession,
	"session/set_mode":          (*client).setMode,
	"session/set_config_option": (*client).setOption,
}

// request implements [handler].
func (c *client) request(r *request) {
	switch r.method {
	case "initialize": // what it says matters to all that follows
		r.reply(c.initialize(r))
	case "session/prompt": // a cancellation may follow at once
		c.prompt(r)
	case "session/new": // answered before what comes
		c.begin(func() { c.newSession(r) })
	case "session/load", "session/resume": // the first is gone in version 2
		if r.method == "session/load" && c.protocol() == 2 {
			r.reply(nil, rpc.Errorf(rpc.CodeMethodNotFound, "there is no method %q in version 2: session/resume replays from the start", r.method))
			return
		}
		// It is answered between what was and what comes.
		c.begin(func() { c.attach(r) })
	default:
		do, ok := methods[r.method]
		if !ok {
			r.reply(nil, rpc.Errorf(rpc.CodeMethodNotFound, "there is no method %q", r.method))
			return
		}
		c.begin(func() { r.reply(do(c, r)) })
	}
}

// begin calls do on another goroutine. If it panics, the connection ends.
func (c *client) begin(do func()) {
	c.work.Go(func() {
		if !contain.Do(c.conn.log, "a connection", do) {
			c.conn.close()
		}
	})
}

// notification implements [handler].
func (c *client) notification(method string, params json.RawMessage) {
	switch method {
	case "session/cancel":
		var p struct {
			ID spool.RunID `json:"sessionId"`
		}
		if json.Unmarshal(params, &p) != nil {
			return
		}
		if s := c.session(p.ID); s != nil {
			s.cancelPrompts(nil)
		}
	case "$/cancel_request":
		var p struct {
			ID json.RawMessage `json:"requestId"`
		}
		if json.Unmarshal(params, &p) != nil {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, s := range c.sessions {
			s.cancelPrompts(p.ID)
		}
	default:
		c.conn.log.Debug("an unknown notification", "method", method)
	}
}

// session returns an open session, or nil.
func (c *client) session(id spool.RunID) *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sessions[id]
}

// by is who answers, for the log.
func (c *client) by() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.name == "" {
		return "acp"
	}
	return "acp:" + c.name
}

func (c *client) abilities() abilities {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.can
}

type object = map[string]any

// protocol is the version of the protocol that the client speaks.
func (c *client) protocol() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.version
}

// clientAbilities are what a client says that it can do.
type clientAbilities struct {
	Elicitation *struct {
		Form *struct{} `json:"form"`
	} `json:"elicitation"`
	Session *struct {
		Notices *struct{} `json:"notices"`
	} `json:"session"`
}

// clientInfo is the name of a client.
type clientInfo struct {
	Name string `json:"name"`
}

func (c *client) initialize(r *request) (any, error) {
	var p struct {
		Version int             `json:"protocolVersion"`
		Client  clientInfo      `json:"clientInfo"`
		Can     clientAbilities `json:"clientCapabilities"`
		// Of version 2.
		Info         clientInfo      `json:"info"`
		Capabilities clientAbilities `json:"capabilities"`
	}
	if err := r.decode(&p); err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.version = 1
	if c.opts.Version2 && p.Version >= 2 {
		c.version, p.Client, p.Can = 2, p.Info, p.Capabilities
	}
	c.name = p.Client.Name
	c.can.forms = p.Can.Elicitation != nil && p.Can.Elicitation.Form != nil
	c.can.notices = c.version == 2 || p.Can.Session != nil && p.Can.Session.Notices != nil
	c.mu.Unlock()
	if c.protocol() == 2 {
		return c.initialized2(), nil
	}
	takes := takesServers[c.opts.Config.Agent]
	offered := object{"list": object{}, "resume": object{}, "close": object{}}
	if _, ok := c.opts.Backend.(spool.Remover); ok {
		offered["delete"] = object{}
	}
	return object{
		"protocolVersion": 1,
		"agentInfo":       c.info(),
		"agentCapabilities": object{
			"loadSession":         true,
			"promptCapabilities":  object{"image": c.opts.takesImages(), "audio": false, "embeddedContext": true},
			"mcpCapabilities":     object{"http": takes.http, "sse": takes.sse},
			"sessionCapabilities": offered,
		},
		"authMethods": []any{},
	}, nil
}

// info says who the server is.
func (c *client) info() object {
	return object{"name": "spool", "title": "Spool (" + agentName(&c.opts.Config) + ")", "version": c.opts.Version}
}

// agentName is the name of the agent behind the server, for people.
func agentName(config *agent.Config) string {
	if config.Agent == agent.ACP && len(config.Command) > 0 {
		return filepath.Base(config.Command[0])
	}
	return config.Agent
}

func (c *client) authenticate(*request) (any, error) {
	return nil, rpc.Errorf(rpc.CodeInvalidParams, "there is nothing to authenticate with: log in with the agent itself")
}

func (c *client) newSession(r *request) {
	var p struct {
		Cwd     string      `json:"cwd"`
		Servers []mcpServer `json:"mcpServers"`
	}
	err := r.decode(&p)
	if err == nil && !filepath.IsAbs(p.Cwd) {
		err = rpc.Errorf(rpc.CodeInvalidParams, "cwd %q is not an absolute path", p.Cwd)
	}
	var run *spool.Run
	spec, left := c.spec(c.opts.Config, p.Cwd, p.Servers)
	if err == nil {
		run, err = c.start(c.ctx, spec)
	}
	if err != nil {
		r.reply(nil, err)
		return
	}
	s := newSession(c, run.ID())
	s.servers = p.Servers
	c.mu.Lock()
	c.sessions[s.id] = s
	c.mu.Unlock()
	r.reply(object{"sessionId": s.id, "configOptions": c.options(), "_meta": meta{place{Run: string(s.id)}}}, nil)
	if len(left) > 0 {
		s.tell(run.ID(), fmt.Sprintf("⚠ %s does not get these MCP servers of the editor: %s.\n", agentName(&c.opts.Config), strings.Join(left, ", ")))
	}
	s.begin([]spool.Info{{ID: run.ID(), Cwd: p.Cwd}}, reading{})
}

// spec returns the spec of a run with the agent, and the names of the servers that the
// agent does not take.
func (c *client) spec(config agent.Config, cwd string, servers []mcpServer) (spec spool.Spec, left []string) {
	spec = c.opts.Spec
	left = hand(servers, &config, &spec)
	spec.Engine, spec.Cwd, spec.Config = agent.Engine, cwd, config.Spec().Config
	// The engine ignores Argv; "spool ps" shows it.
	spec.Argv = append([]string{config.Agent}, config.Command...)
	spec.Labels = maps.Clone(spec.Labels)
	return spec, left
}

// attach opens a session that exists. session/load tells all that happened in it first, and
// so does session/resume of version 2 if it is to; otherwise that tells what happened after
// the place in its _meta, or nothing.
func (c *client) attach(r *request) {
	var p struct {
		ID      spool.RunID `json:"sessionId"`
		Servers []mcpServer `json:"mcpServers"`
		Replay  *struct {
			Type string `json:"type"`
		} `json:"replayFrom"`
		Meta struct {
			Spool *struct {
				Run   spool.RunID `json:"run"`
				Seq   spool.Seq   `json:"seq"`
				After *spool.Seq  `json:"after"`
			} `json:"spool"`
		} `json:"_meta"`
	}
	err := r.decode(&p)
	all := r.method == "session/load"
	if err == nil && p.Replay != nil && c.protocol() == 2 {
		if all = p.Replay.Type == "start"; !all {
			err = rpc.Errorf(rpc.CodeInvalidParams, "replayFrom of type %q is unknown: use start, or a place in _meta", p.Replay.Type)
		}
	}
	var runs []spool.Info
	if err == nil {
		runs, err = c.runs(c.ctx, p.ID)
	}
	if err != nil {
		r.reply(nil, err)
		return
	}
	at := reading{ready: func() {
		r.reply(object{"configOptions": c.options(), "_meta": meta{place{Run: string(runs[len(runs)-1].ID), Seq: uint64(runs[len(runs)-1].Last)}}}, nil)
	}}
	if !all {
		at.first = len(runs) - 1
		at.mute = runs[at.first].Last
		if from := p.Meta.Spool; from != nil {
			if i := slices.IndexFunc(runs, func(i spool.Info) bool { return i.ID == from.Run }); i >= 0 {
				at.first = i
			}
			if at.mute = from.Seq; from.After != nil {
				at.mute = *from.After
			}
		}
	}
	fresh := newSession(c, p.ID)
	c.mu.Lock()
	s, open := c.sessions[p.ID]
	if !open {
		s = fresh
		c.sessions[p.ID] = s
	}
	c.mu.Unlock()
	if open && !all && p.Meta.Spool == nil {
		at.ready() // it is read already
		return
	}
	s.halt()
	s.mu.Lock()
	s.servers = p.Servers
	s.mu.Unlock()
	s.begin(runs, at)
}

// options are what a client shows of the configuration of an agent. A session keeps its
// configuration.
func (c *client) options() []object {
	config, out, id := &c.opts.Config, []object{}, "id"
	if c.protocol() == 2 {
		id = "configId"
	}
	for _, o := range []struct{ id, name, category, value string }{
		{"agent", "Agent", "_agent", agentName(config)}, {"model", "Model", "model", config.Model}, {"permissions", "Permissions", "mode", config.Permissions},
	} {
		if o.value != "" {
			out = append(out, object{"type": "select", id: o.id, "name": o.name, "category": o.category, "currentValue": o.value,
				"options": []object{{"value": o.value, "name": o.value}}})
		}
	}
	return out
}

func (c *client) setOption(r *request) (any, error) {
	var p struct {
		ID    string          `json:"configId"`
		Value json.RawMessage `json:"value"`
	}
	if err := r.decode(&p); err != nil {
		return nil, err
	}
	all := c.options()
	for _, o := range all {
		var value string
		if (o["id"] == p.ID || o["configId"] == p.ID) && json.Unmarshal(p.Value, &value) == nil && o["currentValue"] == value {
			return object{"configOptions": all}, nil
		}
	}
	return nil, rpc.Errorf(rpc.CodeInvalidParams, "a session keeps its %s: set another one with a flag of spool acp, and begin a session", p.ID)
}

func (c *client) setMode(*request) (any, error) {
	return nil, rpc.Errorf(rpc.CodeInvalidParams, "a session keeps its mode: set another one with --permissions of spool acp, and begin a session")
}
