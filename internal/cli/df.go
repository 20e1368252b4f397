package cli

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/spool-run/spool"
)

func (a *app) dfCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "df [flags]",
		Short: "Show how much disk space runs take",
		Long: `Df shows how much disk space the logs of live and finished runs take, with what the
finished ones changed in their workspaces, and blobs: images and other large values. "spool rm" and "spool prune" delete finished runs.`,
		Example:           "  spool df\n  spool df --json",
		Args:              usageArgs(cobra.NoArgs),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return with(a.open, cmd.Context(), func(b spool.Backend) error {
				return a.df(cmd.Context(), b, asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func (a *app) df(ctx context.Context, b spool.Backend, asJSON bool) error {
	remover, err := removerOf(b)
	if err != nil {
		return err
	}
	st, err := remover.Storage(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		return a.printJSON(st)
	}
	t := table{columns: []column{{title: "TYPE"}, {title: "COUNT", right: true}, {title: "SIZE", right: true}}}
	t.rows = [][]string{
		{"live runs", strconv.Itoa(st.LiveRuns), formatBytes(st.LiveBytes)},
		{"finished runs", strconv.Itoa(st.FinishedRuns), formatBytes(st.FinishedBytes)},
		{"blobs", strconv.Itoa(st.Blobs), formatBytes(st.BlobBytes)},
		{"total", "", formatBytes(st.LiveBytes + st.FinishedBytes + st.BlobBytes)},
	}
	_, err = a.stdout.WriteString(t.text(0))
	return err
}
