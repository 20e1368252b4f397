package mcpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/visible"
)

// terminal is the size of a terminal that nobody looks at.
var terminal = spool.Size{Rows: 40, Cols: 120}

func milliseconds(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// runCommand starts a command.
func (c *call) runCommand(args func(any) error) (*mcp.CallToolResult, error) {
	var a struct {
		Command   *string           `json:"command"`
		Argv      []string          `json:"argv"`
		Cwd       string            `json:"cwd"`
		Env       map[string]string `json:"env"`
		Stdin     *string           `json:"stdin"`
		TTY       bool              `json:"tty"`
		Name      string            `json:"name"`
		TimeoutMs int64             `json:"timeout_ms"`
		ID        string            `json:"id"`
		OnCancel  string            `json:"on_cancel"`
		Waiting
		Budget int `json:"budget"`
	}
	if err := args(&a); err != nil {
		return nil, err
	}
	if (a.Command == nil) == (len(a.Argv) == 0) {
		return nil, fmt.Errorf("%w: give either command or argv", spool.ErrInvalid)
	}
	spec := spool.Spec{ID: spool.RunID(a.ID), Name: a.Name, Argv: a.Argv, Cwd: c.dir(a.Cwd), Env: a.Env, EnvPolicy: c.opts.Env, Stdin: a.Stdin != nil,
		Limits: spool.Limits{Wall: time.Duration(a.TimeoutMs) * time.Millisecond}}
	if a.Command != nil {
		spec.Argv = []string{"/bin/sh", "-c", *a.Command}
	}
	if a.TTY {
		spec.TTY = &terminal
	}
	w, err := c.waiter(nil, &a.Waiting, 0)
	if err != nil {
		return nil, err
	}
	run, err := c.start(c.ctx, spec)
	if err != nil {
		return nil, err
	}
	if a.Stdin != nil {
		if err := typeAll(c.ctx, run, *a.Stdin, a.ID); err != nil {
			return nil, err
		}
	}
	w.run = run
	why, err := w.wait(c.ctx, milliseconds(a.WaitMs))
	if err != nil {
		if c.ctx.Err() != nil && a.OnCancel == "stop" {
			err = errors.Join(err, run.Stop(context.WithoutCancel(c.ctx)))
		}
		return nil, err
	}
	v, err := c.view(run, w, why)
	if err != nil {
		return nil, err
	}
	if err := c.fill(v, run, viewHeadTail, 0, v.Next, a.Budget); err != nil {
		return nil, err
	}
	return c.finish(v, next{Budget: a.Budget, WaitMs: a.WaitMs})
}

// named returns the id of what a call does, and "" if the call has no id. A run does what
// has an id once.
func named(id, what string) string {
	if id == "" {
		return ""
	}
	return "mcp-" + id + "-" + what
}

// typing returns the inputs that write a text and perhaps end the input.
func typing(text []byte, eof bool, id string) (inputs []spool.Input) {
	if len(text) > 0 {
		inputs = append(inputs, spool.Input{ID: named(id, "text"), Kind: spool.InputStdin, Bytes: text})
	}
	if eof {
		inputs = append(inputs, spool.Input{ID: named(id, "eof"), Kind: spool.InputEOF})
	}
	return inputs
}

// typeAll writes all of standard input. If the call has an id, a repeated call writes
// nothing.
func typeAll(ctx context.Context, run *spool.Run, text, id string) error {
	for _, in := range typing([]byte(text), true, id) {
		if _, err := run.Send(ctx, in); err != nil && !errors.Is(err, spool.ErrInputClosed) { // it need not read all of it
			return err
		}
	}
	return nil
}

// readRun shows output of a run.
func (c *call) readRun(args func(any) error) (*mcp.CallToolResult, error) {
	var a struct {
		Run     string     `json:"run"`
		After   *spool.Seq `json:"after"`
		View    string     `json:"view"`
		Grep    string     `json:"grep"`
		Context int        `json:"context"`
		Waiting
		Budget int `json:"budget"`
	}
	if err := args(&a); err != nil {
		return nil, err
	}
	run, _, err := c.find(a.Run)
	if err != nil {
		return nil, err
	}
	after := spool.Seq(0)
	if a.View == "" {
		a.View = viewTail
		if a.After != nil {
			a.View = viewHeadTail
		}
	}
	if a.After != nil {
		after = *a.After
	}
	w, err := c.waiter(run, &a.Waiting, after)
	if err != nil {
		return nil, err
	}
	why, err := w.wait(c.ctx, milliseconds(a.WaitMs))
	if err != nil {
		return nil, err
	}
	v, err := c.view(run, w, why)
	if err != nil {
		return nil, err
	}
	switch {
	case a.Grep != "":
		err = c.grep(v, run, a.Grep, a.Context, after, a.Budget)
	case a.View == viewScreen:
		err = c.screen(v, a.Budget)
	case a.View == viewTranscript:
		err = c.transcript(v, run, 0, after, a.Budget)
	default:
		err = c.fill(v, run, a.View, after, v.Next, a.Budget)
	}
	if err != nil {
		return nil, err
	}
	v.Next = max(v.Next, min(after, v.info.Last))
	return c.finish(v, next{After: after, Budget: a.Budget, WaitMs: a.WaitMs})
}

// sendInput types to a run.
func (c *call) sendInput(args func(any) error) (*mcp.CallToolResult, error) {
	var a struct {
		Run   string     `json:"run"`
		Text  string     `json:"text"`
		Keys  []string   `json:"keys"`
		EOF   bool       `json:"eof"`
		After *spool.Seq `json:"after"`
		ID    string     `json:"id"`
		Waiting
		Budget int `json:"budget"`
	}
	if err := args(&a); err != nil {
		return nil, err
	}
	if a.Text == "" && len(a.Keys) == 0 && !a.EOF {
		return nil, fmt.Errorf("%w: give text, keys or eof", spool.ErrInvalid)
	}
	run, info, err := c.find(a.Run)
	if err != nil {
		return nil, err
	}
	after := info.Last
	if a.After != nil {
		after = *a.After
	}
	w, err := c.waiter(run, &a.Waiting, after)
	if err != nil {
		return nil, err
	}
	text, err := typed(a.Text, a.Keys)
	if err != nil {
		return nil, err
	}
	for _, in := range typing(text, a.EOF, a.ID) {
		if _, err := run.Send(c.ctx, in); err != nil {
			return nil, inputHint(&info, err)
		}
	}
	why, err := w.wait(c.ctx, milliseconds(a.WaitMs))
	if err != nil {
		return nil, err
	}
	v, err := c.view(run, w, why)
	if err != nil {
		return nil, err
	}
	if err := c.fill(v, run, viewHeadTail, after, v.Next, a.Budget); err != nil {
		return nil, err
	}
	return c.finish(v, next{After: after, Budget: a.Budget, WaitMs: a.WaitMs})
}

// inputHint says how to start a run that takes input.
func inputHint(info *spool.Info, err error) error {
	if errors.Is(err, spool.ErrInputClosed) && info.State == spool.StateRunning && !info.TTY {
		return fmt.Errorf("%w; start the command with tty=true to type to it", err)
	}
	return err
}

// stopRun ends a run.
func (c *call) stopRun(args func(any) error) (*mcp.CallToolResult, error) {
	var a struct {
		Run    string `json:"run"`
		How    string `json:"how"`
		ID     string `json:"id"`
		WaitMs int    `json:"wait_ms"`
	}
	if err := args(&a); err != nil {
		return nil, err
	}
	run, info, err := c.find(a.Run)
	if err != nil {
		return nil, err
	}
	control := spool.Control{Op: spool.ControlOp(a.How), By: c.client(), ID: a.ID}
	if strings.HasPrefix(a.How, "SIG") {
		control.Op, control.Signal = spool.ControlSignal, a.How
	}
	if err := run.Control(c.ctx, control); err != nil && !errors.Is(err, spool.ErrEnded) {
		return nil, err
	}
	w, err := c.waiter(run, &Waiting{Until: whyEnd}, info.Last)
	if err != nil {
		return nil, err
	}
	why, err := w.wait(c.ctx, milliseconds(a.WaitMs))
	if err != nil {
		return nil, err
	}
	v, err := c.view(run, w, why)
	if err != nil {
		return nil, err
	}
	if err := c.fill(v, run, viewTail, info.Last, v.Next, defaultBudget); err != nil {
		return nil, err
	}
	v.Why = strings.TrimSuffix(v.Why, whyAsk) // it was not what was waited for
	return c.finish(v, next{})
}

// RunLine is a run in a list.
type RunLine struct {
	Run     spool.RunID    `json:"run"`
	Name    string         `json:"name,omitempty"`
	Engine  string         `json:"engine"`
	State   spool.State    `json:"state"`
	Outcome *spool.Outcome `json:"outcome,omitempty"`
	What    string         `json:"what,omitempty"`
	Created time.Time      `json:"created"`
	Asks    int            `json:"asks,omitempty"`
}

// listRuns lists runs.
func (c *call) listRuns(args func(any) error) (*mcp.CallToolResult, error) {
	var a struct {
		Live    bool   `json:"live"`
		Waiting bool   `json:"waiting"`
		Name    string `json:"name"`
		Label   string `json:"label"`
		Limit   int    `json:"limit"`
	}
	if err := args(&a); err != nil {
		return nil, err
	}
	f := spool.Filter{Live: a.Live, Waiting: a.Waiting, Name: a.Name, Limit: a.Limit + 1}
	if key, value, ok := strings.Cut(a.Label, ":"); ok {
		f.Labels = map[string]string{key: value}
	}
	list := struct {
		Runs []RunLine `json:"runs"`
		More bool      `json:"more,omitempty"`
	}{Runs: []RunLine{}}
	var text strings.Builder
	for info, err := range c.opts.Backend.List(c.ctx, f) {
		if err != nil {
			fmt.Fprintf(&text, "[%s]\n", err)
			continue
		}
		if len(list.Runs) == a.Limit {
			list.More = true
			break
		}
		line := RunLine{Run: info.ID, Name: info.Name, Engine: info.Engine, State: info.State, Outcome: info.Outcome, What: what(&info), Created: info.Created}
		if info.Asks != nil {
			line.Asks = info.Asks.Count
		}
		list.Runs = append(list.Runs, line)
		text.WriteString(line.String() + "\n")
	}
	switch {
	case list.More:
		text.WriteString("[there are more: raise limit]\n")
	case len(list.Runs) == 0:
		text.WriteString("no runs\n")
	}
	data, err := json.Marshal(list)
	if err != nil {
		return nil, fmt.Errorf("encode the list: %w", err)
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: strings.TrimSuffix(text.String(), "\n")}}, StructuredContent: json.RawMessage(data)}, nil
}

// what is what a run does, in a line.
func what(info *spool.Info) string {
	if info.Title != "" {
		return visible.Short(info.Title, 80)
	}
	return visible.Short(strings.Join(info.Argv, " "), 80)
}

func (l *RunLine) String() string {
	text := string(l.Run)
	if l.Name != "" {
		text += " " + visible.Short(l.Name, 64)
	}
	if l.Engine != spool.EngineProcess {
		text += " " + l.Engine
	}
	if l.Outcome != nil {
		text += " " + visible.Short(l.Outcome.String(), 80)
	} else {
		text += " " + string(l.State)
	}
	text += ", " + age(time.Since(l.Created)) + " ago"
	if l.Asks > 0 {
		text += ", waits for an answer"
	}
	return text + ": " + l.What
}

// finish makes a result of a view, or asks the user what the run asks. What a run failed
// with is never empty.
func (c *call) finish(v *RunView, n next) (*mcp.CallToolResult, error) {
	if asks, err := c.ask(v, n); asks != nil || err != nil {
		return asks, err
	}
	if v.Text == "" && v.Outcome != nil && v.info.Bytes == 0 && v.info.Engine == spool.EngineProcess {
		v.Text = "(no output)"
	}
	return v.result()
}
