package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/internal/cluster"
	"github.com/spool-run/spool/local"
)

func (a *app) submitCommand() *cobra.Command {
	o := runOptions{detach: true, elsewhere: true}
	var pool string
	var priority int
	var wait, exclusive bool
	var restart string
	cmd := &cobra.Command{
		Use:   "submit [flags] -- command [argument…]",
		Short: "Run a command when a node of the cluster has room",
		Long: `Submit puts a command in the queue of a cluster and prints the id of its run. The
first node of the pool that has room starts it, once: a submit that is repeated with
the same --id and the same command is the same run.

Until then the run is queued: "spool cluster queue" lists such runs, "spool logs -f"
waits for its output, and "spool cluster queue cancel" or "spool kill" takes it out. Subjects
take turns; among the runs of one subject that with the highest --priority starts first,
and then the oldest. A command that cannot be started has the outcome failed.

With --restart lost:N the run is started again, up to N times, when its node is lost: as a
new run, with the label queue.of, and with SPOOL_ATTEMPT in its environment, which is 1 at
first and grows. A node that is lost may still execute the earlier attempt until it learns
of it, unless the run is --exclusive: then it ends when its node cannot renew its lease.

A node belongs to the pools of its label, "spool serve --node-label pool=gpu,default", and
to the pool default without one. The labels of "spool run" in a cluster hold, too:
place.node, place.near and place.want. The working directory must exist on the node, and
the command gets the core variables of the server there. Values of --env are encrypted
in the queue.

Submit asks the server of this machine, which must be a node, or that of --server.

Exit codes: 0 if the run is queued; 1 on failure; 2 on a usage error. With --wait those of
"spool wait".`,
		Example: `  spool submit -- make test
  spool submit --pool gpu --priority 10 -w /data -- python3 train.py
  spool submit --id nightly1117 --restart lost:3 --exclusive -- ./nightly`,
		Args:              usageArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: completeCommand,
		RunE: func(cmd *cobra.Command, argv []string) error {
			spec, err := a.spec(&o, argv)
			if err != nil {
				return err
			}
			if priority < -cluster.MaxPriority || priority > cluster.MaxPriority {
				return usageErrorf("--priority %d: use a number from %d to %d", priority, -cluster.MaxPriority, cluster.MaxPriority)
			}
			if cluster.CheckNode(pool) != nil {
				return usageErrorf("--pool %q: a name has up to 63 of a-z, 0-9 and -", pool)
			}
			if _, err := cluster.ParseRestart(restart); err != nil {
				return usageErrorf("--restart %q: use never, or lost:N with N from 1 to %d", restart, cluster.MaxRestarts)
			}
			if spec.Labels == nil {
				spec.Labels = make(map[string]string)
			}
			spec.Labels[cluster.LabelPool] = pool
			if priority != 0 {
				spec.Labels[cluster.LabelPriority] = strconv.Itoa(priority)
			}
			if restart != "never" {
				spec.Labels[cluster.LabelRestart] = restart
			}
			if exclusive {
				spec.Labels[cluster.LabelExclusive] = "true"
			}
			return a.submit(cmd.Context(), spec, o.json, wait)
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false) // flags after the command are the command's
	o.addSpecFlags(flags)
	flags.StringVar(&pool, "pool", cluster.DefaultPool, "`name` of the pool whose nodes may start it")
	flags.IntVar(&priority, "priority", 0, "`number`: of your runs that wait, the one with the highest starts first")
	flags.StringVar(&restart, "restart", "never", "`policy`: never, or lost:N to start it again up to N times when its node is lost")
	flags.BoolVar(&exclusive, "exclusive", false, "end the run when its node cannot renew its lease, so that two attempts never overlap")
	flags.BoolVar(&wait, "wait", false, "wait until the run has finished and exit with its exit code")
	flags.BoolVar(&o.json, "json", false, "print the description of the run as JSON")
	cmd.MarkFlagsMutuallyExclusive("tty", "line-buffered")
	return cmd
}

// submit puts a run in the queue.
func (a *app) submit(ctx context.Context, spec spool.Spec, asJSON, wait bool) error {
	return with(a.openCluster, ctx, func(b spool.Backend) error {
		info, err := b.Start(ctx, spec)
		if err != nil {
			return err
		}
		switch {
		case asJSON && !wait:
			return a.printJSON(info)
		case !asJSON:
			if _, err := fmt.Fprintln(a.stdout, info.ID); err != nil {
				return err
			}
		}
		if !wait {
			return nil
		}
		return a.wait(ctx, b, []string{string(info.ID)}, asJSON)
	})
}

// openCluster connects to a node: that of --server, or that of this machine.
func (a *app) openCluster(ctx context.Context) (local.Backend, error) {
	if url, ok := a.remote(); ok {
		return a.dial(ctx, url)
	}
	dir, err := a.stateDir()
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, socket := range controlSockets(dir) {
		var s cluster.Status
		if err := askServer(ctx, socket, http.MethodGet, "/cluster", &s); err != nil {
			if !isGone(err) {
				errs = append(errs, err)
			}
			continue
		}
		if to, err := os.Readlink(socket); err == nil {
			socket = to
		}
		return client.Dial(ctx, "unix://"+socket, client.Options{})
	}
	if err := joinAnswers(errs); err != nil {
		return nil, err
	}
	return nil, &hintedError{errNoServer, `"spool serve --cluster" starts it; or name a node with --server`}
}

func (a *app) clusterQueueCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "queue",
		Short: "List the runs that wait for a node",
		Long: `Queue lists the runs that "spool submit" put in the queue of the cluster and that no
node has started yet, the oldest first. With --json it prints one object per line.

Exit codes: 0 on success; 1 on failure; 2 on a usage error.`,
		Example: `  spool cluster queue
  spool cluster queue cancel nightly1117`,
		Args: noVerb,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return with(a.openCluster, cmd.Context(), func(b spool.Backend) error { return a.listQueue(cmd.Context(), b, asJSON) })
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.AddCommand(&cobra.Command{
		Use:   "cancel [flags] RUN…",
		Short: "Take runs out of the queue",
		Long: `Cancel takes runs out of the queue: they are never started. It refuses a run that has
started; one that starts at this very moment ends.

Exit codes: 0 on success; 1 on failure; 2 on a usage error.`,
		Example: "  spool cluster queue cancel nightly1117",
		Args:    usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			return with(a.openCluster, cmd.Context(), func(b spool.Backend) error { return cancelQueued(cmd.Context(), b, names) })
		},
	})
	return cmd
}

// listQueue prints the runs that wait.
func (a *app) listQueue(ctx context.Context, b spool.Backend, asJSON bool) error {
	t := table{columns: []column{{title: "ID"}, {title: "NAME", least: 4}, {title: "POOL"}, {title: "PRIORITY", right: true}, {title: "SUBMITTED"}, {title: "COMMAND", least: 10}}}
	for info, err := range b.List(ctx, spool.Filter{State: spool.StateQueued, Oldest: true}) {
		switch {
		case err != nil:
			return err
		case asJSON:
			if err := a.printJSON(info); err != nil {
				return err
			}
			continue
		}
		priority := info.Labels[cluster.LabelPriority]
		if priority == "" {
			priority = "0"
		}
		t.rows = append(t.rows, []string{string(info.ID), info.Name, info.Labels[cluster.LabelPool], priority, info.Created.Local().Format("2006-01-02 15:04:05"), commandText(info.Argv)})
	}
	if asJSON {
		return nil
	}
	for _, line := range t.lines(0) {
		if _, err := fmt.Fprintln(a.stdout, line); err != nil {
			return err
		}
	}
	return nil
}

// cancelQueued takes runs out of the queue.
func cancelQueued(ctx context.Context, b spool.Backend, names []string) error {
	var errs []error
	for _, name := range names {
		run, err := spool.Find(ctx, b, name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		info, err := run.Info(ctx)
		if err == nil && info.State != spool.StateQueued {
			err = &hintedError{fmt.Errorf("run %s is not in the queue: it is %s", run.ID(), stateText(info)), `"spool kill" ends a run that has started`}
		}
		if err == nil {
			err = run.Kill(ctx)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
