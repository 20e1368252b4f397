package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/sessions"
	"github.com/spool-run/spool/local"
)

// agentOptions are the flags of spool agent.
type agentOptions struct {
	agent   string
	command []string // the command of an ACP agent
	prompt  string
	images  []string // files

	resume  string
	fork    bool
	cwd     string
	env     []string
	name    string
	replace bool
	model   string
	effort  string
	profile string
	program string
	policy  string
	mode    string
	perms   string
	sandbox string
	yes     bool
	asks    string
	extra   []string
	json    bool
	view    string
	timeout time.Duration
	// exitGrace is how long the agent may take to exit after its result.
	exitGrace time.Duration
	budget    agent.Budget
	// imageBytes is the limit of the images of a prompt.
	imageBytes byteCount
	files      fileCount

	isolation isolationFlags
	workspace workspaceFlags
}

// The values of --asks.
const (
	asksTerminal = "terminal"
	asksWait     = "wait"
	asksDeny     = "deny"
)

// Exit codes of turns that did not succeed. They are part of the interface.
const (
	exitRefused  = 3
	exitBudget   = 4
	exitMaxTurns = 5
	exitStalled  = 6
	exitCrashed  = 7
	exitTimeUp   = 124 // as timeout(1)
)

// turnExit maps outcomes to exit codes. Other outcomes exit with exitFailure.
var turnExit = map[spool.TurnOutcome]int{
	spool.TurnOK:          0,
	spool.TurnRefused:     exitRefused,
	agent.TurnBudget:      exitBudget,
	agent.TurnMaxTurns:    exitMaxTurns,
	agent.TurnStalled:     exitStalled,
	spool.TurnCrashed:     exitCrashed,
	spool.TurnTimeout:     exitTimeUp,
	spool.TurnInterrupted: exitSignal + int(unix.SIGINT),
	spool.TurnCancelled:   exitSignal + int(unix.SIGINT),
	spool.TurnKilled:      exitSignal + int(unix.SIGKILL),
}

// maxPrompt is the maximum size of a prompt.
const maxPrompt = agent.MaxPrompt

func (a *app) agentCommand() *cobra.Command {
	var o agentOptions
	names := []string{agent.Claude, agent.Codex, agent.OpenCode, agent.Pi}
	cmd := &cobra.Command{
		Use:   "agent [flags] AGENT PROMPT|-",
		Short: "Run a coding agent",
		Long: `Agent gives a prompt to a coding agent and prints its progress to stderr: its
messages, its commands and how long they take, a diff of every file it changes,
retries, and at the end the cost and how to resume. Only the answer goes to
stdout. On a terminal, a status line shows what the agent does now, and when it
has been silent for long. The conversation is a run with a log: see "spool logs".

The agents are ` + strings.Join(names, ", ") + `; see "spool agent list". "spool
agent acp" runs any other agent that speaks the Agent Client Protocol.

With - agent reads the prompt from stdin. --resume continues a session: it takes
a session id, the command that an agent prints to resume it, or a run.

Permission requests go to --policy first, then to you on the terminal: y allows,
n denies, a allows for the session, s denies and ends the turn. Without a
terminal they are denied. With --asks wait they stay open for other clients to
answer until their deadline; with --asks deny they are denied.

With --isolate the agent and everything it starts cannot do what the profile says,
as with "spool run --isolate". Its own configuration and sessions stay writable;
"spool inspect" shows the directories. Codex cannot make its own sandbox within
another: add --sandbox danger-full-access.

With --workspace overlay the agent works on a view of its working directory. What it
changed is kept apart, and listed at the end of each turn: "spool diff" shows it,
"spool apply" makes it in the directory, "spool discard" deletes it. The processes
that the agent leaves running end with it.

Ctrl-C interrupts the turn; the session can be resumed. A second Ctrl-C stops the
run and everything it started.

Exit codes: 0 if the agent succeeded; 1 if it failed; 2 on a usage error; 3 if a
permission it needed was refused; 4 if its budget is used up; 5 if it reached the
limit of model requests; 6 if it was silent for too long; 7 if it crashed; 124 if
it timed out; 125 if spool failed; 126 if the agent cannot be executed; 127 if it
is not installed; 130 if it was interrupted.`,
		Example: `  spool agent codex "Make the tests pass."
  spool agent claude --model sonnet --policy policy.toml - <task.txt
  spool agent codex --resume 0f3k "And now the docs."
  spool agent claude --isolate workspace-write --protect .git "Make the tests pass."
  spool agent claude --workspace overlay --name try "Make the tests pass."
  spool agent opencode --json "What is this?" | jq .
  spool agent codex --view takopi --json "What is this?"
  spool agent acp "What is this?" -- gemini --acp`,
		Args: usageArgs(func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("name an agent: %s", strings.Join(names, ", "))
			}
			if !slices.Contains(names, args[0]) {
				return fmt.Errorf("there is no agent %q: use %s, or acp", args[0], strings.Join(names, ", "))
			}
			if len(args) > 2 {
				return fmt.Errorf("the prompt is one argument, not %d: put it into quotes", len(args)-1)
			}
			return nil
		}),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return names, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveDefault
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.agent = args[0]
			return a.agentPrompt(cmd.Context(), &o, args[1:])
		},
	}
	o.add(cmd.Flags())
	cmd.AddCommand(a.agentACPCommand(), a.agentListCommand())
	return cmd
}

func (a *app) agentACPCommand() *cobra.Command {
	o := agentOptions{agent: agent.ACP}
	cmd := &cobra.Command{
		Use:   "acp [flags] [PROMPT|-] -- command [argument…]",
		Short: "Run any agent that speaks the Agent Client Protocol (ACP)",
		Long: `Acp works like "spool agent" for any agent that speaks the Agent Client Protocol
on its standard input and output. Without PROMPT, acp reads the prompt from stdin.`,
		Example: `  spool agent acp "What is this?" -- gemini --acp
  echo "What is this?" | spool agent acp -- opencode acp`,
		Args: usageArgs(func(cmd *cobra.Command, args []string) error {
			dash := cmd.ArgsLenAtDash()
			switch {
			case dash < 0 || dash == len(args):
				return errors.New("put the command of the agent after --")
			case dash > 1:
				return fmt.Errorf("the prompt is one argument, not %d: put it into quotes", dash)
			}
			return nil
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			dash := cmd.ArgsLenAtDash()
			o.command = args[dash:]
			return a.agentPrompt(cmd.Context(), &o, args[:dash])
		},
	}
	o.add(cmd.Flags())
	return cmd
}

func (o *agentOptions) add(flags *pflag.FlagSet) {
	flags.StringVar(&o.resume, "resume", "", "resume this session: its `id`, the command that resumes it, or a run")
	flags.BoolVar(&o.fork, "fork", false, "continue in a copy of the resumed session")
	flags.StringVar(&o.cwd, "cwd", "", "working `directory`")
	flags.StringVar(&o.name, "name", "", "`name` of the run, unique among live runs")
	flags.BoolVar(&o.replace, "replace", false, "stop the live run that has the name first")
	flags.StringVar(&o.asks, "asks", asksTerminal, "where permission requests go: terminal, wait or deny")
	flags.StringArrayVar(&o.images, "image", nil, "show the agent this `file`: PNG, JPEG, GIF or WebP; not in exec mode")
	flags.BoolVar(&o.json, "json", false, "print events, one JSON object per line")
	flags.StringVar(&o.view, "view", viewSpool, "form of the events that --json prints: spool or takopi")
	o.addRun(flags)
}

// addRun adds the flags that say how an agent is run.
func (o *agentOptions) addRun(flags *pflag.FlagSet) {
	flags.StringArrayVar(&o.env, "env", nil, "set an environment variable; `NAME=VALUE`, or NAME to pass it on")
	flags.StringVar(&o.model, "model", "", "`model` name, passed to the agent unchanged")
	flags.StringVar(&o.effort, "effort", "", "reasoning effort, passed to the agent unchanged")
	flags.StringVar(&o.profile, "profile", "", "named configuration of the agent")
	flags.StringVar(&o.program, "program", "", "`path` of the agent, instead of the one in PATH")
	flags.StringVar(&o.policy, "policy", "", "`file` of rules that answer permission requests first")
	flags.StringVar(&o.mode, "mode", "auto", "how to talk to the agent: auto, exec or duplex")
	flags.StringVar(&o.perms, "permissions", "", "permission mode or approval policy, passed to the agent unchanged")
	flags.StringVar(&o.sandbox, "sandbox", "", "sandbox mode, passed to codex unchanged")
	flags.BoolVar(&o.yes, "yes", false, "allow everything without asking")
	flags.StringArrayVar(&o.extra, "extra", nil, "extra `argument` for the agent")
	flags.DurationVar(&o.timeout, "timeout", 0, "end the turn after this `time`")
	flags.DurationVar(&o.exitGrace, "exit-grace", 0, "`time` for the agent to exit after its result (default 10s)")
	flags.IntVar(&o.budget.Steps, "max-steps", 0, "limit of requests to the model")
	flags.Int64Var(&o.budget.Tokens, "max-tokens", 0, "limit of tokens")
	flags.Float64Var(&o.budget.CostUSD, "max-cost", 0, "limit of the cost in `dollars`")
	o.imageBytes = agent.DefaultImageBytes
	flags.Var(&o.imageBytes, "max-image-bytes", "limit of the `bytes` of the images of a prompt together")
	o.files.add(flags, "")
	o.isolation.add(flags)
	o.workspace.add(flags)
}

func (a *app) agentPrompt(ctx context.Context, o *agentOptions, args []string) error {
	if err := o.check(); err != nil {
		return err
	}
	text := "-"
	if len(args) > 0 {
		text = args[0]
	}
	if text == "-" {
		if isTerminal(a.stdin) && len(args) == 0 {
			return usageErrorf("no prompt: add one, or - to read it from stdin")
		}
		b, err := io.ReadAll(io.LimitReader(a.stdin, maxPrompt+1))
		if err != nil {
			return fmt.Errorf("read the prompt: %w", err)
		}
		text = string(b)
	}
	if strings.TrimSpace(text) == "" {
		return usageErrorf("the prompt is empty: say what the agent has to do")
	}
	if len(text) > maxPrompt {
		return usageErrorf("the prompt is longer than %d bytes: put the text into a file and name the file", maxPrompt)
	}
	o.prompt = text
	return with(a.open, ctx, func(b spool.Backend) error { return a.converse(ctx, b, o) })
}

func (o *agentOptions) check() error {
	switch o.mode {
	case "auto", string(agent.ModeExec), string(agent.ModeDuplex):
	default:
		return usageErrorf("--mode %q: use auto, exec or duplex", o.mode)
	}
	switch o.asks {
	case asksTerminal, asksWait, asksDeny:
	default:
		return usageErrorf("--asks %q: use terminal, wait or deny", o.asks)
	}
	switch {
	case o.view != viewSpool && o.view != viewTakopi:
		return usageErrorf("--view %q: use spool or takopi", o.view)
	case o.view != viewSpool && !o.json:
		return usageErrorf("--view %s needs --json", o.view)
	}
	if o.imageBytes > agent.MaxImageBytes {
		return usageErrorf("--max-image-bytes: the largest limit is %d", agent.MaxImageBytes)
	}
	if o.timeout < 0 || o.exitGrace < 0 || o.budget.Steps < 0 || o.budget.Tokens < 0 || o.budget.CostUSD < 0 {
		return usageErrorf("limits must not be negative")
	}
	if o.fork && o.resume == "" {
		return usageErrorf("--fork needs a session to --resume")
	}
	return checkReplace(o.replace, o.name)
}

// agentSpec builds the spec of the run from the flags.
func (a *app) agentSpec(ctx context.Context, b spool.Backend, o *agentOptions) (spool.Spec, error) {
	_, remote := a.remote()
	spec := spool.Spec{Engine: agent.Engine, Name: o.name, Cwd: o.cwd, EnvPolicy: envPolicy(false, remote)}
	// The engine ignores Argv; "spool ps" shows it.
	spec.Argv = append([]string{o.agent}, o.command...)
	var err error
	if spec.Env, err = overlay(o.env, nil); err != nil {
		return spec, err
	}
	if !remote {
		// A relative path is relative to this process.
		if spec.Cwd, err = filepath.Abs(o.cwd); err != nil {
			return spec, fmt.Errorf("find the working directory: %w", err)
		}
	}
	spec.Limits.OpenFiles = int(o.files)
	if spec.Isolation, err = o.isolation.isolation(); err != nil {
		return spec, err
	}
	if spec.Workspace, err = o.workspace.workspace(); err != nil {
		return spec, err
	}
	c, err := o.config()
	if err != nil {
		return spec, err
	}
	if o.resume != "" {
		if c.Resume, err = resumeID(ctx, b, o.agent, o.resume); err != nil {
			return spec, err
		}
	}
	spec.Config = c.Spec().Config
	return spec, nil
}

// config is the configuration of the agent.
func (o *agentOptions) config() (agent.Config, error) {
	c := agent.Config{
		Agent: o.agent, Mode: agent.Mode(o.mode), Program: o.program, Command: o.command,
		Fork: o.fork, Model: o.model, Effort: o.effort, Profile: o.profile, Extra: o.extra,
		Permissions: o.perms, Sandbox: o.sandbox, SkipPermissions: o.yes,
		Budget: o.budget, TurnTimeoutMs: o.timeout.Milliseconds(), ExitGraceMs: o.exitGrace.Milliseconds(),
	}
	switch o.imageBytes {
	case agent.DefaultImageBytes:
	case 0:
		c.ImageBytes = -1
	default:
		c.ImageBytes = int64(o.imageBytes)
	}
	if o.policy == "" {
		return c, nil
	}
	var err error
	if c.Policy, err = local.ReadPolicy(o.policy); err != nil {
		return c, &usageError{err}
	}
	return c, nil
}

// resumeID returns the id of the session that text names: by the command that
// resumes it, by a run, or by its id.
func resumeID(ctx context.Context, b spool.Backend, name, text string) (string, error) {
	if t, ok := sessions.FindResume(name, text); ok {
		return t.Value, nil
	}
	run, err := spool.Find(ctx, b, text)
	switch {
	case errors.Is(err, spool.ErrNotFound):
		return text, nil
	case err != nil:
		return "", err
	}
	// The log names the session; the last one counts.
	var found agent.Started
	info, err := run.Info(ctx)
	if err != nil {
		return "", err
	}
	if info.Engine != agent.Engine {
		return "", usageErrorf("run %s is not a conversation with an agent", info.ID)
	}
	for after := spool.Seq(0); after < info.Last; {
		page, err := run.Read(ctx, spool.Query{After: after})
		if err != nil {
			return "", err
		}
		for i := range page.Events {
			e := &page.Events[i]
			var d spool.Done
			switch e.Kind {
			case spool.KindStarted:
				_ = json.Unmarshal(e.Data, &found) // a malformed event names no session
			case spool.KindDone:
				if json.Unmarshal(e.Data, &d) == nil && d.Resume != "" {
					found.Resume = d.Resume
				}
			}
		}
		if len(page.Events) == 0 {
			break
		}
		after = page.Next
	}
	switch {
	case found.Resume == "":
		return "", usageErrorf("run %s has no session to resume", info.ID)
	case found.Agent != name:
		return "", usageErrorf("run %s is a conversation with %s, not with %s", info.ID, found.Agent, name)
	}
	return found.Resume, nil
}
