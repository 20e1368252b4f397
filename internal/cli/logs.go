package cli

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/search"
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
	to             uint64
	budget         tokens
	around         logPlace
	context        int // lines before and after the place

	pattern *regexp.Regexp
}

func (a *app) logsCommand() *cobra.Command {
	o := logsOptions{tail: -1}
	cmd := &cobra.Command{
		Use:   "logs [flags] [RUN…]",
		Short: "Print the output of runs",
		Long: `Logs prints the output of a run: its stdout to stdout, its stderr to stderr, and
the output of its terminal to stdout. It prints what the log holds now; with
--follow it continues until the run has finished. --after starts at any
position: it takes the "seq" of the last event you saw, as --json prints it.

--tail prints only the last lines, --since and --until those of a time: a duration
before now, a time or a date. --grep prints only lines that match a regular
expression; colours do not hide a match. Without a RUN it searches all runs, as "spool
search --regexp" does. --turn prints one turn of a kernel, a sandbox or an agent: its number
in --json, or "last". --around prints the lines around a place that "spool search"
printed: a seq, or seq+offset.

--budget is for a model that reads the log: it prints the head and the tail, and of
what is between errors, tracebacks, warnings and lines unlike those before, with
repeated lines folded. It says what it left out and the command that prints that. Four
letters or blanks count as a token, as do two other ASCII characters, or one other
character. With --json it prints one object.

With several runs, each line begins with the name of its run; lines come in the
order of time.`,
		Example: `  spool logs web
  spool logs -f --tail 10 web
  spool logs -f web worker db
  spool logs --since 10m --grep 'error|warn' web
  spool logs --grep 'out of memory'
  spool logs --around 120 -C 5 web
  spool logs --budget 2000t build
  spool logs --json --after 120 0f3k
  spool logs --turn last notebook
  spool logs --stderr --timestamps build`,
		Args:              usageArgs(cobra.ArbitraryArgs),
		ValidArgsFunction: a.completeRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(cmd, args); err != nil {
				return err
			}
			return with(a.open, cmd.Context(), func(b spool.Backend) error {
				switch {
				case len(args) == 0:
					s := searchOptions{json: o.json, since: o.since, only: o.stream()}
					return a.search(cmd.Context(), b, search.Query{Pattern: o.grep}, nil, s)
				case o.budget > 0:
					return a.logsBudget(cmd.Context(), b, args[0], o)
				case o.around.seq > 0:
					return a.logsAround(cmd.Context(), b, args[0], o)
				}
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
	flags.Uint64Var(&o.to, "to", 0, "end with the event with this `seq`")
	flags.Var(&o.budget, "budget", "print what fits in this number of `tokens`, such as 2000t: head, tail, errors and changes")
	flags.Var(&o.around, "around", "print the lines around this `place`: a seq, or seq+offset as search prints it")
	flags.IntVarP(&o.context, "context", "C", 10, "`number` of lines before and after --around")
	cmd.MarkFlagsMutuallyExclusive("stdout", "stderr", "json")
	cmd.MarkFlagsMutuallyExclusive("timestamps", "json")
	cmd.MarkFlagsMutuallyExclusive("until", "follow")
	cmd.MarkFlagsMutuallyExclusive("to", "follow")
	return cmd
}

// check checks the values of the flags.
func (o *logsOptions) check(cmd *cobra.Command, args []string) error {
	if len(args) == 0 && o.grep == "" {
		return usageErrorf("an argument is missing: use %q, or --grep to search all runs", "spool logs RUN…")
	}
	if len(args) == 0 {
		if flag := changedBesides(cmd, "grep", "since", "json", "stdout", "stderr"); flag != "" {
			return usageErrorf("--%s needs a RUN", flag)
		}
	}
	if o.around.seq > 0 {
		if flag := changedBesides(cmd, "around", "context", "stdout", "stderr"); flag != "" {
			return usageErrorf("--around does not go with --%s", flag)
		}
		if len(args) > 1 {
			return usageErrorf("--around takes one run")
		}
	}
	if o.budget > 0 {
		if flag := changedBesides(cmd, "budget", "after", "to", "json", "stdout", "stderr"); flag != "" {
			return usageErrorf("--budget does not go with --%s", flag)
		}
		if len(args) > 1 {
			return usageErrorf("--budget takes one run")
		}
	}
	if o.context < 0 {
		return usageErrorf("--context must not be negative")
	}
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

// changedBesides returns a flag of the command that was given, and is none of these.
func changedBesides(cmd *cobra.Command, names ...string) string {
	other := ""
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Changed && !slices.Contains(names, f.Name) && other == "" {
			other = f.Name
		}
	})
	return other
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
	growPipe(a.stdout)
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
