package mcpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/strict"
	"github.com/spool-run/spool/python"
)

// tool is a row of the table.
type tool struct {
	name, title, description string
	input                    json.RawMessage // the schema of its arguments
	view                     bool            // it returns a [RunView]
	large                    bool            // its result may be long
	readOnly, idempotent     bool
	harmless, closed         bool // it destroys nothing; it reaches nothing beyond the runs
	answers                  bool // only with [Options.AllowAnswer]
	scopes                   [][]access.Scope
	call                     func(*call, func(args any) error) (*mcp.CallToolResult, error)

	schema func() *jsonschema.Resolved
}

// tools are all tools.
var tools []tool

func init() {
	tools = []tool{
		{name: "run_command", title: "Run a command", view: true, large: true,
			description: "Start a command, wait for it, and show its output. Give command (a line for sh -c) or argv. If it takes longer than wait_ms it goes on: read_run shows the rest, stop_run ends it.",
			input: object("",
				`"command":{"type":"string","description":"A line for sh -c."}`,
				`"argv":{"type":"array","items":{"type":"string"},"minItems":1,"description":"Program and arguments; no shell."}`,
				cwdArg,
				`"env":{"type":"object","additionalProperties":{"type":"string"},"description":"Variables to add."}`,
				`"stdin":{"type":"string","description":"All of its standard input; to type later, use tty."}`,
				`"tty":{"type":"boolean","default":false,"description":"Give it a terminal."}`,
				`"name":{"type":"string","maxLength":64,"description":"Name to find the run by."}`,
				`"timeout_ms":{"type":"integer","minimum":1,"description":"Stop the command after this long."}`,
				idArg,
				`"on_cancel":{"enum":["leave","stop"],"default":"leave","description":"What cancelling this call does to the command."}`,
				waitArg(10_000), until("end"), matchArg, quietArg, budgetArg),
			scopes: [][]access.Scope{{access.StartOf(spool.EngineProcess)}, {access.Read}}, call: (*call).runCommand},
		{name: "read_run", title: "Read a run", view: true, large: true, readOnly: true, harmless: true, idempotent: true, closed: true,
			description: "Show output of a run: what came after a cursor, its tail, lines that match, or the screen of a terminal. Waits if asked to.",
			input: object("run", runArg,
				`"after":{"type":"integer","minimum":0,"description":"The next of an earlier result."}`,
				`"view":{"enum":["tail","head","head_tail","errors","screen","transcript"],"description":"Which part; head_tail with after, else tail."}`,
				`"grep":{"type":"string","maxLength":1000,"description":"Only lines that match this RE2 pattern."}`,
				`"context":{"type":"integer","minimum":0,"maximum":20,"default":2,"description":"Lines around a match."}`,
				waitArg(0), until(""), matchArg, quietArg, budgetArg),
			scopes: [][]access.Scope{{access.Read}}, call: (*call).readRun},
		{name: "send_input", title: "Type to a run", view: true,
			description: "Type text or keys to a run, then show what it wrote. Text needs its own newline.",
			input: object("run", runArg,
				`"text":{"type":"string","description":"What to type."}`,
				`"keys":{"type":"array","items":{"type":"string","pattern":"`+keyPattern+`"},"description":"Keys after the text, such as ctrl-c, enter, up."}`,
				`"eof":{"type":"boolean","description":"Close standard input afterwards."}`,
				`"after":{"type":"integer","minimum":0,"description":"Show what came after this cursor; by default after the input."}`,
				idArg, waitArg(2_000), until("quiet"), matchArg, quietArg, budgetArg),
			scopes: [][]access.Scope{{access.Input}, {access.Read}}, call: (*call).sendInput},
		{name: "stop_run", title: "Stop a run", view: true, idempotent: true, closed: true,
			description: "End a run with all its processes, or interrupt or signal it.",
			input: object("run", runArg,
				`"how":{"type":"string","pattern":"^(interrupt|stop|kill|SIG[A-Z0-9]+)$","default":"stop","description":"interrupt (as ctrl-c), stop, kill, or a signal."}`,
				idArg, waitArg(5_000)),
			scopes: [][]access.Scope{{access.Control}, {access.Read}}, call: (*call).stopRun},
		{name: "list_runs", title: "List runs", readOnly: true, harmless: true, idempotent: true, closed: true,
			description: "List runs, newest first, one line each.",
			input: object("",
				`"live":{"type":"boolean","description":"Only those that have not ended."}`,
				`"waiting":{"type":"boolean","description":"Only those that wait for an answer."}`,
				`"name":{"type":"string","description":"Only those with this name."}`,
				`"label":{"type":"string","pattern":"^[^:]+:.*$","description":"Only those with this label, KEY:VALUE."}`,
				`"limit":{"type":"integer","minimum":1,"maximum":200,"default":20,"description":"How many at most."}`),
			scopes: [][]access.Scope{{access.Read}}, call: (*call).listRuns},
		// It promises no structured content: codex shows a model nothing else, so that a
		// result with images has none.
		{name: "python", title: "Run Python", large: true,
			description: "Run code in a Python that keeps its variables between calls. Shows what it printed, the value of the last expression, and plots as images.",
			input: object("code",
				`"code":{"type":"string","description":"Python source."}`,
				`"session":{"type":"string","minLength":1,"maxLength":64,"default":"default","description":"Which interpreter; each has its own state."}`,
				`"isolated":{"type":"boolean","default":false,"description":"Use a sandbox without files and network."}`,
				`"timeout_ms":{"type":"integer","minimum":1,"description":"Interrupt the code after this long."}`,
				`"images":{"type":"integer","minimum":0,"maximum":4,"default":2,"description":"Images to return at most."}`,
				idArg, waitArg(10_000), budgetArg),
			scopes: [][]access.Scope{{access.StartOf(python.EngineKernel), access.StartOf(python.EngineSandbox)}, {access.Input}, {access.Read}}, call: (*call).python},
		{name: "ask_agent", title: "Ask a coding agent", view: true,
			description: "Give a coding agent a prompt and return its answer, or how far it is. Give agent to begin a conversation, run to go on with one.",
			input: object("prompt",
				`"agent":{"type":"string","description":"codex, claude, opencode or pi; needed unless run is given."}`,
				`"prompt":{"type":"string","description":"What it should do."}`,
				`"images":{"type":"array","items":{"type":"string"},"maxItems":20,"description":"Pictures to show it: addresses of forms (spool://) or data: URLs."}`,
				strings.Replace(runArg, "Run id", "Conversation to go on with: run id", 1), cwdArg,
				`"model":{"type":"string","description":"Model of the agent."}`,
				idArg, waitArg(maxWait), budgetArg),
			scopes: [][]access.Scope{{access.StartOf(agent.Engine)}, {access.Input}, {access.Read}}, call: (*call).askAgent},
		{name: "answer", title: "Answer a question of a run", view: true, closed: true, answers: true,
			description: "Answer an open ask of a run with one of its options (choice) or a value (data).",
			input: object("run ask", runArg,
				`"ask":{"type":"integer","minimum":1,"description":"Number of the ask."}`,
				`"choice":{"type":"string","description":"An option, or text."}`,
				`"data":{"description":"Another JSON value."}`,
				`"retype":{"type":"string","description":"The command again, to allow what the ask calls dangerous."}`, budgetArg),
			scopes: [][]access.Scope{{access.Answer}, {access.Read}}, call: (*call).answer},
	}
	for i := range tools {
		t := &tools[i]
		t.schema = sync.OnceValue(func() *jsonschema.Resolved { return resolve(t.input) })
	}
}

// maxResult is what a client with a limit of its own should take, in characters.
const maxResult = 120_000

// listed is the tool as clients see it.
func (t *tool) listed() *mcp.Tool {
	destructive, open := !t.harmless, !t.closed
	listed := &mcp.Tool{
		Name: t.name, Title: t.title, Description: t.description, InputSchema: t.input,
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: t.readOnly, DestructiveHint: &destructive, IdempotentHint: t.idempotent, OpenWorldHint: &open},
	}
	if t.view {
		listed.OutputSchema = viewSchema
	}
	if t.large {
		listed.Meta = mcp.Meta{"anthropic/maxResultSizeChars": maxResult}
	}
	return listed
}

// check returns [spool.ErrDenied] if the scopes do not allow the tool: one of each list
// must be there.
func (t *tool) check(scopes access.Scopes) error {
	for _, any := range t.scopes {
		var err error
		for _, scope := range any {
			if err = scopes.Require(scope); err == nil {
				break
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// call is one call of a tool.
type call struct {
	*Server
	ctx context.Context
	req *mcp.CallToolRequest
}

// handler returns the function that the SDK calls for a tool.
func (s *Server) handler(t *tool) mcp.ToolHandler {
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		err := t.check(s.opts.Subject.Scopes)
		if err == nil {
			c := &call{Server: s, ctx: ctx, req: req}
			var result *mcp.CallToolResult
			if req.Params.RequestState != "" {
				result, err = c.resume()
			} else {
				result, err = t.call(c, func(args any) error { return decode(req.Params.Arguments, t.schema(), args) })
			}
			if err == nil {
				return result, nil
			}
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		result := &mcp.CallToolResult{}
		result.SetError(s.explain(ctx, err))
		return result, nil
	}
}

// explain adds to an error what to do about it.
func (s *Server) explain(ctx context.Context, err error) error {
	var unknown *unknownRun
	if errors.As(err, &unknown) {
		if near := s.nearRuns(ctx, unknown.name); near != "" {
			return fmt.Errorf("%w; %s", err, near)
		}
	}
	return err
}

// unknownRun is the error of a run that there is not.
type unknownRun struct {
	name string
	err  error
}

func (e *unknownRun) Error() string { return e.err.Error() }

func (e *unknownRun) Unwrap() error { return e.err }

// find finds the run that a model means.
func (c *call) find(name string) (*spool.Run, spool.Info, error) {
	run, err := spool.Find(c.ctx, c.opts.Backend, name)
	if errors.Is(err, spool.ErrNotFound) {
		return nil, spool.Info{}, &unknownRun{name, err}
	}
	if err != nil {
		return nil, spool.Info{}, err
	}
	info, err := run.Info(c.ctx)
	return run, info, err
}

// nearRuns says which runs a mistyped name could mean, or which are the newest.
func (s *Server) nearRuns(ctx context.Context, name string) string {
	var names, newest []string
	for info, err := range s.opts.Backend.List(ctx, spool.Filter{Limit: 100}) {
		if err != nil {
			continue
		}
		if info.Name != "" {
			names = append(names, info.Name)
		}
		names = append(names, string(info.ID))
		if len(newest) < 5 {
			newest = append(newest, shownName(&info))
		}
	}
	if near, ok := strict.Nearest(name, names); ok {
		return "did you mean " + near + "?"
	}
	if len(newest) == 0 {
		return "there are no runs"
	}
	return "the newest runs are " + strings.Join(newest, ", ")
}

// shownName is the id of a run with its name.
func shownName(info *spool.Info) string {
	if info.Name == "" {
		return string(info.ID)
	}
	return fmt.Sprintf("%s (%s)", info.ID, info.Name)
}

// dir returns the directory in which a run starts.
func (s *Server) dir(name string) string {
	if s.opts.Cwd == "" || filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(s.opts.Cwd, name)
}

// client is who calls, for the log.
func (c *call) client() string {
	if info := c.req.ClientInfo(); info != nil && info.Name != "" {
		return "mcp:" + info.Name
	}
	return "mcp"
}
