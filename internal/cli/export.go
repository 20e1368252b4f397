package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/export"
	"github.com/spool-run/spool/internal/runfile"
)

func (a *app) exportCommand() *cobra.Command {
	var output, format string
	cmd := &cobra.Command{
		Use:   "export [flags] RUN",
		Short: "Write a run to one file",
		Long: `Export writes a finished run to stdout, or to a file with --output: its
description, its log, and its images and other large values, with checksums.
"spool import" adds it to another machine, with this or a later version. The file
has all that the run wrote, and no environment variables.

With --format it writes a form that other programs read, also of a live run, up to
now:

  jsonl        the events, one JSON object per line
  cast, cast2  a recording for asciinema, in version 3 or 2 of its format
  ipynb        a Jupyter notebook, of a kernel or a sandbox
  md, html     a document; the HTML is one file without scripts
  txt          what a person reads`,
		Example: `  spool export build > build.spool
  spool export --output build.spool build
  spool export --format cast demo > demo.cast`,
		Args:              usageArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completeRun,
		RunE: func(cmd *cobra.Command, args []string) error {
			if format != "" && !slices.Contains(export.Formats, export.Format(format)) {
				return usageErrorf("--format must be one of %s, not %q", formatNames(), format)
			}
			if format == "" && output == "" && isTerminal(a.stdout) {
				return usageErrorf("the output is not text: write it to a file, as in: spool export %s > run.spool", args[0])
			}
			return with(a.open, cmd.Context(), func(b spool.Backend) error {
				return a.export(cmd.Context(), b, args[0], export.Format(format), output)
			})
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "write to this `file`, which must not exist")
	cmd.Flags().StringVar(&format, "format", "", "write this `format`: "+formatNames())
	return cmd
}

// formatNames lists the formats of exports.
func formatNames() string {
	names := make([]string, len(export.Formats))
	for i, f := range export.Formats {
		names[i] = string(f)
	}
	return strings.Join(names, ", ")
}

func (a *app) export(ctx context.Context, b spool.Backend, name string, format export.Format, output string) (err error) {
	run, info, err := findInfo(ctx, b, name)
	if err != nil {
		return err
	}
	if format != "" {
		if err := format.Check(&info); err != nil {
			return err
		}
	} else if info.State != spool.StateClosed {
		return &hintedError{fmt.Errorf("run %s has not finished", name), fmt.Sprintf(`"spool wait %s" waits for its end, "spool kill %s" stops it`, name, name)}
	}
	to := a.stdout
	if output != "" {
		if to, err = os.OpenFile(output, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); errors.Is(err, fs.ErrExist) {
			return &hintedError{err, "remove it, or write to another file"}
		} else if err != nil {
			return err
		}
		defer func() {
			if err = errors.Join(err, to.Close()); err != nil { // an incomplete file is of no use
				err = errors.Join(err, os.Remove(output))
			}
		}()
	}
	if format != "" {
		return export.Write(ctx, to, run, format)
	}
	w := bufio.NewWriterSize(to, 256<<10)
	if err := runfile.Write(ctx, w, run, "spool "+version().Version); err != nil {
		return err
	}
	return w.Flush()
}

// importer is a backend that can add a finished run.
type importer interface {
	Import(ctx context.Context, r io.Reader) (spool.Info, error)
}

func (a *app) importCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "import [flags] FILE|-",
		Short: "Add a run that export wrote",
		Long: `Import adds the run in a file that "spool export" wrote, after checking all of it,
and prints its id: that of the run, or a new one if there is a run with that id.
The run is finished; "spool logs", "inspect" and "ps --all" show it. With - import
reads stdin.`,
		Example: `  spool import build.spool
  ssh host spool export build | spool import -`,
		Args: usageArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveDefault
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return with(a.open, cmd.Context(), func(b spool.Backend) error {
				return a.importRun(cmd.Context(), b, args[0], asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the description of the run as JSON")
	return cmd
}

func (a *app) importRun(ctx context.Context, b spool.Backend, file string, asJSON bool) error {
	in, ok := b.(importer)
	if !ok {
		return &hintedError{errors.New("import does not work with --server"), "run \"spool import\" on the machine of the server, with its state directory"}
	}
	from := a.stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		from = f
	}
	info, err := in.Import(ctx, from)
	if err != nil {
		hint := "export the run again"
		if errors.Is(err, spool.ErrUnsupported) {
			hint = "update spool"
		}
		if errors.Is(err, runfile.ErrDamaged) || errors.Is(err, spool.ErrUnsupported) {
			return &hintedError{fmt.Errorf("%s: %w", file, err), hint}
		}
		return err
	}
	if asJSON {
		return a.printJSON(info)
	}
	_, err = fmt.Fprintln(a.stdout, info.ID)
	return err
}
