package cli

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/BurntSushi/toml"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/collector"
	"github.com/spool-run/spool/internal/listen"
	"github.com/spool-run/spool/internal/wire/mcpapi"
)

// mcpOptions are the flags of spool mcp.
type mcpOptions struct {
	allowAnswer bool
	stopOnExit  bool
	printConfig string
	logLevel    string
}

func (a *app) mcpCommand() *cobra.Command {
	var o mcpOptions
	cmd := &cobra.Command{
		Use:   "mcp [flags]",
		Short: "Give a model tools to run commands, Python and agents",
		Long: `Mcp is a server of the Model Context Protocol on stdin and stdout, for a client that
starts it: Claude Code, codex, an editor. Its tools start commands, read and search
what they write, type to them, stop them, run Python that keeps its variables, and ask
coding agents. docs/mcp.md describes them. --print-config prints what to write into the
configuration of a client.

Every result has the id of the run and a cursor: a command that takes longer than one
call goes on, and the next call reads on from the cursor. When the client ends, runs go
on, unless --stop-on-exit is given; "spool ps" shows them.

Commands start in the directory in which the client started mcp, and inherit its
environment without variables whose names look like secrets. Agents inherit all of it.
With --server, runs are those of the server.

With --allow-answer the model may answer what runs ask, such as approvals of an agent.

Exit codes: 0 after the end of stdin or a signal; 1 on failure; 2 on a usage error.`,
		Example: `  claude mcp add spool -- spool mcp
  spool mcp --print-config codex >> ~/.codex/config.toml
  spool mcp --print-config vscode > .vscode/mcp.json
  spool mcp --server wss://build.example.com:9000 --token-file ~/.spool-token`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.printConfig != "" {
				return a.mcpConfig(&o)
			}
			return a.mcp(cmd.Context(), &o)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.allowAnswer, "allow-answer", false, "offer a tool that answers what runs ask, with which a model can approve what it does")
	flags.BoolVar(&o.stopOnExit, "stop-on-exit", false, "stop the runs that were started here when the client ends")
	flags.StringVar(&o.printConfig, "print-config", "", "print the configuration for a `client` and exit: "+strings.Join(mcpClients, ", "))
	flags.StringVar(&o.logLevel, "log-level", "", "log to stderr at this `level` and above: debug, info, warn or error")
	return cmd
}

func (a *app) mcp(ctx context.Context, o *mcpOptions) error {
	log, err := newLogger(a.stderr, o.logLevel)
	if err != nil {
		return err
	}
	options := mcpapi.Options{AllowAnswer: o.allowAnswer, Version: version().Version, Logger: log}
	if _, remote := a.remote(); remote {
		options.Env = envPolicy(false, true)
		options.AgentEnv = options.Env
	} else {
		if options.Cwd, err = os.Getwd(); err != nil {
			return fmt.Errorf("find the working directory: %w", err)
		}
		options.Env = &spool.EnvPolicy{Inherit: "all"}
		options.AgentEnv = envPolicy(false, false)
	}
	signals, stop := notify(unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	return with(a.open, ctx, func(b spool.Backend) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var started startedRuns
		options.Backend, options.Started = b, started.add
		collector.TuneServer()
		go collector.ReturnWhenQuiet(ctx) // a client may keep many servers that do nothing
		server := mcpapi.New(options)
		ended := make(chan error, 1)
		go func() { ended <- server.Run(ctx, a.stdin, a.stdout) }()
		var err error
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

// startedRuns are the runs that a client started through a server of this process.
type startedRuns struct {
	mu  sync.Mutex
	ids map[spool.RunID]bool
}

// add notes a run.
func (s *startedRuns) add(id spool.RunID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids == nil {
		s.ids = make(map[spool.RunID]bool)
	}
	s.ids[id] = true
}

// stop stops the runs.
func (s *startedRuns) stop(ctx context.Context, b spool.Backend) (err error) {
	s.mu.Lock()
	ids := slices.Sorted(maps.Keys(s.ids))
	s.mu.Unlock()
	for _, id := range ids {
		if stopErr := spool.Attach(b, id).Stop(ctx); stopErr != nil && !errors.Is(stopErr, spool.ErrNotFound) {
			err = errors.Join(err, fmt.Errorf("stop run %s: %w", id, stopErr))
		}
	}
	return err
}

// mcpKey returns the key with which a server of this state directory seals what clients
// keep for it, so that they may come back after a restart. It follows from the token of
// the owner.
func (a *app) mcpKey() ([]byte, error) {
	dir, err := a.stateDir()
	if err != nil {
		return nil, err
	}
	file, err := listen.TokenFile(dir)
	if err != nil {
		return nil, err
	}
	token, err := readToken(file)
	if err != nil {
		return nil, fmt.Errorf("read token: %w", err)
	}
	return hkdf.Key(sha256.New, []byte(token), nil, "spool mcp request state", 32)
}

// mcpClients are the clients whose configuration mcp prints.
var mcpClients = []string{"claude", "codex", "cursor", "vscode", "zed"}

// mcpConfig prints the configuration of a client.
func (a *app) mcpConfig(o *mcpOptions) error {
	if !slices.Contains(mcpClients, o.printConfig) {
		return usageErrorf("--print-config %q: use %s", o.printConfig, strings.Join(mcpClients, ", "))
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the program: %w", err)
	}
	args := []string{"mcp"}
	for _, flag := range []struct{ name, value string }{
		{"--server", a.server}, {"--token-file", a.tokenFile}, {"--tls-pin", a.tls.pin}, {"--tls-ca", a.tls.ca}, {"--tls-client-cert", a.tls.cert}, {"--state", a.state},
	} {
		if flag.value == "" {
			continue
		}
		if strings.HasSuffix(flag.name, "-file") || strings.HasSuffix(flag.name, "-ca") || strings.HasSuffix(flag.name, "-cert") || flag.name == "--state" {
			if flag.value, err = filepath.Abs(flag.value); err != nil {
				return err
			}
		}
		args = append(args, flag.name, flag.value)
	}
	if o.allowAnswer {
		args = append(args, "--allow-answer")
	}
	if o.stopOnExit {
		args = append(args, "--stop-on-exit")
	}
	server := map[string]any{"command": program, "args": args}
	var config any
	switch o.printConfig {
	case "codex":
		// A call waits up to 50 s, and python may start an interpreter first.
		server["tool_timeout_sec"] = 90
		// Only the table of this server: the file may have the one above it already.
		if _, err := fmt.Fprintln(a.stdout, "[mcp_servers.spool]"); err != nil {
			return err
		}
		return toml.NewEncoder(a.stdout).Encode(server)
	case "vscode":
		server["type"] = "stdio"
		config = map[string]any{"servers": map[string]any{"spool": server}}
	case "zed":
		server["env"] = map[string]string{}
		config = map[string]any{"context_servers": map[string]any{"spool": server}}
	default:
		config = map[string]any{"mcpServers": map[string]any{"spool": server}}
	}
	text, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.stdout, string(text))
	return err
}
