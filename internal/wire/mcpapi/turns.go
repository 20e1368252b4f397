package mcpapi

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/python"
)

const (
	// labelSession is the label of a Python session with its name, and labelDir the one
	// with the directory of the server that started it: clients in other directories
	// have sessions of their own.
	labelSession = "mcp.session"
	labelDir     = "mcp.dir"
	// startFor is how long an interpreter may take to start: a model rather waits than
	// tries again on a busy machine.
	startFor = 30 * time.Second
	// sessionIdle is the time after which an unused session ends.
	sessionIdle = time.Hour
)

// python runs a cell.
func (c *call) python(args func(any) error) (*mcp.CallToolResult, error) {
	var a struct {
		Code      string `json:"code"`
		Session   string `json:"session"`
		Isolated  bool   `json:"isolated"`
		TimeoutMs int64  `json:"timeout_ms"`
		Images    int    `json:"images"`
		ID        string `json:"id"`
		WaitMs    int    `json:"wait_ms"`
		Budget    int    `json:"budget"`
	}
	if err := args(&a); err != nil {
		return nil, err
	}
	cell, id := spool.Cell{Code: a.Code, TimeoutMs: a.TimeoutMs}, named(a.ID, "cell")
	var knows func(*spool.Run) bool
	if id != "" {
		knows = func(ended *spool.Run) bool {
			turn, err := ended.Exec(c.ctx, id, cell)
			return err == nil && turn.Repeated()
		}
	}
	run, err := c.session(a.Session, a.Isolated, knows)
	if err != nil {
		return nil, err
	}
	turn, err := run.Exec(c.ctx, id, cell)
	if err != nil {
		return nil, err
	}
	return c.turn(run, turn.Seq(), milliseconds(a.WaitMs), a.Budget, a.Images)
}

// session finds the session with a name in the working directory, or starts it. If knows
// is not nil, it reports whether a session that has ended knows the call, which then is a
// repeated one.
func (c *call) session(name string, isolated bool, knows func(ended *spool.Run) bool) (*spool.Run, error) {
	c.sessions.Lock()
	defer c.sessions.Unlock()
	spec := python.KernelConfig{Input: python.InputAsk, StartTimeoutMs: startFor.Milliseconds()}.Spec()
	spec.Cwd, spec.Limits.Idle = c.dir(""), sessionIdle
	if isolated {
		spec = python.SandboxConfig{Offer: []string{spool.AskInput}, Limits: python.SandboxLimits{IdleMs: sessionIdle.Milliseconds()}}.Spec()
	}
	spec.Labels = map[string]string{labelSession: name, labelDir: c.dir("")}
	for info, err := range c.opts.Backend.List(c.ctx, spool.Filter{Engine: spec.Engine, Live: true, Labels: spec.Labels}) {
		if err == nil && info.State == spool.StateRunning {
			return spool.Attach(c.opts.Backend, info.ID), nil
		}
	}
	// One that "spool py --session" started.
	if run, info, err := c.find(name); err == nil && info.Engine == spec.Engine && (info.State == spool.StateRunning || knows != nil && knows(run)) {
		return run, nil
	}
	if knows != nil {
		for info, err := range c.opts.Backend.List(c.ctx, spool.Filter{Engine: spec.Engine, Labels: spec.Labels, Limit: 1}) {
			if run := spool.Attach(c.opts.Backend, info.ID); err == nil && knows(run) {
				return run, nil
			}
		}
	}
	// The next call, perhaps this one repeated, must find it: it starts in any case.
	return c.start(context.WithoutCancel(c.ctx), spec)
}

// askAgent gives an agent a prompt.
func (c *call) askAgent(args func(any) error) (*mcp.CallToolResult, error) {
	var a struct {
		Agent  string   `json:"agent"`
		Prompt string   `json:"prompt"`
		Images []string `json:"images"`
		Run    string   `json:"run"`
		Cwd    string   `json:"cwd"`
		Model  string   `json:"model"`
		ID     string   `json:"id"`
		WaitMs int      `json:"wait_ms"`
		Budget int      `json:"budget"`
	}
	if err := args(&a); err != nil {
		return nil, err
	}
	images, err := c.images(a.Images)
	if err != nil {
		return nil, err
	}
	run, err := c.conversation(a.Agent, a.Run, a.Cwd, a.Model, a.ID)
	if err != nil {
		return nil, err
	}
	turn, err := run.Prompt(c.ctx, named(a.ID, "prompt"), spool.Prompt{Text: a.Prompt, Images: images})
	if errors.Is(err, spool.ErrInputClosed) {
		return nil, fmt.Errorf("%w; begin another conversation with agent", err)
	}
	if err != nil {
		return nil, err
	}
	return c.turn(run, turn.Seq(), milliseconds(a.WaitMs), a.Budget, 0)
}

// images are those of a prompt: data URLs, or the addresses of forms of displays.
func (c *call) images(addresses []string) ([]spool.PromptImage, error) {
	var images []spool.PromptImage
	for i, address := range addresses {
		if rest, ok := strings.CutPrefix(address, "data:"); ok {
			mime, encoded, ok := strings.Cut(rest, ";base64,")
			b, err := base64.StdEncoding.DecodeString(encoded)
			if err != nil || !ok {
				return nil, fmt.Errorf("%w: image %d is no data: URL with base64", spool.ErrInvalid, i+1)
			}
			images = append(images, spool.PromptImage{MIME: mime, Bytes: b})
			continue
		}
		path, ok := strings.CutPrefix(address, runsURI)
		if !ok || !strings.Contains(path, "/forms/image/") {
			return nil, fmt.Errorf("%w: image %d, %.80q, is neither the address of a form nor a data: URL", spool.ErrInvalid, i+1, address)
		}
		form, err := c.resource(address)
		if err != nil {
			return nil, fmt.Errorf("image %d: %w", i+1, err)
		}
		images = append(images, spool.PromptImage{MIME: form.MIMEType, Bytes: form.Blob})
	}
	return images, nil
}

// conversation finds or starts the run of an agent. One that it starts has the id.
func (c *call) conversation(name, run, cwd, model, id string) (*spool.Run, error) {
	known := []string{agent.Codex, agent.Claude, agent.OpenCode, agent.Pi}
	switch {
	case (name == "") == (run == ""):
		return nil, fmt.Errorf("%w: give either agent, to begin a conversation, or run, to go on with one", spool.ErrInvalid)
	case run != "" && (cwd != "" || model != ""):
		return nil, fmt.Errorf("%w: cwd and model are settled when a conversation begins", spool.ErrInvalid)
	case run != "":
		found, info, err := c.find(run)
		if err == nil && info.Engine != agent.Engine {
			err = fmt.Errorf("%w: run %s is no agent", spool.ErrUnsupported, run)
		}
		return found, err
	case !slices.Contains(known, name):
		return nil, fmt.Errorf("%w: there is no agent %q: use %s", spool.ErrInvalid, name, strings.Join(known, ", "))
	}
	spec := agent.Config{Agent: name, Model: model}.Spec()
	spec.ID, spec.Cwd, spec.EnvPolicy = spool.RunID(id), c.dir(cwd), c.opts.AgentEnv
	return c.start(c.ctx, spec)
}

// turn waits for the end of a turn and shows what it did.
func (c *call) turn(run *spool.Run, turn spool.Seq, most time.Duration, budget, images int) (*mcp.CallToolResult, error) {
	w, err := c.waiter(run, &Waiting{Until: whyTurn}, turn)
	if err != nil {
		return nil, err
	}
	w.turn = turn
	why, err := w.wait(c.ctx, most)
	if err != nil {
		return nil, err
	}
	v, err := c.view(run, w, why)
	if err != nil {
		return nil, err
	}
	if err := c.fillTurn(v, run, turn, budget, images); err != nil {
		return nil, err
	}
	return c.finish(v, next{Turn: turn, Budget: budget, Images: images, WaitMs: int(most.Milliseconds())})
}

// fillTurn puts what a turn did into a view.
func (c *call) fillTurn(v *RunView, run *spool.Run, turn spool.Seq, budget, images int) error {
	v.Turn = turn
	err := c.transcript(v, run, turn, turn, budget)
	if err != nil {
		return err
	}
	if v.Done, err = doneOf(c, run, turn, v.Next); err != nil {
		return err
	}
	if d := v.Done; d != nil {
		if d.Answer != "" {
			v.Text = cut(d.Answer, budget)
			d.Answer = "" // the text has it
		}
		if d.Stderr != "" && d.Outcome != spool.TurnOK && !strings.Contains(v.Text, strings.TrimSpace(d.Stderr)) {
			v.Text = cut(v.Text, budget*3/4) + "\n[stderr]\n" + end(d.Stderr, budget/4-len("\n[stderr]\n"))
		}
		d.Stderr = ""
	}
	return c.addImages(v, run, turn, images)
}

// end returns the last characters of a text.
func end(text string, most int) string {
	if r := []rune(text); len(r) > most {
		return "…" + string(r[len(r)-max(most, 1)+1:])
	}
	return text
}

// doneOf returns how a turn ended, and nil if it has not by an event.
func doneOf(c *call, run *spool.Run, turn, to spool.Seq) (*spool.Done, error) {
	var done *spool.Done
	err := each(c.ctx, run, turn, to, func(e *spool.Event) error {
		if e.Kind != spool.KindDone || e.Turn != turn {
			return nil
		}
		done = new(spool.Done)
		return json.Unmarshal(e.Data, done)
	})
	return done, err
}

// answer answers an ask.
func (c *call) answer(args func(any) error) (*mcp.CallToolResult, error) {
	var a struct {
		Run    string          `json:"run"`
		Ask    spool.Seq       `json:"ask"`
		Choice *string         `json:"choice"`
		Data   json.RawMessage `json:"data"`
		Retype string          `json:"retype"`
		Budget int             `json:"budget"`
	}
	if err := args(&a); err != nil {
		return nil, err
	}
	if (a.Choice == nil) == (a.Data == nil) {
		return nil, fmt.Errorf("%w: give either choice or data", spool.ErrInvalid)
	}
	run, info, err := c.find(a.Run)
	if err != nil {
		return nil, err
	}
	ask, err := readAsk(c.ctx, run, a.Ask)
	if err != nil {
		return nil, err
	}
	if a.Choice != nil {
		if err := checkChoice(ask, *a.Choice); err != nil {
			return nil, err
		}
		if a.Data, err = json.Marshal(*a.Choice); err != nil {
			return nil, err
		}
	}
	if err := run.Answer(c.ctx, spool.Answer{Ask: a.Ask, Data: a.Data, By: c.client(), Retype: a.Retype}, ask.Secret); err != nil {
		return nil, err
	}
	v, err := c.view(run, nil, "")
	if err != nil {
		return nil, err
	}
	if err := c.fill(v, run, viewHeadTail, info.Last, v.Next, a.Budget); err != nil {
		return nil, err
	}
	return c.finish(v, next{})
}

// checkChoice returns [spool.ErrInvalid] for a choice that an ask does not have.
func checkChoice(ask *spool.Ask, choice string) error {
	var ids []string
	for _, o := range ask.Options {
		if o.ID == choice {
			return nil
		}
		ids = append(ids, o.ID)
	}
	if len(ids) > 0 {
		return fmt.Errorf("%w: the choice %q is not among %s", spool.ErrInvalid, choice, strings.Join(ids, ", "))
	}
	return nil
}
