package cli

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/spool-run/spool"
)

// logsOptions are the flags of spool logs.
type logsOptions struct {
	follow         bool
	after          uint64
	json           bool
	stdout, stderr bool
	timestamps     bool
	tail           int // lines; negative means all
	since, until   moment
	grep           string
	turn           string
	noPrefix       bool

	pattern *regexp.Regexp
}

func (a *app) logsCommand() *cobra.Command {
	o := logsOptions{tail: -1}
	cmd := &cobra.Command{
		Use:   "logs [flags] RUN…",
		Short: "Print the output of runs",
		Long: `Logs prints the output of a run: its stdout to stdout, its stderr to stderr, and
the output of its terminal to stdout. It prints what the log holds now; with
--follow it continues until the run has finished. --after starts at any
position: it takes the "seq" of the last event you saw, as --json prints it.

--tail prints only the last lines, --since and --until those of a time: a duration
before now, a time or a date. --grep prints only lines that match a regular
expression. --turn prints one turn of a kernel, a sandbox or an agent: its number
in --json, or "last".

With several runs, each line begins with the name of its run; lines come in the
order of time.`,
		Example: `  spool logs web
  spool logs -f --tail 10 web
  spool logs -f web worker db
  spool logs --since 10m --grep 'error|warn' web
  spool logs --json --after 120 0f3k
  spool logs --turn last notebook
  spool logs --stderr --timestamps build`,
		Args:              usageArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: a.completeRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(cmd); err != nil {
				return err
			}
			return with(a.open, cmd.Context(), func(b spool.Backend) error {
				return a.logs(cmd.Context(), b, args, o)
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&o.follow, "follow", "f", false, "continue until the run has finished")
	flags.Uint64Var(&o.after, "after", 0, "start after the event with this `seq`")
	flags.BoolVar(&o.json, "json", false, "print events, one JSON object per line")
	flags.BoolVar(&o.stdout, "stdout", false, "print only stdout")
	flags.BoolVar(&o.stderr, "stderr", false, "print only stderr")
	flags.BoolVarP(&o.timestamps, "timestamps", "t", false, "print the time before every line")
	flags.IntVarP(&o.tail, "tail", "n", -1, "print only this `number` of lines from the end")
	flags.Lookup("tail").DefValue = "0" // which the help does not print
	flags.Var(&o.since, "since", "print only what was written since this `time`, such as 10m or 15:04")
	flags.Var(&o.until, "until", "print only what was written until this `time`")
	flags.StringVar(&o.grep, "grep", "", "print only lines that match this regular `expression`")
	flags.StringVar(&o.turn, "turn", "", "print only this `turn`: its seq, or last")
	flags.BoolVar(&o.noPrefix, "no-prefix", false, "do not begin the lines of several runs with their names")
	cmd.MarkFlagsMutuallyExclusive("stdout", "stderr", "json")
	cmd.MarkFlagsMutuallyExclusive("timestamps", "json")
	cmd.MarkFlagsMutuallyExclusive("until", "follow")
	return cmd
}

// check checks the values of the flags.
func (o *logsOptions) check(cmd *cobra.Command) error {
	if cmd.Flags().Changed("tail") && o.tail < 0 {
		return usageErrorf("--tail must not be negative")
	}
	if !o.since.IsZero() && !o.until.IsZero() && o.until.Before(o.since.Time) {
		return usageErrorf("--until is before --since")
	}
	if _, err := strconv.ParseUint(o.turn, 10, 64); o.turn != "" && o.turn != "last" && err != nil {
		return usageErrorf("--turn: %q is neither the seq of a turn nor \"last\"", o.turn)
	}
	if o.grep != "" {
		var err error
		if o.pattern, err = regexp.Compile(o.grep); err != nil {
			return usageErrorf("--grep: %s", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
		}
	}
	return nil
}

func (a *app) logs(ctx context.Context, b spool.Backend, names []string, o logsOptions) error {
	var shared sync.Mutex // held while a line is written
	readers := make([]*logReader, len(names))
	prefixes := linePrefixes(names)
	for i, name := range names {
		run, err := spool.Find(ctx, b, name)
		if err != nil {
			return err
		}
		if o.follow && isInside(run.ID()) {
			info, err := run.Info(ctx)
			if err == nil {
				err = a.checkFollow(&info)
			}
			if err != nil {
				return err
			}
		}
		r := &logReader{run: run, options: &o}
		r.printer = &printer{blobs: run, json: o.json, timestamps: o.timestamps, live: o.follow, verbose: a.verbose}
		r.printer.stdout, r.printer.stderr = a.screen(a.stdout), a.screen(a.stderr)
		prefix := ""
		if len(names) > 1 && !o.noPrefix && !o.json {
			prefix = prefixes[i]
		}
		if len(names) > 1 || o.tail >= 0 || o.pattern != nil {
			r.lines = &lineFilter{shared: &shared, prefix: prefix, pattern: o.pattern, keep: o.tail}
			r.printer.stdout, r.printer.stderr = r.lines.to(r.printer.stdout), r.lines.to(r.printer.stderr)
		} else {
			r.printer.colour = colour(a.stdout)
		}
		switch {
		case o.stdout:
			r.printer.only = spool.Stdout
		case o.stderr:
			r.printer.only = spool.Stderr
		}
		if err := r.begin(ctx); err != nil {
			return err
		}
		readers[i] = r
	}
	if len(readers) == 1 {
		return readers[0].read(ctx)
	}
	if err := printMerged(ctx, readers); err != nil || !o.follow {
		return err
	}
	return followAll(ctx, readers)
}

// linePrefixes returns what begins the lines of each run, of the same width.
func linePrefixes(names []string) []string {
	width := 0
	for _, name := range names {
		width = max(width, textWidth(plain(name)))
	}
	prefixes := make([]string, len(names))
	for i, name := range names {
		prefixes[i] = pad(plain(name), width) + " | "
	}
	return prefixes
}
