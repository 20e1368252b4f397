package codex

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/talk"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// appServer is codex app-server: one process, prompt after prompt, with
// approvals, questions, interrupting and steering.
type appServer struct {
	talk.Setup
	lines
	rpc     talk.Peer
	thread  string                 // our thread, once it is known
	parents map[string]string      // the actions that other threads work for
	items   map[string]autoCompact // changes of files that may be asked about
	asks    map[string]pendingAsk

	queued  *spool.Prompt  // waits for the thread
	unsaid  []spool.Prompt // came too late for a turn, and goes into the next
	current string         // id of the turn that runs
	stop    bool           // interrupt it as soon as it has an id
	broken  *talk.Result   // the thread could not be had
}

// autoCompact is what an item wants to change.
type autoCompact struct {
	changes []agent.FileChange
	paths   []string
}

// newAppServer refuses what the app-server does not know.
func newAppServer(s talk.Setup) (talk.Conversation, error) {
	if bad := findExecOnlyFlag(s.Config.Extra); bad != "" {
		return nil, fmt.Errorf("extra argument %q belongs to codex exec: extra arguments stand before the subcommand", bad)
	}
	if s.Config.Profile != "" {
		return nil, fmt.Errorf("codex app-server takes no profile: %w", spool.ErrUnsupported)
	}
	return &appServer{Setup: s, lines: lines{cwd: s.Cwd}, parents: make(map[string]string),
		items: make(map[string]autoCompact), asks: make(map[string]pendingAsk)}, nil
}

func (c *appServer) Command() (talk.Command, error) {
	argv := append(program(c.Setup), c.Config.Extra...)
	return talk.Command{Argv: append(argv, "app-server"), Open: true}, nil
}

func (c *appServer) Opened(w talk.Wire, _ *talk.Turn) {
	c.rpc.Wire = w
	c.rpc.Call("initialize", map[string]any{
		"clientInfo":   map[string]string{"name": "spool", "title": "Spool", "version": talk.ClientVersion},
		"capabilities": map[string]any{"experimentalApi": true}, // for thread/backgroundTerminals
	}, func(_ json.RawMessage, err *rpc.Error, t *talk.Turn) {
		if err != nil {
			c.fail(err, "initialize", t)
			return
		}
		c.rpc.Notify("initialized", nil)
		c.begin()
	})
}

// begin starts, resumes or forks the thread. What the config says applies to
// a thread that is resumed, too.
func (c *appServer) begin() {
	params := map[string]any{}
	set := func(key, value string) {
		if value != "" {
			params[key] = value
		}
	}
	set("cwd", c.Cwd)
	set("model", c.Config.Model)
	set("modelProvider", c.Config.Provider)
	set("approvalPolicy", c.Config.Permissions)
	set("sandbox", c.Config.Sandbox)
	if c.Config.SkipPermissions {
		params["approvalPolicy"], params["sandbox"] = "never", "danger-full-access"
	}
	method := "thread/start"
	if c.Resume != "" {
		method = "thread/resume"
		if c.Fork {
			method = "thread/fork"
		}
		params["threadId"] = c.Resume
		params["excludeTurns"] = true // we have the log
	}
	c.rpc.Call(method, params, func(res json.RawMessage, err *rpc.Error, t *talk.Turn) {
		if err != nil {
			c.fail(err, method, t)
			return
		}
		c.begun(res, t)
	})
}

func (c *appServer) begun(res json.RawMessage, t *talk.Turn) {
	var r struct {
		Thread struct {
			ID      string `json:"id"`
			Version string `json:"cliVersion"`
			Path    string `json:"path"`
			Name    string `json:"name"`
		} `json:"thread"`
		Model    string          `json:"model"`
		Cwd      string          `json:"cwd"`
		Approval json.RawMessage `json:"approvalPolicy"`
		Sandbox  json.RawMessage `json:"sandbox"`
	}
	_ = talk.Decode(res, &r)
	if r.Thread.ID == "" {
		c.fail(&rpc.Error{Message: "no thread id in the answer"}, "thread", t)
		return
	}
	c.thread = r.Thread.ID
	var mode string
	_ = json.Unmarshal(r.Approval, &mode) // it may be an object
	detail, err := json.Marshal(map[string]any{"path": r.Thread.Path, "sandbox": r.Sandbox})
	if err != nil {
		detail = nil
	}
	t.Start(agent.Started{Resume: c.thread, Resumed: c.Resume != "" && !c.Fork, Title: r.Thread.Name, Model: r.Model, Cwd: r.Cwd,
		Mode: mode, Version: r.Thread.Version, Transport: "app-server", Detail: detail})
	if p := c.queued; p != nil {
		c.queued = nil
		c.ask(*p)
	}
}

// fail notes that there will be no thread.
func (c *appServer) fail(err *rpc.Error, doing string, t *talk.Turn) {
	c.broken = &talk.Result{Outcome: spool.TurnError, Error: err.Message, Class: talk.Classify(err.Message, 0)}
	if c.broken.Class == agent.ClassOther {
		c.broken.Class = agent.ClassProtocol
		if strings.Contains(doing, "resume") || strings.Contains(doing, "fork") {
			c.broken.Class = agent.ClassSession
		}
	}
	t.Finish(*c.broken)
}

func (c *appServer) Prompt(p spool.Prompt, t *talk.Turn) error {
	c.current, c.stop = "", false
	c.plain, c.final = "", ""
	switch {
	case c.broken != nil:
		t.Finish(*c.broken)
	case c.thread == "":
		c.queued = &p
	default:
		c.ask(p)
	}
	return nil
}

// userInput is what prompts say and show.
func userInput(prompts ...spool.Prompt) []map[string]any {
	var input []map[string]any
	for _, p := range prompts {
		for _, image := range p.Images {
			input = append(input, map[string]any{"type": "image", "url": "data:" + image.MIME + ";base64," + base64.StdEncoding.EncodeToString(image.Bytes)})
		}
		if p.Text != "" {
			input = append(input, map[string]any{"type": "text", "text": p.Text, "text_elements": []any{}})
		}
	}
	return input
}

func (c *appServer) ask(p spool.Prompt) {
	params := map[string]any{"threadId": c.thread, "input": userInput(append(c.unsaid, p)...)}
	c.unsaid = nil
	if c.Config.Effort != "" {
		params["effort"] = c.Config.Effort
	}
	c.rpc.Call("turn/start", params, func(res json.RawMessage, err *rpc.Error, t *talk.Turn) {
		if err != nil {
			t.Finish(talk.Result{Outcome: spool.TurnError, Error: err.Message})
			return
		}
		var r struct {
			Turn struct {
				ID string `json:"id"`
			} `json:"turn"`
		}
		_ = talk.Decode(res, &r)
		c.running(r.Turn.ID)
	})
}

// running notes the id of the turn, and stops it if that was asked for.
func (c *appServer) running(id string) {
	if id == "" {
		return
	}
	c.current = id
	if c.stop {
		c.stop = false
		c.halt()
	}
}

func (c *appServer) halt() {
	c.rpc.Call("turn/interrupt", map[string]any{"threadId": c.thread, "turnId": c.current}, nil)
}

func (c *appServer) Interrupt(t *talk.Turn) error {
	switch {
	case c.queued != nil: // it never began
		c.queued = nil
		t.Finish(talk.Result{Outcome: spool.TurnInterrupted, Class: agent.ClassStopped, Error: "interrupted before it began"})
	case c.current == "":
		c.stop = true
	default:
		c.halt()
	}
	return nil
}

func (c *appServer) Steer(p spool.Prompt, _ *talk.Turn) error {
	if c.current == "" {
		return spool.ErrUnsupported
	}
	c.rpc.Call("turn/steer", map[string]any{"threadId": c.thread, "input": userInput(p), "expectedTurnId": c.current},
		func(_ json.RawMessage, err *rpc.Error, t *talk.Turn) {
			if err != nil { // the turn ended just then
				c.unsaid = append(c.unsaid, p)
				t.Notice("warning", talk.NoticeNotSteered, "codex did not take what was said in between, so it goes with the next prompt: "+err.Message)
			}
		})
	return nil
}

func (c *appServer) Line(b []byte, t *talk.Turn) {
	m, ok := c.rpc.Read(b, t)
	switch {
	case !ok:
	case m.ID != nil:
		c.request(m, t)
	default:
		c.notification(m.Method, m.Params, b, t)
	}
}

// notification holds what the notifications we know have in common.
type notification struct {
	Thread string          `json:"threadId"`
	Turn   string          `json:"turnId"`
	Item   json.RawMessage `json:"item"`
	ItemID string          `json:"itemId"`
	Delta  string          `json:"delta"`
	Whole  struct {
		ID     string    `json:"id"`
		Status string    `json:"status"`
		Error  turnError `json:"error"`
	} `json:"turn"`
	Usage struct {
		Total  tokens `json:"total"`
		Last   tokens `json:"last"`
		Window int64  `json:"modelContextWindow"`
	} `json:"tokenUsage"`
	Plan []struct {
		Step   string `json:"step"`
		Status string `json:"status"`
	} `json:"plan"`
	Error     turnError       `json:"error"`
	WillRetry bool            `json:"willRetry"`
	Message   string          `json:"message"`
	Summary   string          `json:"summary"`
	Details   string          `json:"details"`
	From      string          `json:"fromModel"`
	To        string          `json:"toModel"`
	Request   json.RawMessage `json:"requestId"`
}

type turnError struct {
	Message string          `json:"message"`
	Info    json.RawMessage `json:"codexErrorInfo"`
	Details string          `json:"additionalDetails"`
}

type tokens struct {
	Total      int64 `json:"totalTokens"`
	Input      int64 `json:"inputTokens"`
	CacheRead  int64 `json:"cachedInputTokens"`
	CacheWrite int64 `json:"cacheWriteInputTokens"`
	Output     int64 `json:"outputTokens"`
	Reasoning  int64 `json:"reasoningOutputTokens"`
}

func (u tokens) spend() agent.Spend {
	return agent.Spend{Input: u.Input, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite, Output: u.Output, Reasoning: u.Reasoning}
}

// quietMethods are notifications that tell nothing a reader could want, or
// what is told whole later. A name that ends in a slash stands for all below.
var quietMethods = []string{
	"thread/started", "thread/status/changed", "thread/readState/", "thread/settings/", "thread/name/", "thread/goal/", "thread/prediction/",
	"thread/queue/", "thread/environment/", "thread/archived", "thread/closed", "thread/project/", "thread/attachment/",
	"project/", "skills/", "hook/", "account/", "app/", "remoteControl/", "fs/", "mcpServer/", "externalAgentConfig/", "turn/diff/updated", "turn/moderationMetadata",
	"rawResponseItem/", "rawResponse/", "command/exec/outputDelta", "process/", "item/plan/delta", "item/commandExecution/outputDelta",
	"item/commandExecution/terminalInteraction", "item/fileChange/outputDelta", "item/fileChange/patchUpdated", "item/mcpToolCall/progress",
	"item/reasoning/summaryPartAdded", "item/reasoning/textDelta", "item/autoApprovalReview/", "model/verification", "model/safetyBuffering/", "modelProvider/",
}

func quiet(method string) bool {
	for _, q := range quietMethods {
		if method == q || strings.HasSuffix(q, "/") && strings.HasPrefix(method, q) {
			return true
		}
	}
	return false
}

func (c *appServer) notification(method string, params json.RawMessage, b []byte, t *talk.Turn) {
	var n notification
	_ = talk.Decode(params, &n)
	ours := n.Thread == "" || n.Thread == c.thread
	switch method {
	case "turn/started":
		if ours {
			c.running(n.Whole.ID)
			t.Action(agent.Action{ID: fmt.Sprintf("turn_%d", c.turns), Kind: agent.ActionTurn, Phase: agent.ActionStarted, Title: "turn started"})
			c.turns++
		}
	case "turn/completed":
		if ours && (c.current == "" || n.Whole.ID == c.current) {
			c.completed(n.Whole.Status, n.Whole.Error, t)
		}
	case "item/started":
		c.item(n, agent.ActionStarted, b, t)
	case "item/completed":
		c.item(n, agent.ActionCompleted, b, t)
	case "item/agentMessage/delta":
		t.Message(agent.Message{ID: n.ItemID, Text: n.Delta, Delta: true, Parent: c.parent(n.Thread)})
	case "item/reasoning/summaryTextDelta":
		t.Reasoning(agent.Reasoning{ID: n.ItemID, Text: n.Delta, Delta: true, Parent: c.parent(n.Thread)})
	case "turn/plan/updated":
		plan := agent.Plan{Items: []agent.PlanItem{}}
		for _, s := range n.Plan {
			plan.Items = append(plan.Items, agent.PlanItem{Text: s.Step, Status: snake(s.Status)})
		}
		t.Plan(plan)
	case "thread/tokenUsage/updated":
		// A thread that is resumed tells its total before anything is used.
		if ours && c.current != "" && n.Turn == c.current {
			t.Step()
			t.Add(n.Usage.Last.spend())
			t.SetTotal(n.Usage.Total.spend())
			t.Context(n.Usage.Last.Total, n.Usage.Window)
		}
	case "error":
		c.trouble(n, t)
	case "serverRequest/resolved":
		if _, open := c.asks[talk.RequestKey(n.Request)]; open {
			delete(c.asks, talk.RequestKey(n.Request))
			t.Withdraw(talk.RequestKey(n.Request))
		}
	case "thread/compacted":
		t.Notice("info", talk.NoticeWarning, "the conversation was compacted")
	case "model/rerouted":
		t.Notice("warning", talk.NoticeWarning, fmt.Sprintf("the model is %s, not %s", n.To, n.From))
	case "warning", "guardianWarning", "configWarning", "windows/worldWritableWarning":
		t.Notice("warning", talk.NoticeWarning, strings.TrimSpace(cmp.Or(n.Message, n.Summary)+" "+n.Details))
	case "deprecationNotice":
		t.Notice("debug", talk.NoticeWarning, n.Summary)
	default:
		if !quiet(method) {
			t.Unknown(method, b)
		}
	}
}

// parent is the action that another thread works for.
func (c *appServer) parent(thread string) string {
	if thread == "" || thread == c.thread {
		return ""
	}
	return cmp.Or(c.parents[thread], thread)
}

// trouble is an error in the middle of a turn. If it is not retried, the end
// of the turn repeats it.
func (c *appServer) trouble(n notification, t *talk.Turn) {
	text := n.Error.Message
	if !n.WillRetry {
		t.Notice("warning", talk.NoticeWarning, text)
		return
	}
	r, ok := parseRetry(text)
	if !ok {
		r = agent.Retry{Reason: text}
	}
	if r.Reason == "" {
		r.Reason = n.Error.Details
	}
	c.retried = true
	r.Status = httpStatus(n.Error.Info)
	t.Retry(r)
}

// httpStatus finds the status in codex's error info, an object with one
// member that may hold it.
func httpStatus(info json.RawMessage) int {
	var variants map[string]struct {
		Status int `json:"httpStatusCode"`
	}
	_ = talk.Decode(info, &variants)
	for _, v := range variants {
		if v.Status != 0 {
			return v.Status
		}
	}
	return 0
}

// errorClasses are the causes that codex names.
var errorClasses = map[string]string{
	"contextWindowExceeded": agent.ClassContext, "usageLimitExceeded": agent.ClassRateLimit, "rateLimitExceeded": agent.ClassRateLimit,
	"serverOverloaded": agent.ClassOverloaded, "internalServerError": agent.ClassOverloaded, "modelNotFound": agent.ClassModel,
	"unauthorized": agent.ClassAuth, "tooManyDenials": agent.ClassPermission, "sandboxError": agent.ClassPermission,
}

func (c *appServer) completed(status string, e turnError, t *talk.Turn) {
	c.endTurn(t, status == "completed")
	c.current, c.stop = "", false
	clear(c.asks)
	clear(c.items)
	r := talk.Result{Outcome: spool.TurnOK, Answer: c.reply()}
	switch status {
	case "completed":
	case "interrupted":
		r.Outcome, r.Class, r.Error = spool.TurnInterrupted, agent.ClassStopped, "interrupted"
		// Codex lets a command run on in the background that has begun to.
		c.rpc.Call("thread/backgroundTerminals/clean", map[string]any{"threadId": c.thread},
			func(_ json.RawMessage, _ *rpc.Error, t *talk.Turn) { t.Finish(r) }) // one that cannot do it ends the turn as well
		return
	default:
		r.Outcome, r.Error = spool.TurnError, cmp.Or(e.Message, "codex says that the turn failed")
		var name string
		_ = json.Unmarshal(e.Info, &name) // it may be an object
		r.Class = cmp.Or(errorClasses[name], talk.Classify(r.Error, httpStatus(e.Info)))
		if name == "sessionBudgetExceeded" {
			r.Outcome = agent.TurnBudget
		}
	}
	t.Finish(r)
}

func (c *appServer) Ended(x talk.Exit, t *talk.Turn) {
	if c.broken != nil {
		t.Finish(*c.broken)
		return
	}
	r := talk.FailedExit("codex app-server", x, c.reply())
	if x.Code == 0 && x.Signal == "" {
		r.Error = "codex app-server ended before the turn did"
		r.Class = agent.ClassProtocol
	}
	t.Finish(r)
}

// snake writes a name of codex's as we do: inProgress is in_progress.
func snake(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}
