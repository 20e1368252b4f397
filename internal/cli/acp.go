package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/wire/acpapi"
	"github.com/spool-run/spool/internal/wire/httpapi"
	"github.com/spool-run/spool/local"
)

// acpOptions are the flags of spool acp.
type acpOptions struct {
	agentOptions
	stopOnExit  bool
	version2    bool
	images      bool
	printConfig string
	logLevel    string
}

// acpAgents are the agents behind an editor that have names.
var acpAgents = []string{agent.Claude, agent.Codex, agent.OpenCode, agent.Pi}

// acpFace serves editors that connect to a server, if they may.
func (o *serveOptions) acpFace(log *slog.Logger) httpapi.ACP {
	if !o.acp {
		return nil
	}
	return func(ctx context.Context, s *httpapi.Socket, _ *access.Subject, b spool.Backend, name string) error {
		return acpapi.New(acpapi.Options{
			Backend: b, Config: agent.Config{Agent: name}, Images: takesImages(agent.Config{Agent: name}), Spec: spool.Spec{EnvPolicy: envPolicy(false, true)}, Version: version().Version, Version2: true, Logger: log,
		}).ServeMessages(ctx, s)
	}
}

// takesImages reports whether an agent can be shown images, as far as that is known before it
// runs.
func takesImages(c agent.Config) bool { return slices.Contains(local.AgentCan(c), "images") }

func (a *app) acpCommand() *cobra.Command {
	var o acpOptions
	names := acpAgents
	cmd := &cobra.Command{
		Use:   "acp [flags] {--agent AGENT | -- command [argument…]}",
		Short: "Be an agent for an editor, with any agent behind it",
		Long: `Acp is an agent of the Agent Client Protocol on stdin and stdout, for an editor that
starts it: Zed, a JetBrains IDE, Emacs. Behind it is an agent that Spool runs: the one of
--agent, or any command that speaks the protocol. docs/acp.md describes it. --print-config
prints what to write into the configuration of an editor.

A session of the editor is a run. It goes on when the editor ends, unless --stop-on-exit is
given. An editor that loads it gets all of its history, whatever the agent can do itself.
Several editors may have one session open. What the agent asks, each of them is asked, and
"spool answer" and the HTTP API can answer, too: the first answer counts. When the run of a
session has ended, the next prompt goes on in another run, in the same session of the agent.

The agents are ` + strings.Join(names, ", ") + `; see "spool agent list". Their flags are those of
"spool agent". They work in the directory that the editor names, and inherit the environment of
acp. With --server, runs and directories are those of the server.

Exit codes: 0 after the end of stdin or a signal; 1 on failure; 2 on a usage error.`,
		Example: `  spool acp --print-config zed --agent claude
  spool acp --agent codex --policy policy.toml
  spool acp -- gemini --acp
  spool acp --agent claude --server https://build.example.com:7766 --token-file ~/.spool-token`,
		Args: usageArgs(func(cmd *cobra.Command, args []string) error {
			dash := cmd.ArgsLenAtDash()
			switch {
			case dash > 0 || dash < 0 && len(args) > 0:
				return errors.New("name the agent with --agent, or put its command after --")
			case o.agent == "" && len(args) == 0:
				return fmt.Errorf("name an agent with --agent: %s; or put the command of one after --", strings.Join(names, ", "))
			case o.agent != "" && len(args) > 0:
				return errors.New("use --agent or a command after --, not both")
			case o.agent != "" && !slices.Contains(names, o.agent):
				return fmt.Errorf("there is no agent %q: use %s, or put the command of one after --", o.agent, strings.Join(names, ", "))
			}
			return nil
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.command = args; len(args) > 0 {
				o.agent = agent.ACP
			}
			if err := o.check(); err != nil {
				return err
			}
			if o.printConfig != "" {
				return a.acpConfig(cmd.Flags(), &o)
			}
			return a.acp(cmd.Context(), &o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.agent, "agent", "", "`agent` behind the editor: "+strings.Join(names, ", "))
	flags.BoolVar(&o.stopOnExit, "stop-on-exit", false, "stop the runs that were started here when the editor ends")
	flags.BoolVar(&o.version2, "acp-v2", false, "speak version 2 of the protocol, a draft, with editors that ask for it")
	flags.BoolVar(&o.images, "images", false, "tell the editor that the agent of a command takes images; which of the named agents do is known")
	flags.StringVar(&o.printConfig, "print-config", "", "print the configuration for an `editor` and exit: "+strings.Join(acpEditors, ", "))
	flags.StringVar(&o.logLevel, "log-level", "", "log to stderr at this `level` and above: debug, info, warn or error")
	o.asks, o.view = asksWait, viewSpool
	o.addRun(flags)
	return cmd
}

func (a *app) acp(ctx context.Context, o *acpOptions) error {
	log, err := newLogger(a.stderr, o.logLevel)
	if err != nil {
		return err
	}
	signals, stop := notify(unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	return with(a.open, ctx, func(b spool.Backend) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		options := acpapi.Options{Backend: b, Version: version().Version, Version2: o.version2, Images: o.images, Logger: log}
		var err error
		if options.Spec, err = a.agentSpec(ctx, b, &o.agentOptions); err != nil {
			return err
		}
		if options.Config, err = o.config(); err != nil {
			return err
		}
		options.Images = options.Images || takesImages(options.Config)
		var started startedRuns
		options.Started = started.add
		server := acpapi.New(options)
		ended := make(chan error, 1)
		go func() { ended <- server.Serve(ctx, a.stdin, a.stdout) }()
		select {
		case err = <-ended:
		case sig := <-signals:
			log.Info("ending", "signal", sig)
		}
		if o.stopOnExit {
			err = errors.Join(err, started.stop(ctx, b))
		}
		return err
	})
}

// acpEditors are the editors whose configuration acp prints.
var acpEditors = []string{"zed", "jetbrains"}

// acpConfig prints the configuration of an editor.
func (a *app) acpConfig(flags *pflag.FlagSet, o *acpOptions) error {
	if !slices.Contains(acpEditors, o.printConfig) {
		return usageErrorf("--print-config %q: use %s", o.printConfig, strings.Join(acpEditors, ", "))
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the program: %w", err)
	}
	args, err := givenFlags(flags, "print-config")
	if err != nil {
		return err
	}
	args = append([]string{"acp"}, args...)
	name := o.agent
	if len(o.command) > 0 {
		args = append(append(args, "--"), o.command...)
		name = filepath.Base(o.command[0])
	}
	server := map[string]any{"command": program, "args": args, "env": map[string]string{}}
	if o.printConfig == "zed" {
		server["type"] = "custom"
	}
	text, err := json.MarshalIndent(map[string]any{"agent_servers": map[string]any{"Spool (" + name + ")": server}}, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.stdout, string(text))
	return err
}

// pathFlags are the flags whose values are files of this machine.
var pathFlags = []string{"init", "policy", "state", "tls-ca", "tls-client-cert", "token-file"}

// givenFlags are the flags of a command line and of the environment, but some, as
// arguments. Paths are absolute: another program uses them, with an environment of its own.
func givenFlags(flags *pflag.FlagSet, without ...string) (args []string, err error) {
	flags.VisitAll(func(f *pflag.Flag) {
		variable := variables[f.Name]
		if !f.Changed && (variable == "" || os.Getenv(variable) == "" || f.Name == "token-file") { // a token is no argument
			return
		}
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, v := range values {
			switch {
			case slices.Contains(without, f.Name):
				continue
			case slices.Contains(pathFlags, f.Name), f.Name == "python" && strings.ContainsRune(v, filepath.Separator) && !strings.HasPrefix(v, "~"):
				var e error
				v, e = filepath.Abs(v)
				err = errors.Join(err, e)
			}
			args = append(args, "--"+f.Name+"="+v)
		}
	})
	return args, err
}
