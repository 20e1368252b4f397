package agents

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// acpRunner is any command that speaks the Agent Client Protocol.
func acpRunner() *runner {
	return &runner{
		name:   ACP,
		signal: syscall.SIGTERM,
		can:    []string{"interrupt", "ask"},
		duplex: func(s setup) (conversation, error) {
			if len(s.config.Command) == 0 {
				return nil, errors.New("an ACP agent needs the command that starts it")
			}
			return &acp{setup: s, rpc: peer{version: true}, asks: make(map[string]acpAsk), refused: make(map[string]bool),
				past: make(map[string]*acpTool)}, nil
		},
	}
}

// acpVersion is the version of the protocol that we ask for. An agent that
// only knows the next one says so, and is understood as well.
const acpVersion = 1

// acp is a client of the Agent Client Protocol. It offers no files and no
// terminals: agents have their own tools, and theirs are the ones that a
// policy judges.
type acp struct {
	setup
	rpc     peer
	version int // of the protocol that was agreed on
	agent   acpAgent
	id      string // of the session, once it is known
	loading bool   // what comes now is history
	// replayed is set when some of it came since we last asked.
	replayed bool
	queued   *spool.Prompt
	broken   *result
	working  bool // a prompt is under way
	active   bool // something was heard of it since
	stopped  bool // we asked it to stop

	text    acpText
	past    map[string]*acpTool // calls of the history that may get more
	order   []string            // of past
	asks    map[string]acpAsk
	refused map[string]bool // actions that were denied
}

// acpAgent is what an agent says about itself.
type acpAgent struct {
	Version int             `json:"protocolVersion"`
	V1      acpCapabilities `json:"agentCapabilities"`
	V2      acpCapabilities `json:"capabilities"`
	Info    acpInfo         `json:"agentInfo"`
	Info2   acpInfo         `json:"info"`
	Auth    []struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	} `json:"authMethods"`
}

type acpInfo struct {
	Name    string `json:"name"`
	Title   string `json:"title"`
	Version string `json:"version"`
}

// acpCapabilities are those that we use. Version two nests them in session.
type acpCapabilities struct {
	Load    bool                       `json:"loadSession"`
	Session map[string]json.RawMessage `json:"sessionCapabilities"`
	Nested  map[string]json.RawMessage `json:"session"`
}

// has reports whether a method of sessions is offered: by an object, or true.
func (c acpCapabilities) has(name string) bool {
	for _, m := range []map[string]json.RawMessage{c.Session, c.Nested} {
		if v, ok := m[name]; ok && !null(v) && string(v) != "false" {
			return true
		}
	}
	return false
}

// name is what the agent calls itself, or else how it was started.
func (c *acp) name() string {
	return first(c.agent.Info.Name, c.agent.Info2.Name, filepath.Base(c.config.Command[0]))
}

func (c *acp) command() (command, error) {
	return command{argv: append(slices.Clone(c.config.Command), c.config.Extra...), open: true}, nil
}

func (c *acp) opened(w wire, _ *turn) {
	c.rpc.w = w
	c.rpc.call("initialize", map[string]any{
		"protocolVersion":    acpVersion,
		"clientCapabilities": map[string]any{"fs": map[string]bool{"readTextFile": false, "writeTextFile": false}, "terminal": false},
		"clientInfo":         map[string]string{"name": "spool", "title": "Spool", "version": clientVersion},
	}, func(res json.RawMessage, err *rpc.Error, t *turn) {
		if err != nil {
			c.fail("initialize", err, t)
			return
		}
		_ = lenient(res, &c.agent)
		c.version = max(c.agent.Version, acpVersion)
		c.begin(t)
	})
}

// begin opens the session: a new one, or the one to go on with in the best way
// the agent has. To resume is better than to load, which repeats everything.
func (c *acp) begin(t *turn) {
	params := map[string]any{"cwd": c.cwd, "mcpServers": []any{}}
	if dir, err := filepath.Abs(c.cwd); err == nil { // the protocol wants it so
		params["cwd"] = dir
	}
	v1, v2 := c.agent.V1, c.agent.V2
	can := func(name string) bool { return v1.has(name) || v2.has(name) }
	method := "session/new"
	if c.resume != "" {
		params["sessionId"] = c.resume
		switch {
		case c.fork && can("fork"):
			method = "session/fork"
		case c.fork:
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
	c.rpc.call(method, params, func(res json.RawMessage, err *rpc.Error, t *turn) {
		switch {
		case err != nil:
			c.endHistory(t)
			c.fail(method, err, t)
		case c.loading:
			c.outlast(maxRounds, func(t *turn) { c.begun(method, res, t) })
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
func (c *acp) outlast(rounds int, then func(*turn)) {
	c.replayed = false
	c.rpc.call("_spool/settled", map[string]any{"sessionId": c.resume}, func(_ json.RawMessage, _ *rpc.Error, t *turn) {
		if c.replayed && rounds > 0 {
			c.outlast(rounds-1, then)
			return
		}
		c.endHistory(t)
		then(t)
	})
}

// acpSession is the answer to the methods that open a session.
type acpSession struct {
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

func (c *acp) begun(method string, res json.RawMessage, t *turn) {
	var s acpSession
	_ = lenient(res, &s)
	c.id = s.ID
	if c.id == "" && method != "session/new" && method != "session/fork" {
		c.id = c.resume
	}
	if c.id == "" {
		c.fail(method, &rpc.Error{Message: "no session id in the answer"}, t)
		return
	}
	info := c.agent.Info
	if info.Name == "" {
		info = c.agent.Info2
	}
	model := first(c.config.Model, s.Models.Current)
	c.configure(&s, t)
	t.start(agent.Started{Resume: c.id, Resumed: method == "session/load" || method == "session/resume", Title: first(info.Title, info.Name),
		Model: model, Mode: first(c.config.Permissions, s.Modes.Current), Version: info.Version, Transport: fmt.Sprintf("acp v%d", c.version)})
	if p := c.queued; p != nil {
		c.queued = nil
		c.say(*p)
	}
}

// configure sets model, effort and mode, each where the agent has it.
func (c *acp) configure(s *acpSession, t *turn) {
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
		then := func(_ json.RawMessage, err *rpc.Error, t *turn) {
			if err != nil {
				t.notice("warning", NoticeWarning, fmt.Sprintf("%s did not take the %s %q: %s", c.name(), category, value, err.Message))
			}
		}
		switch id := option(category); {
		case id != "":
			c.rpc.call("session/set_config_option", map[string]any{"sessionId": c.id, "configId": id, "value": value}, then)
		case known:
			c.rpc.call(method, map[string]any{"sessionId": c.id, member: value}, then)
		default:
			t.notice("warning", NoticeWarning, fmt.Sprintf("%s has no %s to set: %q is not used", c.name(), category, value))
		}
	}
	set(c.config.Model, "model", "session/set_model", "modelId", len(s.Models.Available) > 0)
	set(c.config.Effort, "thought_level", "", "", false)
	set(c.config.Permissions, "mode", "session/set_mode", "modeId", len(s.Modes.Available) > 0)
}

// authRequired is the code of an agent that wants to know who pays.
const authRequired = -32000

// fail notes that there is no session to talk in.
func (c *acp) fail(doing string, err *rpc.Error, t *turn) {
	text := rpcText(err)
	r := result{outcome: spool.TurnError, err: text, class: classify(text, 0)}
	switch {
	case err.Code == authRequired:
		r.class = agent.ClassAuth
		var names []string
		for _, m := range c.agent.Auth {
			names = append(names, first(m.Name, m.ID))
		}
		if len(names) > 0 {
			r.err += fmt.Sprintf(" (log in with %s itself: %s)", c.name(), strings.Join(names, ", "))
		}
	case r.class == agent.ClassOther && doing == "initialize":
		r.class = agent.ClassProtocol
	case r.class == agent.ClassOther && doing != "session/new":
		r.class = agent.ClassSession
	}
	c.broken = &r
	t.finish(r)
}

// rpcText is an error with what its data say besides.
func rpcText(err *rpc.Error) string {
	var data struct {
		Details string `json:"details"`
		Message string `json:"message"`
	}
	var text string
	if json.Unmarshal(err.Data, &text) != nil {
		_ = lenient(err.Data, &data)
		text = first(data.Details, data.Message)
	}
	if text == "" || strings.Contains(err.Message, text) {
		return err.Message
	}
	return err.Message + ": " + text
}

func (c *acp) prompt(p spool.Prompt, t *turn) error {
	c.stopped = false
	clear(c.refused)
	switch {
	case c.broken != nil:
		t.finish(*c.broken)
	case c.id == "":
		c.queued = &p
	default:
		c.say(p)
	}
	return nil
}

func (c *acp) say(p spool.Prompt) {
	c.working, c.active = true, false
	c.rpc.call("session/prompt", map[string]any{"sessionId": c.id, "prompt": []map[string]any{{"type": "text", "text": p.Text}}},
		func(res json.RawMessage, err *rpc.Error, t *turn) {
			switch {
			case err != nil && c.stopped: // some answer a cancelled prompt so
				c.finish(acpStop{Reason: "cancelled"}, t)
			case err != nil:
				c.settle(t)
				t.finish(result{outcome: spool.TurnError, err: rpcText(err)})
			default:
				var s acpStop
				_ = lenient(res, &s)
				// From version two on this only says that it was taken.
				if s.Reason != "" || c.version < 2 {
					c.finish(s, t)
				}
			}
		})
}

// acpStop is the end of a prompt: the answer to it, or a state from version
// two on.
type acpStop struct {
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

func (c *acp) finish(s acpStop, t *turn) {
	if !c.working {
		return // said again, or about something else
	}
	denied := len(c.refused) > 0
	c.settle(t)
	switch q := s.Meta.Quota.Tokens; {
	case s.Usage != nil:
		u := s.Usage
		t.setUsed(agent.Spend{Input: u.Input + u.CacheRead + u.CacheWrite, Output: u.Output, Reasoning: u.Thought, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite})
	case q.Input+q.Output > 0:
		t.setUsed(agent.Spend{Input: q.Input, Output: q.Output})
	}
	r := result{outcome: spool.TurnOK}
	switch s.Reason {
	case "end_turn":
	case "":
		if s.Error != nil {
			r.outcome, r.err = spool.TurnError, rpcText(s.Error)
		}
	case "cancelled":
		r.outcome, r.class, r.err = spool.TurnInterrupted, agent.ClassStopped, "cancelled"
		if !c.stopped { // to deny something ends the turn of some agents
			r.outcome, r.class, r.err = spool.TurnRefused, agent.ClassPermission, "the agent stopped after it was denied something"
			if !denied {
				r.outcome, r.class, r.err = spool.TurnCancelled, agent.ClassStopped, "the agent cancelled the turn"
			}
		}
	case "refusal":
		r.outcome, r.err = spool.TurnRefused, "the model refused"
	case "max_turn_requests":
		r.outcome, r.err = spool.TurnMaxTurns, "the agent asked the model as often as it may"
	case "max_tokens":
		r.outcome, r.class, r.err = spool.TurnError, agent.ClassContext, "the model reached its token limit"
	default:
		t.notice("warning", NoticeWarning, "the agent stopped for a reason we do not know: "+printable(s.Reason))
		if s.Error != nil {
			r.outcome, r.err = spool.TurnError, rpcText(s.Error)
		}
	}
	t.finish(r)
}

// settle writes what is left of a turn: text that was not whole, and the end
// of actions that were denied, which not every agent tells.
func (c *acp) settle(t *turn) {
	c.working = false
	c.flush(t)
	for id := range c.refused {
		if t.running(id) {
			t.action(agent.Action{ID: id, Phase: agent.ActionCompleted, OK: no(), Status: "denied", Synthetic: true, Message: "denied"})
		}
	}
	clear(c.refused)
	clear(c.asks)
}

func (c *acp) interrupt(t *turn) error {
	if c.queued != nil { // it never began
		c.queued = nil
		t.finish(result{outcome: spool.TurnInterrupted, class: agent.ClassStopped, err: "interrupted before it began"})
		return nil
	}
	c.cancel(t)
	return nil
}

// cancel ends the turn. Whoever cancels must answer what the agent still
// waits for.
func (c *acp) cancel(t *turn) {
	c.stopped = true
	c.rpc.notify("session/cancel", map[string]any{"sessionId": c.id})
	for key, ask := range c.asks {
		delete(c.asks, key)
		c.rpc.reply(ask.id, ask.cancelled())
		t.withdraw(key)
	}
}

// steer is not part of the protocol.
func (c *acp) steer(spool.Prompt, *turn) error { return spool.ErrUnsupported }

func (c *acp) line(b []byte, t *turn) {
	m, ok := c.rpc.read(b, t)
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
		_ = lenient(m.Params, &p)
		if ask, open := c.asks[askKey(p.ID)]; open {
			delete(c.asks, askKey(p.ID))
			c.rpc.reply(ask.id, ask.cancelled())
			t.withdraw(askKey(p.ID))
		}
	case m.Method == "elicitation/complete":
	default:
		t.unknown(m.Method, b)
	}
}

func (c *acp) ended(x exit, t *turn) {
	c.flush(t)
	if c.broken != nil {
		t.finish(*c.broken)
		return
	}
	r := failedExit(c.name(), x, t.answer)
	if x.code == 0 && x.signal == "" {
		r.err = c.name() + " ended before the turn did"
		r.class = agent.ClassProtocol
	}
	t.finish(r)
}
