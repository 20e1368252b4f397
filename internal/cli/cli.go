// Package cli is the spool command.
//
// Every verb uses a [spool.Backend]: the runs of this machine in a state
// directory, or the runs of a server with --server. The output of a run goes to
// stdout and stderr unchanged; with --json, stdout has one JSON object per line
// and nothing else. Messages of spool itself go to stderr.
package cli

import (
	"context"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/internal/torture"
)

// Main runs the command with these arguments and returns its exit code. The
// program must have called [local.ChildMain].
func Main(args []string, stdin, stdout, stderr *os.File) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr}
	root := a.command(a.verbOf(args))
	if verb, _, err := root.Find(args); err == nil {
		if verb.Name() == "kill" {
			args = signalArgs(args)
		}
		args = moduleArgs(verb, args)
	}
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(context.Background())
	return a.report(cmd, err)
}

// app is one invocation: its streams and the flags every verb has.
type app struct {
	stdin, stdout, stderr *os.File

	server    string
	tokenFile string
	tls       clientTLS
	plaintext bool // unencrypted connections with other machines
	state     string
	reconnect time.Duration
	verbose   bool
	raw       bool // terminals get all that runs write
	archive   archiveOptions

	reconnecting reconnecting

	store      storeOptions
	configured map[string]bool // keys that have another source than the default
}

// verb is a command below "spool".
type verb struct {
	name    string
	command func() *cobra.Command
}

// verbs returns the commands in the order of the help.
func (a *app) verbs() []verb {
	return []verb{
		{"run", a.runCommand},
		{"submit", a.submitCommand},
		{"py", a.pyCommand},
		{"box", a.boxCommand},
		{"agent", a.agentCommand},
		{"ps", a.psCommand},
		{"logs", a.logsCommand},
		{"attach", a.attachCommand},
		{"answer", a.answerCommand},
		{"kill", a.killCommand},
		{"wait", a.waitCommand},
		{"exec-server", a.execServerCommand},
		{"serve", a.serveCommand},
		{"open", a.openCommand},
		{"share", a.shareCommand},
		{"cluster", a.clusterCommand},
		{"mcp", a.mcpCommand},
		{"acp", a.acpCommand},
		{"jupyter", a.jupyterCommand},
		{"token", a.tokenCommand},
		{"doctor", a.doctorCommand},
		{"demo", a.demoCommand},
		{"torture", a.tortureCommand},
		{torture.WorkerVerb, a.tortureWorkerCommand},
		{"version", a.versionCommand},
		{"inspect", a.inspectCommand},
		{"exec", a.execCommand},
		{"blob", a.blobCommand},
		{"rm", a.rmCommand},
		{"prune", a.pruneCommand},
		{"df", a.dfCommand},
		{"export", a.exportCommand},
		{"import", a.importCommand},
		{"archive", a.archiveCommand},
		{"stats", a.statsCommand},
		{"sql", a.sqlCommand},
		{"rename", a.renameCommand},
		{"search", a.searchCommand},
		{"diff", a.diffCommand},
		{"apply", a.applyCommand},
		{"discard", a.discardCommand},
		{"config", a.configCommand},
		{"man", a.manCommand},
	}
}

// onAll are the verbs that say something of all verbs.
var onAll = []string{"config", "man"}

// verbOf returns the verb with which the arguments begin, if it is all that this
// invocation needs, or "".
func (a *app) verbOf(args []string) string {
	if len(args) == 0 || slices.Contains(onAll, args[0]) || !slices.ContainsFunc(a.verbs(), func(v verb) bool { return v.name == args[0] }) {
		return ""
	}
	return args[0]
}

// command returns the command "spool" with all verbs, or with only one of them: the flags
// all take a millisecond to make, and the others matter only to the help of spool, to
// completion, and to words that are no verb.
func (a *app) command(only string) *cobra.Command {
	root := &cobra.Command{
		Use:   "spool",
		Short: "Run commands with a log that outlives them",
		Long: `Spool runs commands and keeps what they wrote: every run has an ordered,
durable log that can be read from any position, while it runs and afterwards.

RUN is the id of a run, a unique prefix of the id, or its name (the newest run
with that name). A name of four or more characters that is also the beginning of
another run's id is refused as ambiguous; a shorter name wins over an id.

Without --server, commands act on this machine and share one state directory.
With --server, they act on a server that "spool serve" or "spool exec-server" started.

Environment:
  SPOOL_SERVER           the default of --server
  SPOOL_TOKEN            the bearer token for the server, unless --token-file is given
  SPOOL_TLS_PIN          the default of --tls-pin
  SPOOL_TLS_CA           the default of --tls-ca
  SPOOL_TLS_CLIENT_CERT  the default of --tls-client-cert
  SPOOL_STATE            the default of --state
  SPOOL_ARCHIVE          the default of --archive
  SPOOL_NOTIFY           the default of --notify of "spool serve"
  SPOOL_CONFIG           the configuration file; see "spool config --help"
  NO_COLOR               if not empty, no colours

Exit codes: run, exec, attach and wait exit with the exit code of the run, with
128+N if signal N ended it, and with 125 if spool itself failed. run and exec also
exit with 126 if the program cannot be executed and 127 if it does not exist. The
help of agent, py and box lists their codes. Other commands exit with 0 on
success, 1 on failure and 2 on a usage error.`,
		Example: `  spool run -- make test
  spool run --name web -- python3 -m http.server
  spool logs -f web
  spool ps`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
		// Without this, an unknown verb would print the help and succeed.
		Args:              noVerb,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return a.configure(cmd) },
	}
	var showVersion bool
	root.Flags().BoolVar(&showVersion, "version", false, "print the version")
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if showVersion {
			return a.printVersion()
		}
		return cmd.Help()
	}
	flags := root.PersistentFlags()
	flags.StringVar(&a.server, "server", "", "`URL` of a server: http://, https://, ws://, wss:// or unix:// (default $SPOOL_SERVER)")
	flags.StringVar(&a.tokenFile, "token-file", "", "`file` with the bearer token for the server (default $SPOOL_TOKEN)")
	flags.StringVar(&a.tls.pin, "tls-pin", "", "`fingerprint` of the certificate of a wss:// server: sha256:HEX (default $SPOOL_TLS_PIN)")
	flags.StringVar(&a.tls.ca, "tls-ca", "", "`file` with the authorities of the certificate of a wss:// server, in PEM (default $SPOOL_TLS_CA)")
	flags.StringVar(&a.tls.cert, "tls-client-cert", "", "`file` with a client certificate and its key, in PEM (default $SPOOL_TLS_CLIENT_CERT)")
	flags.BoolVar(&a.plaintext, "insecure-plaintext", false, "allow unencrypted connections with other machines: send tokens over ws://, or listen there")
	flags.DurationVar(&a.reconnect, "reconnect", client.DefaultReconnect, "how long to keep reconnecting to a lost server")
	flags.StringVar(&a.state, "state", "", "state `directory` of this machine (default $SPOOL_STATE or ~/.local/state/spool)")
	a.archive.add(flags)
	flags.BoolVar(&a.raw, "raw", false, "write the output of runs to a terminal as it is, with sequences that set its title or clipboard or make it answer")
	flags.BoolVarP(&a.verbose, "verbose", "v", false, "print more details on stderr")
	root.SetFlagErrorFunc(usageErrorOf)
	root.SetHelpCommand(helpCommand())
	for _, v := range a.verbs() {
		if only == "" || only == v.name {
			root.AddCommand(v.command())
		}
	}
	if only != "" {
		root.CompletionOptions.DisableDefaultCmd = true
		return root
	}
	strictCompletion(root)
	a.completeFlags(root)
	return root
}
