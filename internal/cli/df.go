package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spool-run/spool"
)

func (a *app) dfCommand() *cobra.Command {
	var by string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "df [flags]",
		Short: "Show how much disk space runs take",
		Long: `Df shows how much disk space the logs of live and finished runs take, what finished
runs changed in their workspaces, blobs (images and other large values), and the index of
runs. RAW is the size of the logs before compression. --by shows the logs by engine, by the
day on which their runs began (in UTC), or by the value of a label.

The sizes of logs come from the index, so that df does not read them; of each line of
--by it reads one log for the name. "spool rm" and "spool prune" delete finished runs.`,
		Example:           "  spool df\n  spool df --by engine\n  spool df --by label=team --json",
		Args:              usageArgs(cobra.NoArgs),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			label, isLabel := strings.CutPrefix(by, "label=")
			if by != "" && by != "engine" && by != "day" && !(isLabel && label != "") {
				return usageErrorf("--by %q: use engine, day or label=NAME", by)
			}
			return with(a.open, cmd.Context(), func(b spool.Backend) error {
				return a.df(cmd.Context(), b, by, asJSON)
			})
		},
	}
	cmd.Flags().StringVar(&by, "by", "", "show the logs by `key`: engine, day or label=NAME")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	completeWords(cmd, "by", []string{"engine", "day", "label="})
	return cmd
}

func (a *app) df(ctx context.Context, b spool.Backend, by string, asJSON bool) error {
	st, err := storageBy(ctx, b, by)
	if err != nil {
		return err
	}
	if asJSON {
		return a.printJSON(st)
	}
	t := table{columns: []column{{title: "TYPE"}, {title: "COUNT", right: true}, {title: "SIZE", right: true}, {title: "RAW", right: true}}}
	if by != "" {
		t.columns[0].title, t.columns[1].title = strings.ToUpper(strings.TrimPrefix(by, "label=")), "RUNS"
		for _, g := range st.Groups {
			name := g.Name
			if name == "" {
				name = "-"
			}
			t.rows = append(t.rows, []string{plain(name), strconv.Itoa(g.Runs), formatBytes(g.Bytes), formatBytes(g.RawBytes)})
		}
	} else {
		t.rows = [][]string{
			{"live runs", strconv.Itoa(st.LiveRuns), formatBytes(st.LiveBytes), ""},
			{"finished runs", strconv.Itoa(st.FinishedRuns), formatBytes(st.FinishedBytes - st.WorkspaceBytes), formatBytes(st.FinishedRawBytes)},
			{"workspaces", "", formatBytes(st.WorkspaceBytes), ""},
			{"blobs", strconv.Itoa(st.Blobs), formatBytes(st.BlobBytes), ""},
			{"index", "", formatBytes(st.IndexBytes), ""},
			{"total", "", formatBytes(st.LiveBytes + st.FinishedBytes + st.BlobBytes + st.IndexBytes), ""},
		}
	}
	_, err = a.stdout.WriteString(t.text(0))
	return err
}

// storageBy asks a backend what runs take, with groups if by is not empty.
func storageBy(ctx context.Context, b spool.Backend, by string) (spool.Storage, error) {
	if by == "" {
		remover, err := removerOf(b)
		if err != nil {
			return spool.Storage{}, err
		}
		return remover.Storage(ctx)
	}
	grouper, ok := b.(spool.StorageGrouper)
	if !ok {
		return spool.Storage{}, fmt.Errorf("group runs: %w by this backend", spool.ErrUnsupported)
	}
	return grouper.StorageBy(ctx, by)
}
