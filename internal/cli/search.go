package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/search"
)

// searchOptions are the flags of spool search.
type searchOptions struct {
	regexp, ignoreCase, json bool
	since                    moment
	engine                   string
	labels, filter           []string
	limit                    int
	only                     spool.Stream // if set, print only hits of this stream
}

func (a *app) searchCommand() *cobra.Command {
	var o searchOptions
	cmd := &cobra.Command{
		Use:   "search [flags] TEXT [RUN…]",
		Short: "Find text in the output of runs",
		Long: `Search finds lines in the output of all runs, or of some. It prints the run, the
place in its log, and the line; the newest run comes first. With --json it prints
one JSON object per line.

A line is found even if it was written in parts, and colours do not hide text: a
line is compared without escape sequences. Of kernels, sandboxes and agents it also
searches results, exceptions and messages, as "spool logs" prints them.

The place is a seq, or seq+offset for a line that begins within an event. "spool logs
RUN --around PLACE" shows what was written before and after. With --server, the server
searches.

The exit code is 0 if a line was found, 1 if none was, and 2 on a usage error.`,
		Example: `  spool search 'connection refused'
  spool search --since 2d --engine kernel ValueError
  spool search --regexp 'took [0-9]{4,} ms' web worker
  spool search --label team=build --json 'undefined symbol'
  spool logs web --around 120+4031`,
		Args:              usageArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: a.completeRuns,
	}
	flags := cmd.Flags()
	flags.BoolVarP(&o.regexp, "regexp", "E", false, "TEXT is a regular expression")
	flags.BoolVarP(&o.ignoreCase, "ignore-case", "i", false, "ignore the case of letters")
	flags.Var(&o.since, "since", "find only what was written since this `time`, such as 2d or 15:04")
	flags.StringVar(&o.engine, "engine", "", "search only runs of this `engine`: process, kernel, sandbox or agent")
	flags.StringArrayVar(&o.labels, "label", nil, "search only runs with this label: `key=value`, or a key")
	flags.StringArrayVarP(&o.filter, "filter", "f", nil, filterHelp)
	flags.IntVarP(&o.limit, "limit", "n", 0, "stop after this `number` of lines")
	flags.BoolVar(&o.json, "json", false, "print one JSON object per line")
	a.completeFilter(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q := search.Query{Pattern: args[0], Literal: !o.regexp, IgnoreCase: o.ignoreCase}
		return with(a.open, cmd.Context(), func(b spool.Backend) error {
			return a.search(cmd.Context(), b, q, args[1:], o)
		})
	}
	return cmd
}

// search prints the lines that match a query, in the runs that the names and the
// options select.
func (a *app) search(ctx context.Context, b spool.Backend, q search.Query, names []string, o searchOptions) error {
	if o.limit < 0 {
		return usageErrorf("--limit must not be negative")
	}
	filter, match, err := o.runs()
	if err != nil {
		return err
	}
	q.Filter = filter
	if len(names) > 0 {
		for _, name := range names {
			run, err := spool.Find(ctx, b, name)
			if err != nil {
				return err
			}
			q.Runs = append(q.Runs, run.ID())
		}
	}
	p := hitPrinter{app: a, backend: b, json: o.json, colour: colour(a.stdout)}
	var errs []error
	for hit, err := range search.Find(ctx, b, q) {
		if errors.Is(err, spool.ErrInvalid) {
			return usageErrorf("%s", strings.TrimPrefix(err.Error(), "search: "+spool.ErrInvalid.Error()+": "))
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if hit.Time.Before(o.since.Time) || o.only != "" && o.only != hit.Stream {
			continue
		}
		info, err := p.describe(ctx, hit.Run)
		if errors.Is(err, spool.ErrNotFound) { // it was removed meanwhile
			continue
		}
		if err != nil {
			return err
		}
		if len(names) > 0 && !filter.Match(&info) || match != nil && !match(&info) {
			continue
		}
		if err := p.print(&hit); err != nil {
			return &writeError{err}
		}
		if p.count == o.limit {
			break
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	if p.count == 0 {
		return exit(exitFailure)
	}
	return nil
}

// runs returns a filter for the backend, and a function for the rest or nil.
func (o *searchOptions) runs() (spool.Filter, func(*spool.Info) bool, error) {
	pairs := o.filter
	for _, label := range o.labels {
		if strings.Contains(label, ",") {
			return spool.Filter{}, nil, usageErrorf("--label %q has a comma: give each label its own --label", label)
		}
		pairs = append(pairs, "label="+label)
	}
	if o.engine != "" {
		pairs = append(pairs, "engine="+o.engine)
	}
	filter, match, err := parseFilters(pairs)
	filter.Since = o.since.Time
	return filter, match, err
}

// hitPrinter prints the hits of a search.
type hitPrinter struct {
	app     *app
	backend spool.Backend
	json    bool
	colour  bool
	info    spool.Info // of the run of the last hit
	count   int
}

// describe describes the run of a hit. Hits come run after run.
func (p *hitPrinter) describe(ctx context.Context, id spool.RunID) (spool.Info, error) {
	if p.info.ID == id {
		return p.info, nil
	}
	info, err := p.backend.Stat(ctx, id)
	p.info = info
	return info, err
}

func (p *hitPrinter) print(h *search.Hit) error {
	p.count++
	if p.json {
		h.Time = h.Time.Truncate(time.Microsecond)
		b, err := json.Marshal(h)
		if err != nil {
			return err
		}
		_, err = p.app.stdout.Write(append(b, '\n'))
		return err
	}
	name := ""
	if p.info.Name != "" {
		name = " (" + plain(p.info.Name) + ")"
	}
	before, match, after := plain(h.Text[:h.Start]), plain(h.Text[h.Start:h.End]), plain(h.Text[h.End:])
	if p.colour {
		match = colourError + match + colourNone
	}
	_, err := fmt.Fprintf(p.app.stdout, "%s%s %s: %s%s%s\n", shorten(string(h.Run)), name, logPlace{h.Seq, h.Offset}, before, match, after)
	return err
}
