package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
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
	last                          int // zero means no maximum
	all, live, json, quiet, watch bool
	filter                        []string
	format, sort                  string
	columns                       []string
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
code or prompt of other runs; STATUS is the outcome of a run, or of its last turn.
BYTES is the size of the output in the log.

--filter selects runs: state (running, exited, closed, live or finished), label,
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
  spool ps --columns id,status,cwd --sort -bytes
  spool ps --format '{{.ID}} {{.Status}} {{label "team"}}'
  spool kill $(spool ps --quiet --live)`,
		Args:              usageArgs(cobra.NoArgs),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	flags := cmd.Flags()
	flags.BoolVarP(&o.all, "all", "a", false, "list every run")
	flags.IntVarP(&o.last, "last", "n", 0, "list only this `number` of runs, the newest")
	flags.BoolVar(&o.live, "live", false, "list only runs that have not finished")
	flags.BoolVar(&o.json, "json", false, "print one JSON object per line")
	flags.BoolVarP(&o.quiet, "quiet", "q", false, "print only the full ids")
	flags.StringArrayVarP(&o.filter, "filter", "f", nil, filterHelp)
	flags.StringVar(&o.format, "format", "", "print each run with this Go `template`")
	flags.StringSliceVar(&o.columns, "columns", nil, "`columns` to print, separated by commas")
	flags.StringVar(&o.sort, "sort", "", "sort by this `column`; -column for the reverse (default -created)")
	flags.BoolVarP(&o.watch, "watch", "w", false, "print the list again every second, in place")
	cmd.MarkFlagsMutuallyExclusive("all", "live")
	cmd.MarkFlagsMutuallyExclusive("all", "last")
	cmd.MarkFlagsMutuallyExclusive("json", "quiet", "format", "columns")
	cmd.MarkFlagsMutuallyExclusive("json", "watch")
	a.completeFilter(cmd)
	completeWords(cmd, "sort", columnNames())
	completeWords(cmd, "columns", columnNames())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		list, err := newRunList(a, o)
		if err != nil {
			return err
		}
		return with(a.open, cmd.Context(), func(b spool.Backend) error {
			if o.watch {
				return a.refresh(cmd.Context(), func(ctx context.Context, cols int) (string, error) {
					text, _, err := list.text(ctx, b, cols, colour(a.stdout))
					return text, err
				})
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

// runList lists runs as the flags of ps say.
type runList struct {
	app     *app
	options psOptions
	filter  spool.Filter
	match   func(*spool.Info) bool
	columns []runColumn
	sort    func(a, b spool.Info) int // nil keeps the order: newest first
	format  *template.Template
}

func newRunList(a *app, o psOptions) (*runList, error) {
	if o.last < 0 {
		return nil, usageErrorf("--last must not be negative")
	}
	l := &runList{app: a, options: o}
	var err error
	if l.filter, l.match, err = parseFilters(o.filter); err != nil {
		return nil, err
	}
	l.filter.Live = l.filter.Live || o.live
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

// runs returns the runs to show, and how many it leaves out.
func (l *runList) runs(ctx context.Context, b spool.Backend) (runs []spool.Info, hidden int, err error) {
	finished := 0
	for info, err := range b.List(ctx, l.filter) {
		if err != nil {
			if ctx.Err() != nil || info.ID == "" && len(runs) == 0 && isLost(err) {
				return nil, 0, err
			}
			// Continue with the other runs.
			fmt.Fprintf(l.app.stderr, "spool: ps: %v\n", err)
			continue
		}
		if !l.match(&info) {
			continue
		}
		if l.options.last > 0 && len(runs) == l.options.last {
			break
		}
		// A filter says what to show.
		if info.State == spool.StateClosed && !l.options.all && l.options.last == 0 && len(l.options.filter) == 0 {
			if finished++; finished > recentRuns {
				hidden++
				continue
			}
		}
		runs = append(runs, info)
	}
	if l.sort != nil {
		slices.SortStableFunc(runs, l.sort)
	}
	return runs, hidden, nil
}

// text returns the list, in a table of at most cols columns of a terminal. Zero
// means no maximum.
func (l *runList) text(ctx context.Context, b spool.Backend, cols int, coloured bool) (string, int, error) {
	runs, hidden, err := l.runs(ctx, b)
	if err != nil {
		return "", 0, err
	}
	var out bytes.Buffer
	switch {
	case l.options.json:
		for i := range runs {
			out.Write(append(runs[i].AppendJSON(nil), '\n'))
		}
		return out.String(), 0, nil
	case l.options.quiet:
		for _, info := range runs {
			fmt.Fprintln(&out, info.ID)
		}
	case l.format != nil:
		for i := range runs {
			if err := formatRun(&out, l.format, &runs[i]); err != nil {
				return "", 0, err
			}
		}
	default:
		out.WriteString(l.table(runs, time.Now(), coloured).text(cols))
	}
	return out.String(), hidden, nil
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

// runColumn is one column of a list of runs.
type runColumn struct {
	column
	name    string
	text    func(info *spool.Info, now time.Time) string
	compare func(a, b *spool.Info) int
}

func textColumn(name string, least int, text func(*spool.Info) string) runColumn {
	return runColumn{
		column: column{title: strings.ToUpper(name), least: least}, name: name,
		text:    func(i *spool.Info, _ time.Time) string { return text(i) },
		compare: func(a, b *spool.Info) int { return cmp.Compare(text(a), text(b)) },
	}
}

func numberColumn(name string, number func(*spool.Info) int64, format func(int64) string) runColumn {
	return runColumn{
		column: column{title: strings.ToUpper(name)}, name: name,
		text:    func(i *spool.Info, _ time.Time) string { return format(number(i)) },
		compare: func(a, b *spool.Info) int { return cmp.Compare(number(a), number(b)) },
	}
}

// timeColumn is a point in the life of a run.
func timeColumn(name string, at func(*spool.Info) time.Time) runColumn {
	return runColumn{
		column: column{title: strings.ToUpper(name)}, name: name,
		text:    func(i *spool.Info, _ time.Time) string { return formatTime(at(i)) },
		compare: func(a, b *spool.Info) int { return at(a).Compare(at(b)) },
	}
}

// runColumns are all columns that a list of runs can have.
var runColumns = []runColumn{
	textColumn("id", 0, func(i *spool.Info) string { return shorten(string(i.ID)) }),
	textColumn("name", 12, func(i *spool.Info) string { return i.Name }),
	textColumn("status", 12, func(i *spool.Info) string { return stateText(*i) }),
	textColumn("state", 0, func(i *spool.Info) string { return string(i.State) }),
	{
		column: column{title: "AGE"}, name: "age",
		text:    func(i *spool.Info, now time.Time) string { return formatAge(now.Sub(i.Created)) },
		compare: func(a, b *spool.Info) int { return b.Created.Compare(a.Created) },
	},
	{
		column: column{title: "TOOK"}, name: "took",
		text:    func(i *spool.Info, now time.Time) string { return formatAge(lifetime(i, now)) },
		compare: func(a, b *spool.Info) int { now := time.Now(); return cmp.Compare(lifetime(a, now), lifetime(b, now)) },
	},
	timeColumn("created", func(i *spool.Info) time.Time { return i.Created }),
	timeColumn("ended", func(i *spool.Info) time.Time { return i.Ended }),
	numberColumn("bytes", func(i *spool.Info) int64 { return i.Bytes }, formatBytes),
	numberColumn("events", func(i *spool.Info) int64 { return int64(i.Last) }, formatNumber),
	numberColumn("pid", func(i *spool.Info) int64 { return int64(i.Pid) }, formatNumber),
	textColumn("engine", 0, func(i *spool.Info) string { return i.Engine }),
	textColumn("cwd", 16, func(i *spool.Info) string { return i.Cwd }),
	textColumn("labels", 16, func(i *spool.Info) string { return labelsText(i.Labels) }),
	textColumn("owner", 0, func(i *spool.Info) string { return i.Owner }),
	textColumn("command", 8, func(i *spool.Info) string { return commandColumn(*i) }),
}

func columnNames() []string {
	names := make([]string, len(runColumns))
	for i, c := range runColumns {
		names[i] = c.name
	}
	return names
}

func columnNamed(name string) (runColumn, error) {
	name = strings.ToLower(strings.TrimSpace(name))
	for _, c := range runColumns {
		if c.name == name {
			return c, nil
		}
	}
	err := usageErrorf("unknown column %q: use %s", name, strings.Join(columnNames(), ", "))
	if near := nearest(name, columnNames()); near != "" {
		err = &hintedError{err, fmt.Sprintf("did you mean %s?", near)}
	}
	return runColumn{}, err
}

// psRow are the fields of a template of ps.
type psRow struct {
	ID, Name, Engine, Status, State, Age, Took, Created, Ended, Bytes, Events, Pid, Cwd, Labels, Owner, Command string
}

func psFields() []string {
	return []string{"ID", "Name", "Engine", "Status", "State", "Age", "Took", "Created", "Ended", "Bytes", "Events", "Pid", "Cwd", "Labels", "Owner", "Command"}
}

// newFormat parses a template. \t and \n in it are a tab and the end of a line,
// which a shell passes on as they are typed.
func newFormat(text string) (*template.Template, error) {
	text = strings.NewReplacer(`\t`, "\t", `\n`, "\n").Replace(text)
	t, err := template.New("format").Funcs(formatFuncs(&spool.Info{})).Parse(text)
	if err == nil {
		err = t.Execute(io.Discard, psRow{})
	}
	if err != nil {
		return nil, usageErrorf("--format: %s; the fields are .%s", templateError(err), strings.Join(psFields(), ", ."))
	}
	return t, nil
}

// templateError is what a template's error says, without where in this program
// it happened.
func templateError(err error) string {
	text := err.Error()
	if i := strings.LastIndex(text, ">: "); i >= 0 {
		text = text[i+len(">: "):]
	}
	text = strings.TrimPrefix(text, "template: format:")
	return strings.ReplaceAll(text, " in type cli.psRow", "")
}

func formatFuncs(info *spool.Info) template.FuncMap {
	return template.FuncMap{
		"json": func() (string, error) {
			b, err := json.Marshal(info)
			return string(b), err
		},
		"label": func(name string) string { return info.Labels[name] },
	}
}

func formatRun(w io.Writer, format *template.Template, info *spool.Info) error {
	text := make(map[string]string, len(runColumns))
	now := time.Now()
	for _, c := range runColumns {
		text[c.name] = plain(c.text(info, now))
	}
	row := psRow{
		ID: string(info.ID), Name: text["name"], Engine: text["engine"], Status: text["status"], State: text["state"],
		Age: text["age"], Took: text["took"], Created: text["created"], Ended: text["ended"], Bytes: text["bytes"],
		Events: text["events"], Pid: text["pid"], Cwd: text["cwd"], Labels: text["labels"], Owner: text["owner"], Command: text["command"],
	}
	t, err := format.Clone()
	if err != nil {
		return err
	}
	if err := t.Funcs(formatFuncs(info)).Execute(w, row); err != nil {
		return usageErrorf("--format: %s", templateError(err))
	}
	_, err = io.WriteString(w, "\n")
	return err
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
