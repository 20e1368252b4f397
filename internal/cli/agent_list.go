package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/local"
)

func (a *app) agentListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show which coding agents are installed and what they can do",
		Long: `List prints the coding agents that spool supports, their installed versions, and
their capabilities: permission requests (ask), interrupting a turn without ending
the session (interrupt), and adding to a running turn (steer). For an agent that
is not installed it prints the install command.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if url, ok := a.remote(); ok {
				return usageErrorf("cannot list the agents of %s: agent list works only on this machine", url)
			}
			return a.agentList(local.Agents(cmd.Context()), asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per line")
	return cmd
}

func (a *app) agentList(list []agent.Installed, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(a.stdout)
		for _, l := range list {
			if err := enc.Encode(l); err != nil {
				return &writeError{err}
			}
		}
		return nil
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "AGENT\tVERSION\tMODES\tCAN\tPATH")
	for _, l := range list {
		modes := make([]string, len(l.Modes))
		for i, m := range l.Modes {
			modes[i] = string(m)
		}
		version, where := l.Version, l.Path
		switch {
		case l.Error != "":
			version, where = "?", strings.TrimSpace(l.Path+" "+plain(l.Error))
		case l.Path == "":
			version, where = "-", "not installed: "+l.Install
		}
		can := strings.Join(l.Capabilities, ",")
		if can == "" {
			can = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", l.Agent, plain(version), strings.Join(modes, ","), can, plain(where))
	}
	if err := w.Flush(); err != nil {
		return &writeError{err}
	}
	return nil
}
