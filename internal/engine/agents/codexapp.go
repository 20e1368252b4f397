package agents

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// codexApp is codex app-server: one process, prompt after prompt, with
// approvals, questions, interrupting and steering.
type codexApp struct {
	setup
	codexLines
	rpc     peer
	thread  string             // our thread, once it is known
	parents map[string]string  // the actions that other threads work for
	items   map[string]codexAC // changes of files that may be asked about
	asks    map[string]codexAsk

	queued  *spool.Prompt // waits for the thread
	unsaid  []string      // came too late for a turn, and goes into the next
	current string        // id of the turn that runs
	stop    bool          // interrupt it as soon as it has an id
	broken  *result       // the thread could not be had
}

// codexAC is what an item wants to change.
type codexAC struct {
	changes []agent.FileChange
	paths   []string
}

// newCodexApp refuses what the app-server does not know.
func newCodexApp(s setup) (conversation, error) {
	if bad := findExecOnlyFlag(s.config.Extra); bad != "" {
		return nil, fmt.Errorf("extra argument %q belongs to codex exec: extra arguments stand before the subcommand", bad)
	}
	if s.config.Profile != "" {
		return nil, fmt.Errorf("codex app-server takes no profile: %w", spool.ErrUnsupported)
	}
	return &codexApp{setup: s, codexLines: codexLines{cwd: s.cwd}, parents: make(map[string]string),
		items: make(map[string]codexAC), asks: make(map[string]codexAsk)}, nil
}

func (c *codexApp) command() (command, error) {
	argv := append(c.program(Codex), c.config.Extra...)
	return command{argv: append(argv, "app-server"), open: true}, nil
}

func (c *codexApp) opened(w wire, _ *turn) {
	c.rpc.w = w
	c.rpc.call("initialize", map[string]any{
		"clientInfo":   map[string]string{"name": "spool", "title": "Spool", "version": clientVersion},
		"capabilities": map[string]any{"experimentalApi": true}, // for thread/backgroundTerminals
	}, func(_ json.RawMessage, err *rpc.Error, t *turn) {
		if err != nil {
			c.fail(err, "initialize", t)
			return
		}
		c.rpc.notify("initialized", nil)
		c.begin()
	})
}

// begin starts, resumes or forks the thread. What the config says applies to
// a thread that is resumed, too.
func (c *codexApp) begin() {
	params := map[string]any{}
	set := func(key, value string) {
		if value != "" {
			params[key] = value
		}
	}
	set("cwd", c.setup.cwd)
	set("model", c.config.Model)
	set("modelProvider", c.config.Provider)
	set("approvalPolicy", c.config.Permissions)
	set("sandbox", c.config.Sandbox)
	if c.config.SkipPermissions {
		params["approvalPolicy"], params["sandbox"] = "never", "danger-full-access"
	}
	method := "thread/start"
	if c.resume != "" {
		method = "thread/resume"
		if c.fork {
			method = "thread/fork"
		}
		params["threadId"] = c.resume
		params["excludeTurns"] = true // we have the log
	}
	c.rpc.call(method, params, func(res json.RawMessage, err *rpc.Error, t *turn) {
		if err != nil {
			c.fail(err, method, t)
			return
		}
		c.begun(res, t)
	})
}

func (c *codexApp) begun(res json.RawMessage, t *turn) {
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
	_ = lenient(res, &r)
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
	t.start(agent.Started{Resume: c.thread, Resumed: c.resume != "" && !c.fork, Title: r.Thread.Name, Model: r.Model, Cwd: r.Cwd,
		Mode: mode, Version: r.Thread.Version, Transport: "app-server", Detail: detail})
	if p := c.queued; p != nil {
		c.queued = nil
		c.ask(*p)
	}
}

// fail notes that there will be no thread.
func (c *codexApp) fail(err *rpc.Error, doing string, t *turn) {
	c.broken = &result{outcome: spool.TurnError, err: err.Message, class: classify(err.Message, 0)}
	if c.broken.class == agent.ClassOther {
		c.broken.class = agent.ClassProtocol
		if strings.Contains(doing, "resume") || strings.Contains(doing, "fork") {
			c.broken.class = agent.ClassSession
		}
	}
	t.finish(*c.broken)
}

func (c *codexApp) prompt(p spool.Prompt, t *turn) error {
	c.current, c.stop = "", false
	c.plain, c.final = "", ""
	switch {
	case c.broken != nil:
		t.finish(*c.broken)
	case c.thread == "":
		c.queued = &p
	default:
		c.ask(p)
	}
	return nil
}

func codexInput(texts ...string) []map[string]any {
	var input []map[string]any
	for _, text := range texts {
		input = append(input, map[string]any{"type": "text", "text": text, "text_elements": []any{}})
	}
	return input
}

func (c *codexApp) ask(p spool.Prompt) {
	params := map[string]any{"threadId": c.thread, "input": codexInput(append(c.unsaid, p.Text)...)}
	c.unsaid = nil
	if c.config.Effort != "" {
		params["effort"] = c.config.Effort
	}
	c.rpc.call("turn/start", params, func(res json.RawMessage, err *rpc.Error, t *turn) {
		if err != nil {
			t.finish(result{outcome: spool.TurnError, err: err.Message})
			return
		}
		var r struct {
			Turn struct {
				ID string `json:"id"`
			} `json:"turn"`
		}
		_ = lenient(res, &r)
		c.running(r.Turn.ID)
	})
}

// running notes the id of the turn, and stops it if that was asked for.
func (c *codexApp) running(id string) {
	if id == "" {
		return
	}
	c.current = id
	if c.stop {
		c.stop = false
		c.halt()
	}
}

func (c *codexApp) halt() {
	c.rpc.call("turn/interrupt", map[string]any{"threadId": c.thread, "turnId": c.current}, nil)
}

func (c *codexApp) interrupt(t *turn) error {
	switch {
	case c.queued != nil: // it never began
		c.queued = nil
		t.finish(result{outcome: spool.TurnInterrupted, class: agent.ClassStopped, err: "interrupted before it began"})
	case c.current == "":
		c.stop = true
	default:
		c.halt()
	}
	return nil
}

func (c *codexApp) steer(p spool.Prompt, _ *turn) error {
	if c.current == "" {
		return spool.ErrUnsupported
	}
	c.rpc.call("turn/steer", map[string]any{"threadId": c.thread, "input": codexInput(p.Text), "expectedTurnId": c.current},
		func(_ json.RawMessage, err *rpc.Error, t *turn) {
			if err != nil { // the turn ended just then
				c.unsaid = append(c.unsaid, p.Text)
				t.notice("warning", NoticeNotSteered, "codex did not take what was said in between, so it goes with the next prompt: "+err.Message)
			}
		})
	return nil
}

func (c *codexApp) line(b []byte, t *turn) {
	m, ok := c.rpc.read(b, t)
	switch {
	case !ok:
	case m.ID != nil:
		c.request(m, t)
	default:
		c.notification(m.Method, m.Params, b, t)
	}
}

// codexNote holds what the notifications we know have in common.
type codexNote struct {
	Thread string          `json:"threadId"`
	Turn   string          `json:"turnId"`
	Item   json.RawMessage `json:"item"`
	ItemID string          `json:"itemId"`
	Delta  string          `json:"delta"`
	Whole  struct {
		ID     string     `json:"id"`
		Status string     `json:"status"`
		Error  codexError `json:"error"`
	} `json:"turn"`
	Usage struct {
		Total  codexTokens `json:"total"`
		Last   codexTokens `json:"last"`
		Window int64       `json:"modelContextWindow"`
	} `json:"tokenUsage"`
	Plan []struct {
		Step   string `json:"step"`
		Status string `json:"status"`
	} `json:"plan"`
	Error     codexError      `json:"error"`
	WillRetry bool            `json:"willRetry"`
	Message   string          `json:"message"`
	Summary   string          `json:"summary"`
	Details   string          `json:"details"`
	From      string          `json:"fromModel"`
	To        string          `json:"toModel"`
	Request   json.RawMessage `json:"requestId"`
}

type codexError struct {
	Message string          `json:"message"`
	Info    json.RawMessage `json:"codexErrorInfo"`
	Details string          `json:"additionalDetails"`
}

type codexTokens struct {
	Total      int64 `json:"totalTokens"`
	Input      int64 `json:"inputTokens"`
	CacheRead  int64 `json:"cachedInputTokens"`
	CacheWrite int64 `json:"cacheWriteInputTokens"`
	Output     int64 `json:"outputTokens"`
	Reasoning  int64 `json:"reasoningOutputTokens"`
}

func (u codexTokens) spend() agent.Spend {
	return agent.Spend{Input: u.Input, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite, Output: u.Output, Reasoning: u.Reasoning}
}

// codexAppQuiet are notifications that tell nothing a reader could want, or
// what is told whole later. A name that ends in a slash stands for all below.
var codexAppQuiet = []string{
	"thread/started", "thread/status/changed", "thread/readState/", "thread/settings/", "thread/name/", "thread/goal/", "thread/prediction/",
	"thread/queue/", "thread/environment/", "thread/archived", "thread/closed", "thread/project/", "thread/attachment/",
	"project/", "skills/", "hook/", "account/", "app/", "remoteControl/", "fs/", "mcpServer/", "externalAgentConfig/", "turn/diff/updated", "turn/moderationMetadata",
	"rawResponseItem/", "rawResponse/", "command/exec/outputDelta", "process/", "item/plan/delta", "item/commandExecution/outputDelta",
	"item/commandExecution/terminalInteraction", "item/fileChange/outputDelta", "item/fileChange/patchUpdated", "item/mcpToolCall/progress",
	"item/reasoning/summaryPartAdded", "item/reasoning/textDelta", "item/autoApprovalReview/", "model/verification", "model/safetyBuffering/", "modelProvider/",
}

func quiet(method string) bool {
	for _, q := range codexAppQuiet {
		if method == q || strings.HasSuffix(q, "/") && strings.HasPrefix(method, q) {
			return true
		}
	}
	return false
}

func (c *codexApp) notification(method string, params json.RawMessage, b []byte, t *turn) {
	var n codexNote
	_ = lenient(params, &n)
	ours := n.Thread == "" || n.Thread == c.thread
	switch method {
	case "turn/started":
		if ours {
			c.running(n.Whole.ID)
			t.action(agent.Action{ID: fmt.Sprintf("turn_%d", c.turns), Kind: agent.ActionTurn, Phase: agent.ActionStarted, Title: "turn started"})
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
		t.message(agent.Message{ID: n.ItemID, Text: n.Delta, Delta: true, Parent: c.parent(n.Thread)})
	case "item/reasoning/summaryTextDelta":
		t.reasoning(agent.Reasoning{ID: n.ItemID, Text: n.Delta, Delta: true, Parent: c.parent(n.Thread)})
	case "turn/plan/updated":
		plan := agent.Plan{Items: []agent.PlanItem{}}
		for _, s := range n.Plan {
			plan.Items = append(plan.Items, agent.PlanItem{Text: s.Step, Status: snake(s.Status)})
		}
		t.plan(plan)
	case "thread/tokenUsage/updated":
		// A thread that is resumed tells its total before anything is used.
		if ours && c.current != "" && n.Turn == c.current {
			t.step()
			t.add(n.Usage.Last.spend())
			t.setTotal(n.Usage.Total.spend())
			t.context(n.Usage.Last.Total, n.Usage.Window)
		}
	case "error":
		c.trouble(n, t)
	case "serverRequest/resolved":
		if _, open := c.asks[askKey(n.Request)]; open {
			delete(c.asks, askKey(n.Request))
			t.withdraw(askKey(n.Request))
		}
	case "thread/compacted":
		t.notice("info", NoticeWarning, "the conversation was compacted")
	case "model/rerouted":
		t.notice("warning", NoticeWarning, fmt.Sprintf("the model is %s, not %s", n.To, n.From))
	case "warning", "guardianWarning", "configWarning", "windows/worldWritableWarning":
		t.notice("warning", NoticeWarning, strings.TrimSpace(first(n.Message, n.Summary)+" "+n.Details))
	case "deprecationNotice":
		t.notice("debug", NoticeWarning, n.Summary)
	default:
		if !quiet(method) {
			t.unknown(method, b)
		}
	}
}

// parent is the action that another thread works for.
func (c *codexApp) parent(thread string) string {
	if thread == "" || thread == c.thread {
		return ""
	}
	return first(c.parents[thread], thread)
}

// trouble is an error in the middle of a turn. If it is not retried, the end
// of the turn repeats it.
func (c *codexApp) trouble(n codexNote, t *turn) {
	text := n.Error.Message
	if !n.WillRetry {
		t.notice("warning", NoticeWarning, text)
		return
	}
	r, ok := codexRetry(text)
	if !ok {
		r = agent.Retry{Reason: text}
	}
	if r.Reason == "" {
		r.Reason = n.Error.Details
	}
	c.retried = true
	r.Status = httpStatus(n.Error.Info)
	t.retry(r)
}

// httpStatus finds the status in codex's error info, an object with one
// member that may hold it.
func httpStatus(info json.RawMessage) int {
	var variants map[string]struct {
		Status int `json:"httpStatusCode"`
	}
	_ = lenient(info, &variants)
	for _, v := range variants {
		if v.Status != 0 {
			return v.Status
		}
	}
	return 0
}

// codexClasses are the causes that codex names.
var codexClasses = map[string]string{
	"contextWindowExceeded": agent.ClassContext, "usageLimitExceeded": agent.ClassRateLimit, "rateLimitExceeded": agent.ClassRateLimit,
	"serverOverloaded": agent.ClassOverloaded, "internalServerError": agent.ClassOverloaded, "modelNotFound": agent.ClassModel,
	"unauthorized": agent.ClassAuth, "tooManyDenials": agent.ClassPermission, "sandboxError": agent.ClassPermission,
}

func (c *codexApp) completed(status string, e codexError, t *turn) {
	c.endTurn(t, status == "completed")
	c.current, c.stop = "", false
	clear(c.asks)
	clear(c.items)
	r := result{outcome: spool.TurnOK, answer: c.reply()}
	switch status {
	case "completed":
	case "interrupted":
		r.outcome, r.class, r.err = spool.TurnInterrupted, agent.ClassStopped, "interrupted"
		// Codex lets a command run on in the background that has begun to.
		c.rpc.call("thread/backgroundTerminals/clean", map[string]any{"threadId": c.thread},
			func(_ json.RawMessage, _ *rpc.Error, t *turn) { t.finish(r) }) // one that cannot do it ends the turn as well
		return
	default:
		r.outcome, r.err = spool.TurnError, first(e.Message, "codex says that the turn failed")
		var name string
		_ = json.Unmarshal(e.Info, &name) // it may be an object
		r.class = first(codexClasses[name], classify(r.err, httpStatus(e.Info)))
		if name == "sessionBudgetExceeded" {
			r.outcome = spool.TurnBudget
		}
	}
	t.finish(r)
}

func (c *codexApp) ended(x exit, t *turn) {
	if c.broken != nil {
		t.finish(*c.broken)
		return
	}
	r := failedExit("codex app-server", x, c.reply())
	if x.code == 0 && x.signal == "" {
		r.err = "codex app-server ended before the turn did"
		r.class = agent.ClassProtocol
	}
	t.finish(r)
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
