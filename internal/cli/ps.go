package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/spool-run/spool"
)

const (
	recentRuns = 20 // finished runs that ps shows without --all
	shortID    = 12 // characters of an id in tables and messages
)

// psOptions are the flags of spool ps.
type psOptions struct {
	all, json, quiet bool
}

func (a *app) psCommand() *cobra.Command {
	var o psOptions
	cmd := &cobra.Command{
		Use:   "ps [flags]",
		Short: "List runs",
		Long: fmt.Sprintf(`Ps lists the live runs and the %d runs that finished last, newest first. With
--all it lists every run whose log still exists. Ids are shortened to %d
characters. BYTES is the size of the output in the log.

With --json it prints one JSON object per line, one line per run.`, recentRuns, shortID),
		Example: `  spool ps
  spool ps --all --json
  spool kill $(spool ps --quiet --live)`,
		Args:              usageArgs(cobra.NoArgs),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	var live bool
	flags := cmd.Flags()
	flags.BoolVarP(&o.all, "all", "a", false, "list every run")
	flags.BoolVar(&live, "live", false, "list only runs that have not finished")
	flags.BoolVar(&o.json, "json", false, "print one JSON object per line")
	flags.BoolVarP(&o.quiet, "quiet", "q", false, "print only the full ids")
	cmd.MarkFlagsMutuallyExclusive("all", "live")
	cmd.MarkFlagsMutuallyExclusive("json", "quiet")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return with(a.open, cmd.Context(), func(b spool.Backend) error {
			return a.ps(cmd.Context(), b, spool.Filter{Live: live}, o)
		})
	}
	return cmd
}

func (a *app) ps(ctx context.Context, b spool.Backend, f spool.Filter, o psOptions) error {
	var runs []spool.Info
	finished := 0
	for info, err := range b.List(ctx, f) {
		if err != nil {
			if ctx.Err() != nil || info.ID == "" && len(runs) == 0 && isLost(err) {
				return err
			}
			// Continue with the other runs.
			fmt.Fprintf(a.stderr, "spool: ps: %v\n", err)
			continue
		}
		if info.State == spool.StateClosed && !o.all {
			if finished++; finished > recentRuns {
				continue
			}
		}
		runs = append(runs, info)
	}
	var out bytes.Buffer
	switch {
	case o.json:
		enc := json.NewEncoder(&out)
		enc.SetEscapeHTML(false)
		for _, info := range runs {
			if err := enc.Encode(info); err != nil {
				return err
			}
		}
	case o.quiet:
		for _, info := range runs {
			fmt.Fprintln(&out, info.ID)
		}
	default:
		size, _ := terminalSize(a.stdout)
		writeTable(&out, runs, time.Now(), int(size.Cols), colour(a.stdout))
	}
	_, err := a.stdout.Write(out.Bytes())
	return err
}

// writeTable writes runs as a table of at most the given width. Zero means no
// maximum.
func writeTable(w io.Writer, runs []spool.Info, now time.Time, cols int, coloured bool) {
	rows := [][]string{{"ID", "NAME", "STATE", "AGE", "BYTES", "COMMAND"}}
	for _, info := range runs {
		rows = append(rows, []string{
			shorten(string(info.ID)), plain(info.Name), plain(stateText(info)), formatAge(now.Sub(info.Created)),
			formatBytes(info.Bytes), plain(commandColumn(info)),
		})
	}
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	const stateColumn, last = 2, 5
	for i, row := range rows {
		var line strings.Builder
		used := 0
		for c, cell := range row {
			if c == last {
				if cols > 0 {
					cell = cut(cell, max(cols-used, 8))
				}
				line.WriteString(cell)
				break
			}
			pad := strings.Repeat(" ", widths[c]-utf8.RuneCountInString(cell)+2)
			used += widths[c] + 2
			if coloured && i > 0 && c == stateColumn {
				cell = stateColour(runs[i-1]) + cell + "\x1b[0m"
			}
			line.WriteString(cell + pad)
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
}

func shorten(id string) string {
	if len(id) > shortID {
		return id[:shortID]
	}
	return id
}

// cut shortens text to n characters.
func cut(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// commandColumn returns the command of a run, or its engine and directory.
func commandColumn(info spool.Info) string {
	if len(info.Argv) == 0 && info.Engine != spool.EngineProcess {
		return strings.TrimSpace("[" + info.Engine + "] " + info.Cwd)
	}
	return commandText(info.Argv)
}

// commandText formats an argument vector as a shell command.
func commandText(argv []string) string {
	words := make([]string, len(argv))
	for i, arg := range argv {
		if arg == "" || strings.ContainsAny(arg, " \t\n'\"\\$`*?[]{}()<>|&;#~!") {
			arg = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
		words[i] = arg
	}
	return strings.Join(words, " ")
}

// stateText returns the outcome of a run, or its state if it has no outcome.
func stateText(info spool.Info) string {
	switch {
	case info.State != spool.StateClosed && info.Outcome != nil:
		return outcomeText(*info.Outcome) + ", streams open"
	case info.Outcome != nil:
		return outcomeText(*info.Outcome)
	}
	return string(info.State)
}

func outcomeText(o spool.Outcome) string {
	if o.Kind == spool.Exited {
		return o.String()
	}
	return string(o.Kind) // the log has the reason
}

func stateColour(info spool.Info) string {
	switch {
	case info.State != spool.StateClosed:
		return "\x1b[32m" // green
	case info.Outcome == nil || info.Outcome.Kind == spool.Unknown:
		return "\x1b[33m" // yellow
	case info.Outcome.ExitCode() != 0:
		return "\x1b[31m" // red
	}
	return "\x1b[2m" // dim
}

// formatAge formats a duration in its largest unit: 0s, 12s, 5m, 3h, 2d.
func formatAge(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}
