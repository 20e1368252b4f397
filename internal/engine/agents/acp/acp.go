// Package acp talks to any agent that speaks the Agent Client Protocol.
package acp

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/talk"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// Agent is any command that speaks the Agent Client Protocol.
func Agent() *talk.Agent {
	return &talk.Agent{
		Name:         agent.ACP,
		Signal:       syscall.SIGTERM,
		Images:       true, // as far as it says so when it runs
		Capabilities: []string{"interrupt", "ask"},
		Duplex: func(s talk.Setup) (talk.Conversation, error) {
			if len(s.Config.Command) == 0 {
				return nil, errors.New("an ACP agent needs the command that starts it")
			}
			return &client{Setup: s, rpc: talk.Peer{Version: true}, asks: make(map[string]pendingAsk), refused: make(map[string]bool),
				past: make(map[string]*toolCall)}, nil
		},
	}
}

// protocolVersion is the version of the protocol that we ask for. An agent that
// only knows the next one says so, and is understood as well.
const protocolVersion = 1

// client is a client of the Agent Client Protocol. It offers no files and no
// terminals: agents have their own tools, and theirs are the ones that a
// policy judges.
type client struct {
	talk.Setup
	rpc     talk.Peer
	version int // of the protocol that was agreed on
	agent   peerInfo
	id      string // of the session, once it is known
	loading bool   // what comes now is history
	// replayed is set when some of it came since we last asked.
	replayed bool
	queued   *spool.Prompt
	broken   *talk.Result
	working  bool // a prompt is under way
	active   bool // something was heard of it since
	stopped  bool // we asked it to stop

	text    textRun
	past    map[string]*toolCall // calls of the history that may get more
	order   []string             // of past
	asks    map[string]pendingAsk
	refused map[string]bool // actions that were denied
}

// peerInfo is what an agent says about itself.
type peerInfo struct {
	Version int            `json:"protocolVersion"`
	V1      capabilities   `json:"agentCapabilities"`
	V2      capabilities   `json:"capabilities"`
	Info    implementation `json:"agentInfo"`
	Info2   implementation `json:"info"`
	Auth    []struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	} `json:"authMethods"`
}

type implementation struct {
	Name    string `json:"name"`
	Title   string `json:"title"`
	Version string `json:"version"`
}

// capabilities are those that we use. Version two nests them in session.
type capabilities struct {
	Load    bool                       `json:"loadSession"`
	Prompt  promptCapabilities         `json:"promptCapabilities"`
	Session map[string]json.RawMessage `json:"sessionCapabilities"`
	Nested  map[string]json.RawMessage `json:"session"`
}

// promptCapabilities are what a prompt may hold besides text. Version two has an object
// for what it may.
type promptCapabilities struct {
	Image json.RawMessage `json:"image"`
}

// images reports whether the agent can be shown images.
func (c *client) images() bool {
	var nested promptCapabilities
	_ = talk.Decode(c.agent.V2.Nested["prompt"], &nested)
	for _, v := range []json.RawMessage{c.agent.V1.Prompt.Image, nested.Image} {
		if len(v) > 0 && !talk.IsNull(v) && string(v) != "false" {
			return true
		}
	}
	return false
}

// has reports whether a method of sessions is offered: by an object, or true.
func (c capabilities) has(name string) bool {
	for _, m := range []map[string]json.RawMessage{c.Session, c.Nested} {
		if v, ok := m[name]; ok && !talk.IsNull(v) && string(v) != "false" {
			return true
		}
	}
	return false
}

// name is what the agent calls itself, or else how it was started.
func (c *client) name() string {
	return cmp.Or(c.agent.Info.Name, c.agent.Info2.Name, filepath.Base(c.Config.Command[0]))
}

func (c *client) Command() (talk.Command, error) {
	return talk.Command{Argv: append(slices.Clone(c.Config.Command), c.Config.Extra...), Open: true}, nil
}

func (c *client) Opened(w talk.Wire, _ *talk.Turn) {
	c.rpc.Wire = w
	c.rpc.Call("initialize", map[string]any{
		"protocolVersion":    protocolVersion,
		"clientCapabilities": map[string]any{"fs": map[string]bool{"readTextFile": false, "writeTextFile": false}, "terminal": false},
		"clientInfo":         map[string]string{"name": "spool", "title": "Spool", "version": talk.ClientVersion},
	}, func(res json.RawMessage, err *rpc.Error, t *talk.Turn) {
		if err != nil {
			c.fail("initialize", err, t)
			return
		}
		_ = talk.Decode(res, &c.agent)
		c.version = max(c.agent.Version, protocolVersion)
		c.begin(t)
	})
}

// begin opens the session: a new one, or the one to go on with in the best way
// the agent has. To resume is better than to load, which repeats everything.
func (c *client) begin(t *talk.Turn) {
	params := map[string]any{"cwd": c.Cwd, "mcpServers": []any{}}
	if dir, err := filepath.Abs(c.Cwd); err == nil { // the protocol wants it so
		params["cwd"] = dir
	}
	v1, v2 := c.agent.V1, c.agent.V2
	can := func(name string) bool { return v1.has(name) || v2.has(name) }
	method := "session/new"
	if c.Resume != "" {
		params["sessionId"] = c.Resume
		switch {
		case c.Fork && can("fork"):
			method = "session/fork"
		case c.Fork:
			c.fail("session/fork", &rpc.Error{Message: c.name() + " cannot fork a session"}, t)
			return
		case can("resume") || c.version >= 2:
			method = "session/resume"
		case v1.Load || v2.Load || can("load"):
			method = "session/load"
			c.loading = true
		default:
			c.fail("session/resume", &rpc.Error{Message: c.name() + " cannot go on with an earlier session"}, t)
			return
		}
	}
	c.rpc.Call(method, params, func(res json.RawMessage, err *rpc.Error, t *talk.Turn) {
		switch {
		case err != nil:
			c.endHistory(t)
			c.fail(method, err, t)
		case c.loading:
			c.outlast(maxRounds, func(t *talk.Turn) { c.begun(method, res, t) })
		default:
			c.begun(method, res, t)
		}
	})
}

// maxRounds bounds how often we ask whether the history is over.
const maxRounds = 100

// outlast waits for the end of a history. An agent should answer session/load
// after it, but some still tell it then. So we ask for something that no agent
// knows, and believe that it is over when nothing more came before the answer.
func (c *client) outlast(rounds int, then func(*talk.Turn)) {
	c.replayed = false
	c.rpc.Call("_spool/settled", map[string]any{"sessionId": c.Resume}, func(_ json.RawMessage, _ *rpc.Error, t *talk.Turn) {
		if c.replayed && rounds > 0 {
			c.outlast(rounds-1, then)
			return
		}
		c.endHistory(t)
		then(t)
	})
}

// sessionState is the answer to the methods that open a session.
type sessionState struct {
	ID    string `json:"sessionId"`
	Modes struct {
		Current   string `json:"currentModeId"`
		Available []struct {
			ID string `json:"id"`
		} `json:"availableModes"`
	} `json:"modes"`
	Models struct {
		Current   string `json:"currentModelId"`
		Available []struct {
			ID string `json:"modelId"`
		} `json:"availableModels"`
	} `json:"models"`
	Options []struct {
		ID       string          `json:"id"`
		Category string          `json:"category"`
		Current  json.RawMessage `json:"currentValue"`
	} `json:"configOptions"`
}

func (c *client) begun(method string, res json.RawMessage, t *talk.Turn) {
	var s sessionState
	_ = talk.Decode(res, &s)
	c.id = s.ID
	if c.id == "" && method != "session/new" && method != "session/fork" {
		c.id = c.Resume
	}
	if c.id == "" {
		c.fail(method, &rpc.Error{Message: "no session id in the answer"}, t)
		return
	}
	info := c.agent.Info
	if info.Name == "" {
		info = c.agent.Info2
	}
	model := cmp.Or(c.Config.Model, s.Models.Current)
	c.configure(&s, t)
	if can := t.Run.Capabilities; c.images() && !slices.Contains(can, "images") {
		t.Run.Capabilities = append(slices.Clip(can), "images")
	}
	t.Start(agent.Started{Resume: c.id, Resumed: method == "session/load" || method == "session/resume", Title: cmp.Or(info.Title, info.Name),
		Model: model, Mode: cmp.Or(c.Config.Permissions, s.Modes.Current), Version: info.Version, Transport: fmt.Sprintf("acp v%d", c.version)})
	if p := c.queued; p != nil {
		c.queued = nil
		c.say(*p, t)
	}
}

// configure sets model, effort and mode, each where the agent has it.
func (c *client) configure(s *sessionState, t *talk.Turn) {
	option := func(category string) string {
		for _, o := range s.Options {
			if o.Category == category {
				return o.ID
			}
		}
		return ""
	}
	set := func(value, category, method, member string, known bool) {
		if value == "" {
			return
		}
		then := func(_ json.RawMessage, err *rpc.Error, t *talk.Turn) {
			if err != nil {
				t.Notice("warning", talk.NoticeWarning, fmt.Sprintf("%s did not take the %s %q: %s", c.name(), category, value, err.Message))
			}
		}
		switch id := option(category); {
		case id != "":
			c.rpc.Call("session/set_config_option", map[string]any{"sessionId": c.id, "configId": id, "value": value}, then)
		case known:
			c.rpc.Call(method, map[string]any{"sessionId": c.id, member: value}, then)
		default:
			t.Notice("warning", talk.NoticeWarning, fmt.Sprintf("%s has no %s to set: %q is not used", c.name(), category, value))
		}
	}
	set(c.Config.Model, "model", "session/set_model", "modelId", len(s.Models.Available) > 0)
	set(c.Config.Effort, "thought_level", "", "", false)
	set(c.Config.Permissions, "mode", "session/set_mode", "modeId", len(s.Modes.Available) > 0)
}

// authRequired is the code of an agent that wants to know who pays.
const authRequired = -32000

// fail notes that there is no session to talk in.
func (c *client) fail(doing string, err *rpc.Error, t *talk.Turn) {
	text := rpcText(err)
	r := talk.Result{Outcome: spool.TurnError, Error: text, Class: talk.Classify(text, 0)}
	switch {
	case err.Code == authRequired:
		r.Class = agent.ClassAuth
		var names []string
		for _, m := range c.agent.Auth {
			names = append(names, cmp.Or(m.Name, m.ID))
		}
		if len(names) > 0 {
			r.Error += fmt.Sprintf(" (log in with %s itself: %s)", c.name(), strings.Join(names, ", "))
		}
	case r.Class == agent.ClassOther && doing == "initialize":
		r.Class = agent.ClassProtocol
	case r.Class == agent.ClassOther && doing != "session/new":
		r.Class = agent.ClassSession
	}
	c.broken = &r
	t.Finish(r)
}

// rpcText is an error with what its data say besides.
func rpcText(err *rpc.Error) string {
	var data struct {
		Details string `json:"details"`
		Message string `json:"message"`
	}
	var text string
	if json.Unmarshal(err.Data, &text) != nil {
		_ = talk.Decode(err.Data, &data)
		text = cmp.Or(data.Details, data.Message)
	}
	if text == "" || strings.Contains(err.Message, text) {
		return err.Message
	}
	return err.Message + ": " + text
}

func (c *client) Prompt(p spool.Prompt, t *talk.Turn) error {
	c.stopped = false
	clear(c.refused)
	switch {
	case c.broken != nil:
		t.Finish(*c.broken)
	case c.id == "":
		c.queued = &p
	default:
		c.say(p, t)
	}
	return nil
}

func (c *client) say(p spool.Prompt, t *talk.Turn) {
	if len(p.Images) > 0 && !c.images() {
		t.Finish(talk.Result{Outcome: spool.TurnError, Class: agent.ClassUnsupported, Error: c.name() + " cannot be shown images"})
		return
	}
	var blocks []map[string]any
	for _, image := range p.Images {
		blocks = append(blocks, map[string]any{"type": "image", "mimeType": image.MIME, "data": image.Bytes})
	}
	if p.Text != "" {
		blocks = append(blocks, map[string]any{"type": "text", "text": p.Text})
	}
	c.working, c.active = true, false
	c.rpc.Call("session/prompt", map[string]any{"sessionId": c.id, "prompt": blocks},
		func(res json.RawMessage, err *rpc.Error, t *talk.Turn) {
			switch {
			case err != nil && c.stopped: // some answer a cancelled prompt so
				c.finish(promptEnd{Reason: "cancelled"}, t)
			case err != nil:
				c.settle(t)
				t.Finish(talk.Result{Outcome: spool.TurnError, Error: rpcText(err)})
			default:
				var s promptEnd
				_ = talk.Decode(res, &s)
				// From version two on this only says that it was taken.
				if s.Reason != "" || c.version < 2 {
					c.finish(s, t)
				}
			}
		})
}

// promptEnd is the end of a prompt: the answer to it, or a state from version
// two on.
type promptEnd struct {
	Reason string `json:"stopReason"`
	Usage  *struct {
		Input      int64 `json:"inputTokens"`
		Output     int64 `json:"outputTokens"`
		Thought    int64 `json:"thoughtTokens"`
		CacheRead  int64 `json:"cachedReadTokens"`
		CacheWrite int64 `json:"cachedWriteTokens"`
	} `json:"usage"`
	Error *rpc.Error `json:"error"`
	Meta  struct {
		Quota struct {
			Tokens struct {
				Input  int64 `json:"input_tokens"`
				Output int64 `json:"output_tokens"`
			} `json:"token_count"`
		} `json:"quota"`
	} `json:"_meta"`
}

func (c *client) finish(s promptEnd, t *talk.Turn) {
	if !c.working {
		return // said again, or about something else
	}
	denied := len(c.refused) > 0
	c.settle(t)
	switch q := s.Meta.Quota.Tokens; {
	case s.Usage != nil:
		u := s.Usage
		t.SetUsed(agent.Spend{Input: u.Input + u.CacheRead + u.CacheWrite, Output: u.Output, Reasoning: u.Thought, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite})
	case q.Input+q.Output > 0:
		t.SetUsed(agent.Spend{Input: q.Input, Output: q.Output})
	}
	r := talk.Result{Outcome: spool.TurnOK}
	switch s.Reason {
	case "end_turn":
	case "":
		if s.Error != nil {
			r.Outcome, r.Error = spool.TurnError, rpcText(s.Error)
		}
	case "cancelled":
		r.Outcome, r.Class, r.Error = spool.TurnInterrupted, agent.ClassStopped, "cancelled"
		if !c.stopped { // to deny something ends the turn of some agents
			r.Outcome, r.Class, r.Error = spool.TurnRefused, agent.ClassPermission, "the agent stopped after it was denied something"
			if !denied {
				r.Outcome, r.Class, r.Error = spool.TurnCancelled, agent.ClassStopped, "the agent cancelled the turn"
			}
		}
	case "refusal":
		r.Outcome, r.Error = spool.TurnRefused, "the model refused"
	case "max_turn_requests":
		r.Outcome, r.Error = agent.TurnMaxTurns, "the agent asked the model as often as it may"
	case "max_tokens":
		r.Outcome, r.Class, r.Error = spool.TurnError, agent.ClassContext, "the model reached its token limit"
	default:
		t.Notice("warning", talk.NoticeWarning, "the agent stopped for a reason we do not know: "+talk.Title(s.Reason))
		if s.Error != nil {
			r.Outcome, r.Error = spool.TurnError, rpcText(s.Error)
		}
	}
	t.Finish(r)
}

// settle writes what is left of a turn: text that was not whole, and the end
// of actions that were denied, which not every agent tells.
func (c *client) settle(t *talk.Turn) {
	c.working = false
	c.flush(t)
	for id := range c.refused {
		if t.Running(id) {
			t.Action(agent.Action{ID: id, Phase: agent.ActionCompleted, OK: new(false), Status: "denied", Synthetic: true, Message: "denied"})
		}
	}
	clear(c.refused)
	clear(c.asks)
}

func (c *client) Interrupt(t *talk.Turn) error {
	if c.queued != nil { // it never began
		c.queued = nil
		t.Finish(talk.Result{Outcome: spool.TurnInterrupted, Class: agent.ClassStopped, Error: "interrupted before it began"})
		return nil
	}
	c.cancel(t)
	return nil
}

// cancel ends the turn. The protocol wants an answer to every open request.
func (c *client) cancel(t *talk.Turn) {
	c.stopped = true
	c.rpc.Notify("session/cancel", map[string]any{"sessionId": c.id})
	for key, ask := range c.asks {
		delete(c.asks, key)
		c.rpc.Reply(ask.id, ask.cancelled())
		t.Withdraw(key)
	}
}

// Steer is not part of the protocol.
func (c *client) Steer(spool.Prompt, *talk.Turn) error { return spool.ErrUnsupported }

func (c *client) Line(b []byte, t *talk.Turn) {
	m, ok := c.rpc.Read(b, t)
	switch {
	case !ok:
	case m.ID != nil:
		c.request(m, b, t)
	case m.Method == "session/update":
		c.update(m.Params, b, t)
	case m.Method == "$/cancel_request":
		var p struct {
			ID json.RawMessage `json:"requestId"`
		}
		_ = talk.Decode(m.Params, &p)
		if ask, open := c.asks[talk.RequestKey(p.ID)]; open {
			delete(c.asks, talk.RequestKey(p.ID))
			c.rpc.Reply(ask.id, ask.cancelled())
			t.Withdraw(talk.RequestKey(p.ID))
		}
	case m.Method == "elicitation/complete":
	default:
		t.Unknown(m.Method, b)
	}
}

func (c *client) Ended(x talk.Exit, t *talk.Turn) {
	c.flush(t)
	if c.broken != nil {
		t.Finish(*c.broken)
		return
	}
	r := talk.FailedExit(c.name(), x, t.LastText())
	if x.Code == 0 && x.Signal == "" {
		r.Error = c.name() + " ended before the turn did"
		r.Class = agent.ClassProtocol
	}
	t.Finish(r)
}
