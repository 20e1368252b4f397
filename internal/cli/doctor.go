package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/doctor"
)

// doctorOptions are the flags of spool doctor that are not about a URL.
type doctorOptions struct {
	json    bool
	timeout time.Duration // of each check; zero is its own
	against []string      // commands of other programs
}

func (a *app) doctorCommand() *cobra.Command {
	var o doctorOptions
	var at urlDoctor
	cmd := &cobra.Command{
		Use:   "doctor [flags] [CHECK…]",
		Short: "Check what protects this machine and what does not",
		Long: `Doctor tries everything that Spool relies on: it kills a process tree, starts
children in namespaces, under Landlock and under a system call filter and has
them do what they must not, locks and writes a file in the state directory, asks
your servers for a connection without a token, connects to keepers, and runs
Python in a kernel and in a sandbox. It also checks who can read and change the
state directory and token files. It leaves nothing behind and changes no setting.
CHECK is the name of a check or of a group of checks; without any, all are done.

Each line has a verdict, what it means, and the next step:
  ok       it works, and is as it should be
  warning  something is weaker, missing or wasted; what Spool promises still holds
  problem  something that Spool promises cannot be held

"spool doctor isolation" also has a process try to escape from each profile of
"spool run --isolate" and prints each attempt with the error that it got. With
--against it makes the same attempts in a command of another program, which is
given the program to run at its end, and the directory that may be written to in
$WORKSPACE.

With --url it checks a server over HTTP instead, from here, with the token of --token-file:
its name, TLS, whether it knows its name, and what is on the way. Proxies that hold
streams back, compress them, cut requests that wait or refuse large bodies are named where
they name themselves, with the line of configuration that helps. --deep also finds out
how long a silent stream lasts, which takes eight minutes.

With --json it prints one JSON object per line, one line per finding, with group,
check, verdict, text, next and elapsed_ms; then one line per profile, with name,
mechanism or refused, and attempts.

Exit codes: 0 if there is no problem, also with warnings; 1 if there is one.`,
		Example: `  spool doctor
  spool doctor state network
  spool --state /srv/spool doctor
  spool doctor isolation
  spool doctor isolation --against 'bwrap --ro-bind / / --dev /dev --bind $WORKSPACE $WORKSPACE --unshare-all'
  spool --token-file t doctor --url https://spool.example.com
  spool doctor --json | grep '"verdict":"problem"'`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: completeChecks,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.timeout < 0 {
				return usageErrorf("--timeout must not be negative")
			}
			if at.url != "" {
				return a.doctorURL(cmd.Context(), args, at, o)
			}
			if at.deep {
				return usageErrorf("--deep needs --url")
			}
			return a.doctor(cmd.Context(), args, o)
		},
	}
	cmd.Flags().StringVar(&at.url, "url", "", "check the server at this `URL`, and what is on the way to it")
	cmd.Flags().BoolVar(&at.deep, "deep", false, "with --url: also how long a silent stream lasts")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 0, "`time` that each check may take, on a slow machine (default 30s, more for checks that take long)")
	cmd.Flags().BoolVar(&o.json, "json", false, "print one JSON object per line")
	cmd.Flags().StringArrayVar(&o.against, "against", nil, "make the attempts to escape in this `command` of another program, too; with isolation")
	return cmd
}

// completeChecks completes the names of checks and groups.
func completeChecks(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	for _, c := range doctor.Checks(doctor.Options{}) {
		for _, n := range []string{c.Group, c.Name} {
			if !slices.Contains(names, n) && !slices.Contains(args, n) {
				names = append(names, n)
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// runChecks runs checks and prints what they find.
func (a *app) runChecks(ctx context.Context, checks []doctor.Check, o doctorOptions) error {
	if o.timeout > 0 {
		for i := range checks {
			checks[i].Deadline = o.timeout
		}
	}
	ctx, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM)
	defer stop()
	size, _ := terminalSize(a.stdout)
	p := &findingPrinter{a: a, json: o.json, cols: int(size.Cols), coloured: colour(a.stdout)}
	p.live = !o.json && colour(a.stderr)
	for f := range doctor.Run(ctx, checks, p.running) {
		if err := p.print(f); err != nil {
			return &writeError{err}
		}
	}
	return p.end(ctx)
}

func (a *app) doctor(ctx context.Context, names []string, o doctorOptions) error {
	if url, ok := a.remote(); ok {
		return usageErrorf("cannot check %s: doctor works only on this machine", url)
	}
	dir, err := a.stateDir()
	if err != nil {
		return err
	}
	matrix := slices.Contains(names, "isolation") || slices.Contains(names, "profiles")
	if len(o.against) > 0 && !matrix {
		return usageErrorf("--against needs the checks of isolation: spool doctor isolation --against …")
	}
	var escapes []doctor.Escape // in the order of the profiles: one check makes them
	options := doctor.Options{Dir: dir, TokenFile: a.tokenFile, Against: o.against, Escaped: func(e doctor.Escape) { escapes = append(escapes, e) }}
	checks, err := doctor.Select(doctor.Checks(options), names)
	if err != nil {
		return &usageError{err}
	}
	if err := a.runChecks(ctx, checks, o); err != nil || !matrix {
		return err
	}
	if o.json {
		for _, e := range escapes {
			if err := a.printJSON(e); err != nil {
				return err
			}
		}
		return nil
	}
	return a.printEscapes(escapes)
}

// printEscapes prints a table: what was tried, and what came of it where.
func (a *app) printEscapes(escapes []doctor.Escape) error {
	var names []string
	cells := make(map[string][]string)
	head := []string{"ATTEMPT"}
	var notes []string
	for i, e := range escapes {
		title := e.Name
		if strings.ContainsRune(title, ' ') {
			title, _, _ = strings.Cut(title, " ")
		}
		head = append(head, title)
		if e.Refused != "" {
			notes = append(notes, fmt.Sprintf("%s: %s", e.Name, e.Refused))
		}
		for _, attempt := range e.Attempts {
			name := fmt.Sprintf("%-3s%s", attempt.Guarantee, attempt.Name)
			if cells[name] == nil {
				names = append(names, name)
				cells[name] = make([]string, len(escapes))
			}
			if cells[name][i] = attempt.Errno; attempt.Escaped {
				cells[name][i] = "succeeded"
			}
		}
	}
	rows := [][]string{head}
	for _, name := range names {
		row := []string{name}
		for i, cell := range cells[name] {
			switch {
			case cell != "":
			case escapes[i].Refused != "":
				cell = "refused"
			default:
				cell = "-"
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	widths := make([]int, len(head))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	b.WriteByte('\n')
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			fmt.Fprintf(&line, "%-*s  ", widths[i], cell)
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	for _, note := range notes {
		b.WriteString(plain(note) + "\n")
	}
	_, err := fmt.Fprint(a.stdout, b.String())
	return err
}

// findingPrinter prints findings, and the running checks below them on a
// terminal.
type findingPrinter struct {
	a        *app
	json     bool
	cols     int // zero if stdout is no terminal: lines are not wrapped
	coloured bool
	live     bool // show the running checks on stderr

	group  string // of the last finding
	counts map[doctor.Verdict]int

	mu    sync.Mutex
	names []string // of the running checks
	shown bool     // stderr shows them
}

// running shows the names of the running checks.
func (p *findingPrinter) running(names []string) {
	if !p.live {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.names = slices.Clone(names)
	p.show()
}

// show shows the running checks below the findings. The caller holds mu.
func (p *findingPrinter) show() {
	p.clear()
	if p.live && len(p.names) > 0 {
		size, _ := terminalSize(p.a.stderr)
		fmt.Fprint(p.a.stderr, cut("checking "+strings.Join(p.names, ", ")+" …", max(int(size.Cols)-1, 20)))
		p.shown = true
	}
}

// clear removes the names of the running checks. The caller holds mu.
func (p *findingPrinter) clear() {
	if p.shown {
		fmt.Fprint(p.a.stderr, "\r\x1b[K")
		p.shown = false
	}
}

const (
	verdictWidth = len("warning") + 2
	checkWidth   = len("embedded sandbox") + 2
)

// print prints one finding.
func (p *findingPrinter) print(f doctor.Finding) error {
	if p.counts == nil {
		p.counts = make(map[doctor.Verdict]int)
	}
	p.counts[f.Verdict]++
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	defer p.show()
	if p.json {
		enc := json.NewEncoder(p.a.stdout)
		enc.SetEscapeHTML(false)
		return enc.Encode(f)
	}
	var b strings.Builder
	if f.Group != p.group {
		p.group = f.Group
		fmt.Fprintln(&b, f.Group)
	}
	verdict := fmt.Sprintf("%-*s", verdictWidth, f.Verdict)
	if p.coloured {
		verdict = verdictColour(f.Verdict) + verdict + "\x1b[0m"
	}
	fmt.Fprintf(&b, "  %s%-*s", verdict, checkWidth, f.Check)
	p.wrap(&b, plain(f.Text))
	if f.Next != "" {
		b.WriteString(strings.Repeat(" ", 2+verdictWidth+checkWidth))
		p.wrap(&b, "next: "+plain(f.Next))
	}
	_, err := fmt.Fprint(p.a.stdout, b.String())
	return err
}

// wrap writes text, in lines that fit the terminal, below the column where it
// begins.
func (p *findingPrinter) wrap(b *strings.Builder, text string) {
	const indent = 2 + verdictWidth + checkWidth
	width := max(p.cols-indent, 20)
	used := 0
	for word := range strings.FieldsSeq(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case used == 0:
		case p.cols > 0 && used+1+n > width:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			used = 0
		default:
			b.WriteByte(' ')
			used++
		}
		b.WriteString(word)
		used += n
	}
	b.WriteByte('\n')
}

func verdictColour(v doctor.Verdict) string {
	switch v {
	case doctor.OK:
		return "\x1b[32m" // green
	case doctor.Warning:
		return "\x1b[33m" // yellow
	}
	return "\x1b[31m" // red
}

// end prints the numbers and returns the error of the command.
func (p *findingPrinter) end(ctx context.Context) error {
	p.mu.Lock()
	p.clear()
	p.mu.Unlock()
	if ctx.Err() != nil {
		return errors.New("interrupted: not all was checked")
	}
	problems := p.counts[doctor.Problem]
	if !p.json {
		if _, err := fmt.Fprintf(p.a.stdout, "\n%d ok, %d %s, %d %s\n", p.counts[doctor.OK],
			p.counts[doctor.Warning], plural(p.counts[doctor.Warning], "warning"), problems, plural(problems, "problem")); err != nil {
			return &writeError{err}
		}
	}
	if problems > 0 {
		return &exitError{exitFailure, fmt.Errorf("%d %s: what Spool promises cannot be held", problems, plural(problems, "problem"))}
	}
	return nil
}

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}
