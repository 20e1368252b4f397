package cli

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/spf13/cobra"

	"github.com/spool-run/spool"
)

const (
	recentRuns = 20 // finished runs that ps shows without --all
	shortID    = 12 // characters of an id in tables and messages
)

// psOptions are the flags of spool ps.
type psOptions struct {
	last, limit           int // zero means no maximum
	oldest                bool
	engine, name, outcome string
	labels                []string
	since, before         moment
	all, live, waiting    bool
	json, quiet, watch    bool
	filter                []string
	format, sort          string
	columns               []string
}

func (a *app) psCommand() *cobra.Command {
	var o psOptions
	cmd := &cobra.Command{
		Use:     "ps [flags]",
		Aliases: []string{"ls", "list"},
		Short:   "List runs",
		Long: fmt.Sprintf(`Ps lists the live runs and the %d runs that finished last, newest first. With
--all it lists every run whose log still exists. Ids are shortened to %d
characters. COMMAND is the command of a process, and the first line of the last
code or prompt of other runs; STATUS is the outcome of a run, or of its last turn, and
"running, asks" if it waits for an answer: "spool answer" lists the questions.
BYTES is the size of the output in the log.

--engine, --name, --label, --outcome, --since and --before select runs. --limit lists
only so many, the newest or, with --oldest, the oldest. --filter selects runs, too: state (running, exited, closed, live, finished or waiting), label,
engine, name, id and status, as key=value pairs separated by commas; names, ids
and statuses may have * and ?.

--columns chooses the columns, and --sort sorts by one, with a - before it for the
reverse:
  %s

--format is a Go template with these fields, and the functions json and label:
  %s

With --json it prints one JSON object per line, one line per run.`, recentRuns, shortID, wrapWords(columnNames(), ","), wrapWords(psFields(), ",")),
		Example: `  spool ps
  spool ps --all --json
  spool ps --filter state=running,engine=kernel
  spool ps --label team=core --since 2d --limit 50
  spool ps --columns id,status,cwd --sort -bytes
  spool ps --format '{{.ID}} {{.Status}} {{label "team"}}'
  spool kill $(spool ps --quiet --live)`,
		Args:              usageArgs(cobra.NoArgs),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	flags := cmd.Flags()
	flags.BoolVarP(&o.all, "all", "a", false, "list every run")
	flags.IntVarP(&o.last, "last", "n", 0, "list only this `number` of runs, the newest")
	flags.IntVar(&o.limit, "limit", 0, "list only this `number` of runs")
	flags.BoolVar(&o.oldest, "oldest", false, "list the oldest runs first")
	a.selectFlags(cmd, &o)
	flags.BoolVar(&o.live, "live", false, "list only runs that have not finished")
	flags.BoolVar(&o.waiting, "waiting", false, "list only runs that wait for an answer")
	flags.BoolVar(&o.json, "json", false, "print one JSON object per line")
	flags.BoolVarP(&o.quiet, "quiet", "q", false, "print only the full ids")
	flags.StringVar(&o.format, "format", "", "print each run with this Go `template`")
	flags.StringSliceVar(&o.columns, "columns", nil, "`columns` to print, separated by commas")
	flags.StringVar(&o.sort, "sort", "", "sort by this `column`; -column for the reverse (default -created)")
	flags.BoolVarP(&o.watch, "watch", "w", false, "print the list again when it changes, in place")
	cmd.MarkFlagsMutuallyExclusive("all", "live")
	cmd.MarkFlagsMutuallyExclusive("all", "waiting")
	cmd.MarkFlagsMutuallyExclusive("all", "last", "limit")
	cmd.MarkFlagsMutuallyExclusive("last", "oldest")
	cmd.MarkFlagsMutuallyExclusive("json", "quiet", "format", "columns")
	cmd.MarkFlagsMutuallyExclusive("json", "watch")
	completeWords(cmd, "sort", columnNames())
	completeWords(cmd, "columns", columnNames())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		list, err := newRunList(a, o)
		if err != nil {
			return err
		}
		return with(a.open, cmd.Context(), func(b spool.Backend) error {
			if o.watch {
				return list.watch(cmd.Context(), b)
			}
			size, _ := terminalSize(a.stdout)
			text, hidden, err := list.text(cmd.Context(), b, int(size.Cols), colour(a.stdout))
			if err != nil {
				return err
			}
			if _, err := a.stdout.WriteString(text); err != nil {
				return err
			}
			if hidden > 0 && !o.quiet {
				fmt.Fprintf(a.stderr, "spool: %s not shown; --all shows every run\n", count(hidden, "older run is", "older runs are"))
			}
			return nil
		})
	}
	return cmd
}

// selectFlags adds the flags that select runs.
func (a *app) selectFlags(cmd *cobra.Command, o *psOptions) {
	flags := cmd.Flags()
	flags.StringVar(&o.engine, "engine", "", "only runs of this `engine`: process, kernel, sandbox, agent or audit")
	completeWords(cmd, "engine", engineNames)
	flags.StringVar(&o.name, "name", "", "only runs with this `name`")
	flags.StringArrayVar(&o.labels, "label", nil, "only runs with this label: `key=value`, or a key")
	flags.StringVar(&o.outcome, "outcome", "", "only runs that ended this `way`: exited, failed or unknown")
	flags.Var(&o.since, "since", "only runs that have not ended or ended since this `time`, such as 2d or 15:04")
	flags.Var(&o.before, "before", "only runs that were created before this `time`")
	flags.StringArrayVarP(&o.filter, "filter", "f", nil, filterHelp)
	a.completeFilter(cmd)
}

// selectNames are the names of the flags that select runs.
var selectNames = []string{"engine", "name", "label", "outcome", "since", "before", "filter"}

// runList lists runs as the flags of ps say.
type runList struct {
	app     *app
	options psOptions
	filter  spool.Filter
	chosen  bool                   // flags select runs: they say what to show
	match   func(*spool.Info) bool // what the filter does not say; nil for nothing
	columns []runColumn
	sort    func(a, b spool.Info) int // nil keeps the order: newest first
	format  *template.Template
}

func newRunList(a *app, o psOptions) (*runList, error) {
	if o.last < 0 {
		return nil, usageErrorf("--last must not be negative")
	}
	if o.limit < 0 {
		return nil, usageErrorf("--limit must not be negative")
	}
	if o.last == 0 {
		o.last = o.limit
	}
	l := &runList{app: a, options: o}
	var err error
	if l.filter, l.match, err = parseFilters(o.filter); err != nil {
		return nil, err
	}
	if err := l.filterBy(&o); err != nil {
		return nil, err
	}
	l.filter.Live = l.filter.Live || o.live
	l.filter.Waiting = l.filter.Waiting || o.waiting
	names := o.columns
	if len(names) == 0 {
		names = []string{"id", "name", "status", "age", "bytes", "command"}
	}
	for _, name := range names {
		c, err := columnNamed(name)
		if err != nil {
			return nil, err
		}
		l.columns = append(l.columns, c)
	}
	if o.sort != "" {
		name, reverse := strings.CutPrefix(o.sort, "-")
		c, err := columnNamed(name)
		if err != nil {
			return nil, err
		}
		l.sort = func(a, b spool.Info) int {
			if reverse {
				return c.compare(&b, &a)
			}
			return c.compare(&a, &b)
		}
	}
	if o.format != "" {
		if l.format, err = newFormat(o.format); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// filterBy adds what the flags for one property each select.
func (l *runList) filterBy(o *psOptions) error {
	f := &l.filter
	if o.name != "" {
		f.Name = o.name
	}
	if o.engine != "" {
		if err := checkEngine(o.engine); err != nil {
			return err
		}
		f.Engine = o.engine
	}
	for _, label := range o.labels {
		key, value, ok := strings.Cut(label, "=")
		if key == "" {
			return usageErrorf("--label %q: use key=value, or a key", label)
		}
		if !ok {
			f.HasLabels = append(f.HasLabels, key)
			continue
		}
		if f.Labels == nil {
			f.Labels = make(map[string]string)
		}
		f.Labels[key] = value
	}
	f.Outcome, f.Oldest = spool.OutcomeKind(o.outcome), o.oldest
	f.Since, f.Before = o.since.Time, o.before.Time
	if err := f.Check(); err != nil {
		return usageErrorf("%v", err)
	}
	l.chosen = len(o.filter) > 0 || o.engine != "" || o.name != "" || len(o.labels) > 0 ||
		o.outcome != "" || o.oldest || !o.since.IsZero() || !o.before.IsZero()
	return nil
}

// runs returns the runs to show, and how many it leaves out.
func (l *runList) runs(ctx context.Context, b spool.Backend) (runs []spool.Info, hidden int, err error) {
	if l.options.all || l.options.last > 0 || l.chosen || l.filter.Live {
		runs, err = l.list(ctx, b, l.filter, l.options.last)
	} else {
		runs, hidden, err = l.recent(ctx, b)
	}
	if l.sort != nil {
		slices.SortStableFunc(runs, l.sort)
	}
	return runs, hidden, err
}

// recent returns the live runs and the finished ones that are newest, and how many
// finished ones it leaves out.
func (l *runList) recent(ctx context.Context, b spool.Backend) (runs []spool.Info, hidden int, err error) {
	// In this order: a run that ends meanwhile is in both lists.
	runs, err = l.list(ctx, b, spool.Filter{Live: true}, 0)
	if err != nil {
		return nil, 0, err
	}
	live := make(map[spool.RunID]bool, len(runs))
	for _, info := range runs {
		live[info.ID] = true
	}
	finished, err := l.list(ctx, b, spool.Filter{State: spool.StateClosed}, recentRuns+1)
	if err != nil {
		return nil, 0, err
	}
	if len(finished) > recentRuns {
		finished, hidden = finished[:recentRuns], 1
		if counter, ok := b.(spool.Counter); ok {
			counts, err := counter.Count(ctx, spool.Filter{State: spool.StateClosed})
			if err != nil {
				return nil, 0, err
			}
			hidden = max(hidden, counts[spool.StateClosed]-recentRuns)
		}
	}
	finished = slices.DeleteFunc(finished, func(info spool.Info) bool { return live[info.ID] })
	runs = append(runs, finished...)
	slices.SortFunc(runs, func(a, b spool.Info) int { return l.filter.Compare(&a, &b) })
	return runs, hidden, nil
}

// list returns the runs that a filter selects, as many as last; zero means all.
func (l *runList) list(ctx context.Context, b spool.Backend, f spool.Filter, last int) (runs []spool.Info, err error) {
	if l.match == nil { // otherwise some that are listed may not match
		f.Limit = last
	}
	f.Brief = l.options.quiet && l.match == nil && l.sort == nil
	for info, err := range b.List(ctx, f) {
		if err != nil {
			if ctx.Err() != nil || info.ID == "" && len(runs) == 0 && isLost(err) {
				return nil, err
			}
			// Continue with the other runs.
			fmt.Fprintf(l.app.stderr, "spool: ps: %v\n", err)
			continue
		}
		if l.match != nil && !l.match(&info) {
			continue
		}
		if runs = append(runs, info); len(runs) == last {
			break
		}
	}
	return runs, nil
}

// text returns the list, in a table of at most cols columns of a terminal. Zero
// means no maximum.
func (l *runList) text(ctx context.Context, b spool.Backend, cols int, coloured bool) (string, int, error) {
	runs, hidden, err := l.runs(ctx, b)
	if err != nil {
		return "", 0, err
	}
	text, err := l.show(runs, cols, coloured)
	if l.options.json {
		hidden = 0
	}
	return text, hidden, err
}

// show returns runs as text.
func (l *runList) show(runs []spool.Info, cols int, coloured bool) (string, error) {
	var out bytes.Buffer
	switch {
	case l.options.json:
		for i := range runs {
			out.Write(append(runs[i].AppendJSON(nil), '\n'))
		}
	case l.options.quiet:
		for _, info := range runs {
			fmt.Fprintln(&out, info.ID)
		}
	case l.format != nil:
		for i := range runs {
			if err := formatRun(&out, l.format, &runs[i]); err != nil {
				return "", err
			}
		}
	default:
		out.WriteString(l.table(runs, time.Now(), coloured).text(cols))
	}
	return out.String(), nil
}

func (l *runList) table(runs []spool.Info, now time.Time, coloured bool) *table {
	t := &table{}
	status := -1
	for c, col := range l.columns {
		t.columns = append(t.columns, col.column)
		if col.name == "status" {
			status = c
		}
	}
	for i := range runs {
		row := make([]string, len(l.columns))
		for c, col := range l.columns {
			row[c] = plain(col.text(&runs[i], now))
		}
		t.rows = append(t.rows, row)
	}
	if coloured {
		t.colour = func(row, col int) string {
			if col != status {
				return ""
			}
			return stateColour(runs[row])
		}
	}
	return t
}

// lifetime is how long a run has lived.
func lifetime(i *spool.Info, now time.Time) time.Duration {
	if !i.Ended.IsZero() {
		now = i.Ended
	}
	return now.Sub(i.Created)
}

func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(time.DateTime)
}

// formatNumber formats a number that is not shown if it is zero.
func formatNumber(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func labelsText(labels map[string]string) string {
	var pairs []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, k+"="+labels[k])
	}
	return strings.Join(pairs, ",")
}

func shorten(id string) string {
	if len(id) > shortID {
		return id[:shortID]
	}
	return id
}

// commandColumn returns the command of a run, the first line of its last code or
// prompt, or its engine and directory.
func commandColumn(info spool.Info) string {
	switch {
	case info.Engine == spool.EngineProcess:
	case info.Title != "":
		return info.Title
	case len(info.Argv) == 0:
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

// stateText returns the outcome of a run or of its last turn, or its state if it
// has no outcome.
func stateText(info spool.Info) string {
	switch {
	case info.State != spool.StateClosed && info.Outcome != nil:
		return outcomeText(*info.Outcome) + ", streams open"
	case info.Outcome != nil && turnCounts(info):
		return string(info.TurnOutcome)
	case info.Outcome != nil:
		return outcomeText(*info.Outcome)
	}
	if info.Asks != nil {
		return string(info.State) + ", asks"
	}
	return string(info.State)
}

// turnCounts reports whether the outcome of the last turn says more than that of
// the run: an interpreter that raised exits with 0.
func turnCounts(info spool.Info) bool {
	return info.TurnOutcome != "" && info.Outcome != nil && info.Outcome.Kind == spool.Exited && info.Outcome.Code == 0
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
	case info.Outcome.ExitCode() != 0, turnCounts(info) && info.TurnOutcome != spool.TurnOK:
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
