package cli

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spool-run/spool/internal/cluster"
)

func (a *app) clusterRebuildCommand() *cobra.Command {
	var without, control []string
	cmd := &cobra.Command{
		Use:   "rebuild",
		Short: "Have all nodes tell the store again what they have",
		Long: `Rebuild has all nodes say again which runs they have, as they do by themselves when they
notice that the store of the cluster went back in time: its files were restored from an
older copy, or are gone. Until all of them have, nothing is started.

--without goes on without a node that never comes back. Runs that it had claimed may
then be started again under the same ids, unless they are in the archive.

--control gives the cluster other control nodes, for example three in place of this
machine alone. It prints a new token. Stop the server of this machine before. Then run
"spool cluster join" with the token on all other machines, also on those that were nodes
before, and start the servers of all.

Exit codes: 0 on success; 1 on failure; 2 on a usage error.`,
		Example: `  spool cluster rebuild --without n7
  spool cluster rebuild --control 10.0.0.1:7777,10.0.0.2:7777,10.0.0.3:7777 > token`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(control) > 0 {
				if len(without) > 0 {
					return usageErrorf("use --control or --without")
				}
				return a.growCluster(control)
			}
			status, err := a.askCluster(cmd.Context(), http.MethodPost, "/cluster/rebuild?"+url.Values{"without": without}.Encode())
			if err != nil {
				return err
			}
			return a.printStatus(status)
		},
	}
	cmd.Flags().StringSliceVar(&without, "without", nil, "`nodes` that never come back, separated by commas")
	cmd.Flags().StringSliceVar(&control, "control", nil, "`addresses` of the control nodes from now on, HOST:PORT, separated by commas")
	return cmd
}

// growCluster gives the cluster of this machine other control nodes.
func (a *app) growCluster(control []string) error {
	if err := cluster.CheckControl(control); err != nil {
		return usageErrorf("--control: %s", err)
	}
	dir, err := a.stateDir()
	if err != nil {
		return err
	}
	m, err := cluster.Grow(dir, control)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(a.stdout, m.Token()); err != nil {
		return err
	}
	fmt.Fprintf(a.stderr, "the cluster %s has new control nodes; now run \"spool cluster join\" with this token on the others, and \"spool serve --cluster\" on all\n", m.Key.ID())
	return nil
}

// rebuilding returns an error while the store is not complete.
func rebuilding(r *cluster.Rebuild) error {
	if r == nil {
		return nil
	}
	text := fmt.Sprintf("the store of the cluster went back in time, as node %s noticed (%s); nothing is started until all nodes have said again what they have", r.By, r.Reason)
	if len(r.Missing) == 0 {
		return errors.New(text)
	}
	return &hintedError{fmt.Errorf("%s; these have not: %s", text, strings.Join(r.Missing, ", ")), fmt.Sprintf(`start them; "spool cluster rebuild --without %s" goes on without one that never comes back`, r.Missing[0])}
}
