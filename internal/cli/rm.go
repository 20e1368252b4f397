package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spool-run/spool"
)

// removeBatch is how many runs one request removes.
const removeBatch = 500

func (a *app) rmCommand() *cobra.Command {
	var dry, asJSON bool
	cmd := &cobra.Command{
		Use:   "rm [flags] RUN…",
		Short: "Delete finished runs",
		Long: `Rm deletes the logs of finished runs, and the images and other large values that
no other run uses. It refuses a run that has not finished: "spool kill" stops it.
A command that is reading the log prints that the rest is gone. A run whose log is
corrupt is deleted by its whole id. What a run changed in its workspace is deleted,
too; --dry-run mentions changes that were neither applied nor discarded.`,
		Example: `  spool rm build
  spool rm --dry-run 0f3k 7xq2`,
		Args:              usageArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: a.completeFinishedRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			return with(a.open, cmd.Context(), func(b spool.Backend) error {
				return a.rm(cmd.Context(), b, args, dry, asJSON)
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&dry, "dry-run", "n", false, "only print what would be deleted")
	flags.BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func (a *app) rm(ctx context.Context, b spool.Backend, names []string, dry, asJSON bool) error {
	var runs []spool.Due
	var errs []error
	for _, name := range names {
		run, err := spool.Find(ctx, b, name)
		var info spool.Info
		if err == nil {
			info, err = run.Info(ctx)
		}
		switch {
		case err != nil && !errors.Is(err, spool.ErrNotFound) && !errors.Is(err, spool.ErrAmbiguous) && !isLost(err) && spool.RunID(name).Check() == nil:
			runs = append(runs, spool.Due{Run: spool.RunID(name)}) // its log cannot be read, and can be deleted
		case err != nil:
			errs = append(errs, err)
		case info.State != spool.StateClosed:
			errs = append(errs, &hintedError{fmt.Errorf("run %s has not finished", name), fmt.Sprintf(`"spool kill %s" stops it`, name)})
		default:
			runs = append(runs, spool.Due{Run: info.ID})
		}
	}
	if len(runs) > 0 {
		if err := a.remove(ctx, b, runs, dry, asJSON); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// remove deletes runs and prints what that frees; with dry also why.
func (a *app) remove(ctx context.Context, b spool.Backend, runs []spool.Due, dry, asJSON bool) error {
	remover, err := removerOf(b)
	if err != nil {
		return err
	}
	ids, why := make([]spool.RunID, len(runs)), make(map[spool.RunID]string, len(runs))
	for i, due := range runs {
		ids[i], why[due.Run] = due.Run, due.Why
	}
	if dry {
		a.mentionChanges(ctx, b, ids)
	}
	total := removalReport{Removal: spool.Removal{Runs: []spool.RunID{}}}
	for len(ids) > 0 {
		n := min(len(ids), removeBatch)
		got, err := remover.Remove(ctx, ids[:n], dry)
		if err != nil {
			return err
		}
		total.Runs = append(total.Runs, got.Runs...)
		total.Blobs += got.Blobs
		total.Bytes += got.Bytes
		for _, id := range got.Runs {
			if dry && why[id] != "" {
				total.Due = append(total.Due, spool.Due{Run: id, Why: why[id]})
			}
		}
		ids = ids[n:]
	}
	if asJSON {
		return a.printJSON(total)
	}
	var out strings.Builder
	for _, id := range total.Runs {
		if dry && why[id] != "" {
			fmt.Fprintf(&out, "%s  %s\n", id, why[id])
		} else {
			fmt.Fprintln(&out, id)
		}
	}
	verb := "freed"
	if dry {
		verb = "would free"
	}
	fmt.Fprintf(&out, "%s %s (%s)\n", verb, formatBytes(total.Bytes), removalText(total.Removal))
	_, err = a.stdout.WriteString(out.String())
	return err
}

// removalReport is what rm and prune print as JSON.
type removalReport struct {
	spool.Removal
	Due []spool.Due `json:"due,omitempty"` // with --dry-run: why prune would delete each run
}

// removalText says how many runs and large values a removal is about.
func removalText(r spool.Removal) string {
	text := count(len(r.Runs), "run", "runs")
	if r.Blobs > 0 {
		text += ", " + count(r.Blobs, "blob", "blobs")
	}
	return text
}

// count is a number with its noun.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func removerOf(b spool.Backend) (spool.Remover, error) {
	remover, ok := b.(spool.Remover)
	if !ok {
		return nil, fmt.Errorf("delete runs: %w by this backend", spool.ErrUnsupported)
	}
	return remover, nil
}

// printJSON prints a value as one line of JSON.
func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.stdout)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
