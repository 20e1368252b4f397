package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"regexp"
	"strconv"
	"sync"

	"github.com/spf13/cobra"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
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
	flags.BoolVar(&o.timestamps, "timestamps", false, "print the time before every line")
	flags.IntVarP(&o.tail, "tail", "n", -1, "print only this `number` of lines from the end")
	flags.Lookup("tail").DefValue = ""
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
			return usageErrorf("--grep: %v", err)
		}
	}
	return nil
}

// logReader reads the log of one run for logs.
type logReader struct {
	run     *spool.Run
	options *logsOptions
	printer *printer
	lines   *lineFilter // nil if the output is printed unchanged
	after   spool.Seq
	last    spool.Seq // the last event of the log at the beginning
	turn    spool.Seq // print only this turn, if it is not zero
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

// begin finds where to start in the log.
func (r *logReader) begin(ctx context.Context) error {
	info, err := r.run.Info(ctx)
	if err != nil {
		return err
	}
	r.after, r.last = spool.Seq(r.options.after), info.Last
	r.printer.isAgent = info.Engine == agent.Engine
	if since := r.options.since; !since.IsZero() {
		// The times of a log do not go back: search for the first event.
		low, high := r.after, r.last
		for low < high {
			middle := low + (high-low)/2
			page, err := r.run.Read(ctx, spool.Query{After: middle, MaxBytes: 1})
			if err != nil {
				return err
			}
			if len(page.Events) == 0 || !page.Events[0].Time.Before(since.Time) {
				high = middle
			} else {
				low = max(page.Events[0].Seq, middle+1)
			}
		}
		r.after = low
	}
	switch r.options.turn {
	case "":
		return nil
	case "last":
		if err := r.findLastTurn(ctx); err != nil {
			return err
		}
	default:
		n, err := strconv.ParseUint(r.options.turn, 10, 64)
		if err != nil {
			return err
		}
		r.turn = spool.Seq(n)
		if !r.options.follow && r.turn > r.last {
			return fmt.Errorf("run %s has no turn %d yet", r.run.ID(), r.turn)
		}
	}
	r.after = max(r.after, r.turn-1)
	return nil
}

// findLastTurn finds the turn that began last.
func (r *logReader) findLastTurn(ctx context.Context) error {
	for back := spool.Seq(256); ; back *= 16 {
		from := spool.Seq(0)
		if r.last > back {
			from = r.last - back
		}
		err := eachEvent(ctx, r.run, from, r.last, func(e *spool.Event) error {
			if e.Turn > r.turn {
				r.turn = e.Turn
			}
			return nil
		})
		switch {
		case err != nil || r.turn > 0:
			return err
		case from == 0:
			return fmt.Errorf("run %s has no turns", r.run.ID())
		}
	}
}

// read prints the log of one run.
func (r *logReader) read(ctx context.Context) error {
	if r.options.tail >= 0 {
		if err := r.readTail(ctx); err != nil {
			return err
		}
	} else if !r.options.follow {
		return r.history(ctx)
	}
	if !r.options.follow {
		return nil
	}
	return r.followLog(ctx)
}

// tailEvents is how many events from the end are first searched for the last
// lines.
const tailEvents = 256

// readTail prints the last lines of the log. It reads the log from near its end,
// and from further back if there are too few lines.
func (r *logReader) readTail(ctx context.Context) error {
	first := r.after
	for back := spool.Seq(tailEvents); ; back *= 16 {
		r.after = first
		if r.last > first && r.last-first > back {
			r.after = r.last - back
		}
		start := r.after
		r.lines.reset(r.after > first)
		p := r.printer
		r.printer = &printer{stdout: p.stdout, stderr: p.stderr, blobs: p.blobs, json: p.json, only: p.only, timestamps: p.timestamps,
			isAgent: p.isAgent, live: p.live, verbose: p.verbose}
		if err := r.history(ctx); err != nil {
			return err
		}
		if start == first || r.lines.full() {
			break
		}
	}
	r.after = max(r.after, r.last)
	return r.lines.flush()
}

// history prints the events that the log holds at the beginning. It ignores
// events that arrive meanwhile: a live run may write faster than they are
// printed.
func (r *logReader) history(ctx context.Context) error {
	err := eachEvent(ctx, r.run, r.after, r.last, func(e *spool.Event) error { return r.print(ctx, e) })
	if errors.Is(err, errUntil) {
		err = nil
	}
	if err == nil && r.lines != nil && !r.options.follow && r.lines.keep < 0 {
		err = r.lines.end()
	}
	return err
}

// errUntil ends reading at --until.
var errUntil = errors.New("until")

// print prints an event that the flags select.
func (r *logReader) print(ctx context.Context, e *spool.Event) error {
	r.after = e.Seq
	if until := r.options.until; !until.IsZero() && e.Time.After(until.Time) {
		return errUntil
	}
	if r.turn > 0 && e.Turn != r.turn && e.Seq != r.turn {
		return nil
	}
	if err := r.printer.print(ctx, e); err != nil {
		return &writeError{err}
	}
	return nil
}

// followLog prints events until the run has finished.
func (r *logReader) followLog(ctx context.Context) error {
	for e, err := range r.run.Stream(ctx, r.after) {
		if err != nil {
			return err
		}
		if o, ok := e.Outcome(); ok && e.Seq == 0 { // not in the log: the connection is lost
			return &lostError{o.Reason}
		}
		if err := r.print(ctx, &e); err != nil {
			return err
		}
		if r.turn > 0 && e.Kind == spool.KindDone && e.Turn == r.turn {
			break
		}
	}
	if r.lines != nil {
		return r.lines.end()
	}
	return nil
}

// printMerged prints what several logs hold now, in the order of time.
func printMerged(ctx context.Context, readers []*logReader) error {
	type source struct {
		reader *logReader
		next   func() (spool.Event, error, bool)
		event  spool.Event
	}
	var sources []*source
	for _, r := range readers {
		if r.lines.keep >= 0 { // the last lines of each run
			if err := r.readTail(ctx); err != nil {
				return err
			}
			continue
		}
		next, stop := iter.Pull2(r.events(ctx))
		defer stop()
		s := &source{reader: r, next: next}
		sources = append(sources, s)
	}
	advance := func(i int) error {
		e, err, ok := sources[i].next()
		if err != nil {
			return err
		}
		if !ok {
			if !sources[i].reader.options.follow {
				err = sources[i].reader.lines.end()
			}
			sources[i] = nil
			return err
		}
		sources[i].event = e
		return nil
	}
	for i := range sources {
		if err := advance(i); err != nil {
			return err
		}
	}
	for {
		first := -1
		for i, s := range sources {
			if s != nil && (first < 0 || s.event.Time.Before(sources[first].event.Time)) {
				first = i
			}
		}
		if first < 0 {
			return nil
		}
		s := sources[first]
		err := s.reader.print(ctx, &s.event)
		if errors.Is(err, errUntil) {
			sources[first] = nil
			err = s.reader.lines.end()
		} else if err == nil {
			err = advance(first)
		}
		if err != nil {
			return err
		}
	}
}

// events yields what the log holds at the beginning.
func (r *logReader) events(ctx context.Context) iter.Seq2[spool.Event, error] {
	return func(yield func(spool.Event, error) bool) {
		errStop := errors.New("stop")
		err := eachEvent(ctx, r.run, r.after, r.last, func(e *spool.Event) error {
			if !yield(*e, nil) {
				return errStop
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStop) {
			yield(spool.Event{}, err)
		}
	}
}

// followAll follows several logs at once. The first error ends all.
func followAll(ctx context.Context, readers []*logReader) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for _, r := range readers {
		wg.Go(func() {
			if err := r.followLog(ctx); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// maxLine is the largest line that is held back; the rest of a longer one is
// printed as further lines.
const maxLine = 1 << 20

// lineFilter prints whole lines: with a prefix, only those that match a pattern,
// only the last ones.
type lineFilter struct {
	shared  *sync.Mutex // held while a line is written
	prefix  string
	pattern *regexp.Regexp // nil matches every line
	keep    int            // hold back the last lines, this many; negative prints all at once

	writers []*lineWriter
	held    []heldLine // a ring of the last lines, if keep is not negative
	count   int        // lines that matched
	partial bool       // reading began within the log: the first line may be a part of one
}

type heldLine struct {
	w    io.Writer
	line []byte
}

// lineWriter is one stream of a lineFilter.
type lineWriter struct {
	filter *lineFilter
	w      io.Writer
	line   []byte // the beginning of a line
}

// to returns a writer whose lines pass the filter to w.
func (f *lineFilter) to(w io.Writer) io.Writer {
	lw := &lineWriter{filter: f, w: w}
	f.writers = append(f.writers, lw)
	return lw
}

// Write implements [io.Writer].
func (w *lineWriter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		i := indexEnd(p)
		w.line = append(w.line, p[:i]...)
		p = p[i:]
		if w.line[len(w.line)-1] == '\n' || len(w.line) >= maxLine {
			if err := w.pass(); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

// indexEnd returns where the first line of p ends.
func indexEnd(p []byte) int {
	for i, c := range p {
		if c == '\n' {
			return i + 1
		}
	}
	return len(p)
}

// pass prints the line that is complete, or holds it back.
func (w *lineWriter) pass() error {
	f := w.filter
	line := w.line
	w.line = w.line[:0]
	text := line
	if n := len(text); n > 0 && text[n-1] == '\n' {
		text = text[:n-1]
	}
	if f.pattern != nil && !f.pattern.Match(text) {
		return nil
	}
	f.count++
	if f.keep < 0 {
		return f.write(w.w, line)
	}
	if f.keep == 0 {
		return nil
	}
	held := heldLine{w.w, append([]byte(nil), line...)}
	if len(f.held) < f.keep {
		f.held = append(f.held, held)
	} else {
		f.held[(f.count-1)%f.keep] = held
	}
	return nil
}

func (f *lineFilter) write(w io.Writer, line []byte) error {
	f.shared.Lock()
	defer f.shared.Unlock()
	if f.prefix != "" {
		line = append([]byte(f.prefix), line...)
	}
	if n := len(line); n > 0 && line[n-1] != '\n' && f.prefix != "" {
		line = append(line, '\n')
	}
	_, err := w.Write(line)
	return err
}

// reset forgets the lines so far. Partial says that reading begins within the
// log.
func (f *lineFilter) reset(partial bool) {
	f.held, f.count, f.partial = nil, 0, partial
	for _, w := range f.writers {
		w.line = w.line[:0]
	}
}

// full reports whether enough whole lines are held back.
func (f *lineFilter) full() bool {
	n := f.count
	for _, w := range f.writers {
		if len(w.line) > 0 {
			n++
		}
		if f.partial { // the first line of each stream may be a part of one
			n--
		}
	}
	return n >= f.keep
}

// flush prints the lines that were held back, and holds back none from then on.
func (f *lineFilter) flush() error {
	for _, w := range f.writers {
		if len(w.line) > 0 {
			if err := w.pass(); err != nil {
				return err
			}
		}
	}
	keep := f.keep
	f.keep = -1
	for i := range f.held {
		h := f.held[i]
		if len(f.held) == keep {
			h = f.held[(f.count+i)%keep]
		}
		if err := f.write(h.w, h.line); err != nil {
			return &writeError{err}
		}
	}
	f.held = nil
	return nil
}

// end prints the rest of lines without an end.
func (f *lineFilter) end() error {
	for _, w := range f.writers {
		if len(w.line) == 0 {
			continue
		}
		if err := w.pass(); err != nil {
			return &writeError{err}
		}
	}
	return nil
}
