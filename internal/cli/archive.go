package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/archive"
	"github.com/spool-run/spool/local"
)

func (a *app) archiveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "archive",
		Short: "Keep finished runs where they outlive this machine",
		Long: `Archive is about the archive that --archive, SPOOL_ARCHIVE or the key archive of the
configuration file names: a directory, perhaps on a disk of another machine, a bucket of
an S3-compatible store, or an object store of NATS. "spool serve" brings the finished runs of its state directory
there, in the background. Any machine with the same archive then finds them by their
ids, in every command and in its servers, after their own machine is gone.

  dir:/mnt/logs                                  a directory, which must exist
  s3://BUCKET/PREFIX                             AWS
  s3://BUCKET/PREFIX?endpoint=https://HOST       any other store; also region, profile
  nats://HOST:PORT/BUCKET                        an object store of NATS; also tls://

The credentials of a store are never in the URL: they are in the file of
--archive-credentials, in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, in
~/.aws/credentials, or those of the role of the machine. docs/archive.md tells more.

Exit codes: 0 on success, 1 on failure, 2 on a usage error.`,
		Example: `  spool serve --archive dir:/mnt/logs
  spool archive status
  spool archive ls
  spool --archive 's3://logs/prod?endpoint=https://minio.example.com' logs RUN`,
		Args: noVerb,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.archiveStatusCommand(), a.archiveListCommand(), a.archiveShipCommand(), a.archiveVerifyCommand(),
		a.archiveRemoveCommand(), a.archivePruneCommand())
	return cmd
}

func (a *app) archiveStatusCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status [flags]",
		Short: "Show how shipping to the archive gets on",
		Long: `Status shows what the server of this machine that ships to the archive said last: how
many runs wait and since when, and why, if it fails. "spool doctor" looks at the same.`,
		Example:           "  spool archive status\n  spool archive status --json",
		Args:              usageArgs(cobra.NoArgs),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(*cobra.Command, []string) error { return a.archiveStatus(asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func (a *app) archiveStatus(asJSON bool) error {
	dir, err := a.stateDir()
	if err != nil {
		return err
	}
	st, err := archive.ReadStatus(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return &hintedError{fmt.Errorf("nothing was shipped from %s yet", dir), `"spool serve --archive URL" ships, and "spool archive ship" does once`}
	}
	if err != nil {
		return err
	}
	if asJSON {
		return a.printJSON(st)
	}
	now := time.Now()
	var out strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&out, "%-10s%s\n", name, fmt.Sprintf(format, args...))
	}
	line("archive", "%s", archiveOf(&st))
	line("updated", "%s ago, by process %d", formatAge(now.Sub(st.Updated)), st.PID)
	line("shipped", "%s, %s, since it started", count(st.ShippedRuns, "run", "runs"), formatBytes(st.ShippedBytes))
	waiting := ""
	if st.PendingRuns > 0 {
		waiting = fmt.Sprintf(", since %s", formatAge(now.Sub(st.PendingSince)))
	}
	line("waiting", "%s, %s%s", count(st.PendingRuns, "run", "runs"), formatBytes(st.PendingBytes), waiting)
	if st.Full {
		line("full", "no more runs may wait: see --archive-pending of spool serve")
	}
	if st.Conflict != "" {
		line("conflicts", "%d: %s", st.Conflicts, plain(st.Conflict))
	}
	if st.Failure != "" {
		line("failing", "%s, the last one: %s", count(st.Failures, "time", "times"), plain(st.Failure))
	}
	_, err = a.stdout.WriteString(out.String())
	return err
}

func (a *app) archiveListCommand() *cobra.Command {
	var asJSON bool
	var since span
	cmd := &cobra.Command{
		Use:   "ls [flags]",
		Short: "List the runs in the archive",
		Long: `Ls lists the runs in the archive, those that ended last first. It reads the description
of each, which takes a request to the store: --since leaves out the runs that were
archived before.`,
		Example:           "  spool archive ls\n  spool archive ls --since 7d --json",
		Args:              usageArgs(cobra.NoArgs),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := archive.Query{}
			if since > 0 {
				q.Since = time.Now().Add(-time.Duration(since))
			}
			return a.withArchive(func(r *archive.Archive) error { return a.archiveList(cmd.Context(), r, q, asJSON) })
		},
	}
	cmd.Flags().Var(&since, "since", "only runs that were archived within this `time`, such as 12h or 7d")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per line")
	return cmd
}

// withArchive opens the archive, calls do, and closes it.
func (a *app) withArchive(do func(*archive.Archive) error) error {
	o, err := a.openArchive()
	if err != nil {
		return err
	}
	return errors.Join(do(archive.New(o)), o.Close())
}

func (a *app) archiveList(ctx context.Context, r *archive.Archive, q archive.Query, asJSON bool) error {
	var all []*archive.Manifest
	var errs []error
	for m, err := range r.List(ctx, q) {
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *archive.Manifest) int { return b.Info.Ended.Compare(a.Info.Ended) })
	t := table{columns: []column{{title: "RUN"}, {title: "NAME"}, {title: "ENDED"}, {title: "OUTCOME"}, {title: "SIZE", right: true}, {title: "MACHINE"}, {title: "COMMAND", least: 10}}}
	for _, m := range all {
		if asJSON {
			if err := a.printJSON(m); err != nil {
				return err
			}
			continue
		}
		outcome := "-"
		if m.Info.Outcome != nil {
			outcome = m.Info.Outcome.String()
		}
		t.rows = append(t.rows, []string{
			string(m.Run), plain(m.Info.Name), formatAge(time.Since(m.Info.Ended)), plain(outcome), formatBytes(m.Bytes()), plain(m.Node), plain(strings.Join(m.Info.Argv, " ")),
		})
	}
	if !asJSON {
		size, _ := terminalSize(a.stdout)
		if _, err := a.stdout.WriteString(t.text(int(size.Cols))); err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}

// awaitLogs waits until the logs of runs that have just ended are complete.
func (a *app) awaitLogs(ctx context.Context, o local.Options) error {
	b, err := a.openLocal(o)
	if err != nil {
		return err
	}
	if c, ok := b.(interface{ Complete(context.Context) error }); ok {
		err = c.Complete(ctx)
	}
	return errors.Join(err, b.Close())
}

func (a *app) archiveShipCommand() *cobra.Command {
	var o shipOptions
	cmd := &cobra.Command{
		Use:   "ship [flags]",
		Short: "Bring the finished runs of this machine to the archive, now",
		Long: `Ship does once what "spool serve --archive" does all the time, and ends when the
archive has every run of the state directory that has finished. It waits while a server
ships.`,
		Example:           "  spool --archive dir:/mnt/logs archive ship",
		Args:              usageArgs(cobra.NoArgs),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts, err := a.store.options()
			if err != nil {
				return err
			}
			s, objects, err := a.shipper(&o, "", opts.RetainLabels, nil)
			if err != nil {
				return err
			}
			err = a.awaitLogs(cmd.Context(), opts)
			if err == nil {
				err = s.Flush(cmd.Context())
			}
			err = errors.Join(err, objects.Close())
			st := s.Status()
			fmt.Fprintf(a.stderr, "spool: archive: shipped %s, %s\n", count(st.ShippedRuns, "run", "runs"), formatBytes(st.ShippedBytes))
			return err
		},
	}
	o.add(cmd.Flags())
	return cmd
}

func (a *app) archiveVerifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify [flags] [RUN…]",
		Short: "Read runs in the archive and compare every checksum",
		Long: `Verify reads all that the archive has of runs, by default of all, and compares it with
the checksums that were made before it left its machine. It prints the runs that are as
they were stored, and fails if one is not. RUN is a whole id.`,
		Example:           "  spool archive verify\n  spool archive verify 01jv6q8w9d2k",
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withArchive(func(r *archive.Archive) error { return a.archiveVerify(cmd.Context(), r, args) })
		},
	}
	return cmd
}

func (a *app) archiveVerify(ctx context.Context, r *archive.Archive, names []string) error {
	ids, errs := make([]spool.RunID, 0, len(names)), []error(nil)
	for _, name := range names {
		ids = append(ids, spool.RunID(name))
	}
	if len(names) == 0 {
		for m, err := range r.List(ctx, archive.Query{}) {
			if err != nil {
				errs = append(errs, err)
				continue
			}
			ids = append(ids, m.Run)
		}
	}
	for _, id := range ids {
		m, err := r.Verify(ctx, id)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if _, err := fmt.Fprintf(a.stdout, "%s  %s\n", id, formatBytes(m.Bytes())); err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}

func (a *app) archiveRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rm [flags] RUN…",
		Short: "Remove runs from the archive",
		Long: `Rm removes runs from the archive. A machine that has a run still keeps it, and does not
ship it again. RUN is a whole id.`,
		Example:           "  spool archive rm 01jv6q8w9d2k",
		Args:              usageArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withArchive(func(r *archive.Archive) error {
				var errs []error
				for _, name := range args {
					_, err := r.Manifest(cmd.Context(), spool.RunID(name))
					if err == nil || errors.Is(err, archive.ErrDamaged) {
						err = r.Remove(cmd.Context(), spool.RunID(name))
					}
					if err == nil {
						_, err = fmt.Fprintln(a.stdout, name)
					}
					errs = append(errs, err)
				}
				return errors.Join(errs...)
			})
		},
	}
}

func (a *app) archivePruneCommand() *cobra.Command {
	var older span
	var bytes byteCount
	var dry, asJSON bool
	cmd := &cobra.Command{
		Use:   "prune [flags]",
		Short: "Remove old runs from the archive",
		Long: `Prune removes the runs from the archive that ended longer ago than --older, then those
that ended first until it has at most --bytes. Runs with the label keep=forever stay, and
so do those that retain-label keeps longer. What uploads left that nobody went on with
for two days goes, too. "spool serve" with --archive-retain-age and
--archive-retain-bytes does the same every hour.`,
		Example:           "  spool archive prune --older 90d --dry-run\n  spool archive prune --bytes 500G",
		Args:              usageArgs(cobra.NoArgs),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if older <= 0 && bytes <= 0 {
				return usageErrorf("say which runs: --older 90d, --bytes 500G, or both")
			}
			opts, err := a.store.options()
			if err != nil {
				return err
			}
			retention := archive.Retention{Age: time.Duration(older), Bytes: int64(bytes), Labels: opts.RetainLabels}
			return a.withArchive(func(r *archive.Archive) error {
				return a.archivePrune(cmd.Context(), r, retention, dry, asJSON)
			})
		},
	}
	flags := cmd.Flags()
	flags.Var(&older, "older", "remove runs that ended longer than this `time` ago, such as 90d")
	flags.Var(&bytes, "bytes", "remove the oldest runs until the archive has at most this many `bytes`")
	flags.Lookup("bytes").DefValue = "0" // which the help does not print
	flags.BoolVarP(&dry, "dry-run", "n", false, "only print what would be removed")
	flags.BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func (a *app) archivePrune(ctx context.Context, r *archive.Archive, retention archive.Retention, dry, asJSON bool) error {
	now := time.Now()
	due, err := r.Due(ctx, retention, now)
	if err != nil {
		return err
	}
	total := removalReport{Removal: spool.Removal{Runs: []spool.RunID{}}}
	for _, d := range due {
		if !dry {
			if err := r.Remove(ctx, d.Run); err != nil {
				return err
			}
		}
		total.Runs = append(total.Runs, d.Run)
		total.Blobs += len(d.Blobs)
		total.Bytes += d.Bytes()
		total.Due = append(total.Due, spool.Due{Run: d.Run, Why: d.Why})
	}
	if !dry {
		if _, err := r.RemoveAbandoned(ctx, now); err != nil {
			return err
		}
	}
	if asJSON {
		return a.printJSON(total)
	}
	var out strings.Builder
	for _, d := range due {
		fmt.Fprintf(&out, "%s  %s\n", d.Run, d.Why)
	}
	verb := "freed"
	if dry {
		verb = "would free"
	}
	fmt.Fprintf(&out, "%s %s (%s)\n", verb, formatBytes(total.Bytes), removalText(total.Removal))
	_, err = a.stdout.WriteString(out.String())
	return err
}
