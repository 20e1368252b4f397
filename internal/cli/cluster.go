package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/cluster"
	"github.com/spool-run/spool/internal/limits"
)

func (a *app) clusterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Make one server of many machines",
		Long: `Cluster makes many machines answer as one: any of them starts, lists, reads and
controls the runs of all. "init" makes a cluster and prints a token, with which other
machines join. Then "spool serve --cluster" on each of them is a node.

A run stays on the machine that started it. If that machine is lost, others say that
they do not know how its runs ended, and nothing else. docs/cluster.md describes it.

The other commands ask the server of this machine.`,
		Example: `  spool cluster init --control 10.0.0.1:7777,10.0.0.2:7777,10.0.0.3:7777
  spool cluster join < token
  spool serve --cluster --cluster-listen 10.0.0.2:7777
  spool cluster nodes`,
		Args: noVerb,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.clusterInitCommand(), a.clusterJoinCommand(), a.clusterTokenCommand(), a.clusterStatusCommand(), a.clusterNodesCommand(), a.clusterQueueCommand(), a.clusterRebuildCommand())
	for _, c := range []struct{ use, short, long string }{
		{"drain", "Have this node take no new runs", "Drain has the node of this machine take no new runs. Those that it has go on.\nRun \"spool cluster undrain\" to undo it."},
		{"undrain", "Have this node take runs again", "Undrain has the node of this machine take new runs again."},
		{"leave", "Take this node out of the cluster", "Leave gives the lease of this node back: others know that it is gone, and not lost.\nThe node must have no live runs. Stop its server afterwards."},
	} {
		cmd.AddCommand(&cobra.Command{
			Use: c.use, Short: c.short, Long: c.long + "\n\nExit codes: 0 on success; 1 on failure; 2 on a usage error.", Example: "  spool cluster " + c.use, Args: usageArgs(cobra.NoArgs),
			RunE: func(cmd *cobra.Command, _ []string) error {
				status, err := a.askCluster(cmd.Context(), http.MethodPost, "/cluster/"+c.use)
				if err != nil {
					return err
				}
				return a.printNodes(status.Nodes)
			},
		})
	}
	return cmd
}

func (a *app) clusterInitCommand() *cobra.Command {
	var control []string
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make a cluster and print its token",
		Long: `Init makes a cluster of which this machine is the first, and prints a token on stdout.
Everybody who has the token can run commands on every node: keep it as you keep a password.

The control nodes hold the facts of the cluster: which nodes there are, and which of
them has which run. Name 1, 3 or 5, with the addresses of their --cluster-listen; more
than half of them must be up for runs to start. Without any, this machine is the whole
cluster.

Exit codes: 0 on success; 1 on failure; 2 on a usage error.`,
		Example: `  spool cluster init > token
  spool cluster init --control 10.0.0.1:7777,10.0.0.2:7777,10.0.0.3:7777 > token`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			if err := cluster.CheckControl(control); err != nil {
				return usageErrorf("--control: %s", err)
			}
			dir, err := a.stateDir()
			if err != nil {
				return err
			}
			if _, err := cluster.LoadMembership(dir); err == nil {
				return &hintedError{errors.New("this machine belongs to a cluster already"), `"spool cluster token" prints its token`}
			}
			return a.saveMembership(dir, cluster.Membership{Key: cluster.NewKey(), Control: control}, true)
		},
	}
	cmd.Flags().StringSliceVar(&control, "control", nil, "`addresses` of the control nodes, HOST:PORT, separated by commas")
	return cmd
}

// saveMembership makes this machine one of a cluster.
func (a *app) saveMembership(dir string, m cluster.Membership, show bool) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := cluster.SaveMembership(dir, m); err != nil {
		return err
	}
	if show {
		if _, err := fmt.Fprintln(a.stdout, m.Token()); err != nil {
			return err
		}
	}
	fmt.Fprintf(a.stderr, "this machine belongs to the cluster %s; now run \"spool serve --cluster\"\n", m.Key.ID())
	return nil
}

func (a *app) clusterJoinCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "join",
		Short: "Make this machine one of a cluster",
		Long: `Join reads the token of a cluster from stdin, where no other user sees it, and makes
this machine one of the cluster. A machine belongs to one cluster.

Exit codes: 0 on success; 1 on failure; 2 on a usage error.`,
		Example: "  spool cluster join < token",
		Args:    usageArgs(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			text, err := io.ReadAll(io.LimitReader(a.stdin, controlBytes))
			if err != nil {
				return fmt.Errorf("read the token: %w", err)
			}
			m, err := cluster.ParseToken(string(text))
			if err != nil {
				return err
			}
			dir, err := a.stateDir()
			if err != nil {
				return err
			}
			return a.saveMembership(dir, m, false)
		},
	}
}

func (a *app) clusterTokenCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "token",
		Short: "Print the token of the cluster",
		Long: `Token prints the token with which other machines join the cluster of this one.

Exit codes: 0 on success; 1 on failure; 2 on a usage error.`,
		Example: "  spool cluster token | ssh other spool cluster join",
		Args:    usageArgs(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			dir, err := a.stateDir()
			if err != nil {
				return err
			}
			m, err := cluster.LoadMembership(dir)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(a.stdout, m.Token())
			return err
		},
	}
}

func (a *app) clusterStatusCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say how the cluster is",
		Long: `Status says how the cluster is, as the node of this machine sees it: whether the node
holds its lease, whether the store answers, and which nodes there are.

Exit codes: 0 if this node holds its lease and runs can be started; 1 if not, and on
failure; 2 on a usage error.`,
		Example: "  spool cluster status",
		Args:    usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := a.askCluster(cmd.Context(), http.MethodGet, "/cluster")
			if err != nil {
				return err
			}
			if asJSON {
				if err := json.NewEncoder(a.stdout).Encode(s); err != nil {
					return err
				}
			} else if err := a.printStatus(s); err != nil {
				return err
			}
			if !s.Lease {
				return errors.New("this node holds no lease: it starts no runs, and those that it has go on")
			}
			return rebuilding(s.Rebuild)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) printStatus(s cluster.Status) error {
	fmt.Fprintf(a.stdout, "cluster  %s\nnode     %s, epoch %d\n", s.Cluster, s.Node, s.Epoch)
	store := "away"
	if s.Store.Connected {
		store = "connected"
	}
	for _, st := range s.Store.Streams {
		text := st.Error
		if text == "" {
			text = fmt.Sprintf("%d facts on %d servers", st.Facts, st.Current)
		}
		store += fmt.Sprintf("; %s: %s", st.Name, text)
	}
	fmt.Fprintf(a.stdout, "store    generation %d; %s\n", s.Generation, store)
	if r := s.Relay; r.Bytes > 0 || r.Parked > 0 || r.Tunnels > 0 {
		fmt.Fprintf(a.stdout, "relay    %d connections of other nodes, %s so far; %d parked\n", r.Tunnels, limits.Size(r.Bytes), r.Parked)
	}
	if s.Mirror != nil {
		fmt.Fprintf(a.stdout, "mirror   %s\n", mirrorText(s.Mirror))
	}
	fmt.Fprintln(a.stdout)
	return a.printNodes(s.Nodes)
}

// mirrorText says how the copies of logs are.
func mirrorText(m *cluster.MirrorStatus) string {
	text := fmt.Sprintf("%s copied by other nodes, %d by none", count(m.Runs, "run", "runs"), m.Alone)
	if m.Behind > 0 {
		text += fmt.Sprintf("; %d behind, by up to %d events and %v", m.Behind, m.LagEvents, time.Duration(m.LagMs)*time.Millisecond)
	}
	if m.Stopped > 0 {
		text += fmt.Sprintf("; %d without room", m.Stopped)
	}
	return text + fmt.Sprintf("; %s of others here, %s of %s", count(m.Copies, "copy", "copies"), limits.Size(m.CopyBytes), limits.Size(m.CopyLimit))
}

func (a *app) clusterNodesCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "nodes",
		Short: "List the nodes of the cluster",
		Long: `Nodes lists the nodes of the cluster. With --json it prints one object per line.

Exit codes: 0 on success; 1 on failure; 2 on a usage error.`,
		Example: "  spool cluster nodes",
		Args:    usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := a.askCluster(cmd.Context(), http.MethodGet, "/cluster")
			if err != nil {
				return err
			}
			if !asJSON {
				return a.printNodes(s.Nodes)
			}
			enc := json.NewEncoder(a.stdout)
			for _, n := range s.Nodes {
				if err := enc.Encode(n); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// printNodes prints a table of nodes.
func (a *app) printNodes(nodes []spool.Node) error {
	rows := [][]string{{"NODE", "STATE", "RUNS", "CORES", "MEMORY", "ENGINES", "LABELS", "ADDRESS"}}
	for _, n := range nodes {
		name, labels := n.Name, make([]string, 0, len(n.Labels))
		if n.Self {
			name += " *"
		}
		for _, k := range slices.Sorted(maps.Keys(n.Labels)) {
			labels = append(labels, k+"="+n.Labels[k])
		}
		rows = append(rows, []string{name, n.State, fmt.Sprintf("%d/%d", n.Live, n.Slots), fmt.Sprint(n.Cores), memoryOf(&n), cmp.Or(strings.Join(n.Engines, ","), "-"), strings.Join(labels, ","), addressOf(&n)})
	}
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len(cell))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		for i, cell := range row {
			if i == len(row)-1 {
				b.WriteString(cell + "\n")
				continue
			}
			fmt.Fprintf(&b, "%-*s  ", widths[i], cell)
		}
	}
	_, err := io.WriteString(a.stdout, b.String())
	return err
}

// addressOf says how a node is reached.
func addressOf(n *spool.Node) string {
	if len(n.Via) == 0 {
		return cmp.Or(n.Address, "-")
	}
	return strings.TrimSpace(n.Address + " via " + strings.Join(n.Via, ","))
}

// memoryOf says how much memory a node has free, and has.
func memoryOf(n *spool.Node) string {
	if n.MemoryBytes == 0 {
		return "-"
	}
	return limits.Size(n.MemoryFreeBytes) + " of " + limits.Size(n.MemoryBytes)
}

// askCluster asks the node of this machine.
func (a *app) askCluster(ctx context.Context, method, path string) (cluster.Status, error) {
	dir, err := a.stateDir()
	if err != nil {
		return cluster.Status{}, err
	}
	var errs []error
	for _, socket := range controlSockets(dir) {
		var s cluster.Status
		err := askServer(ctx, socket, method, path, &s)
		if err == nil {
			return s, nil
		}
		if !isGone(err) {
			errs = append(errs, err)
		}
	}
	if err := joinAnswers(errs); err != nil {
		return cluster.Status{}, err
	}
	return cluster.Status{}, &hintedError{errNoServer, `"spool serve --cluster" starts it`}
}
