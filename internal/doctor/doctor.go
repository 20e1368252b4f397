// Package doctor finds out what protects this machine and what does not.
//
// A check tries a mechanism, or looks at what is there, and ends with findings:
// a verdict, what it means, and the next step. The checks of one subject are in
// one file; [Checks] lists all of them.
package doctor

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spool-run/spool/internal/isolate"
)

// A Verdict is how good a finding is.
type Verdict string

// The verdicts.
const (
	OK      Verdict = "ok"      // works, and is as it should be
	Warning Verdict = "warning" // something is weaker, missing or wasted
	Problem Verdict = "problem" // something that Spool promises cannot be held
)

// Finding is one result of a check.
type Finding struct {
	Group   string  `json:"group"` // the subject, such as "state"
	Check   string  `json:"check"` // such as "permissions"
	Verdict Verdict `json:"verdict"`
	Text    string  `json:"text"`           // what was found and what it means
	Next    string  `json:"next,omitempty"` // the next step; never empty unless the verdict is ok
	// ElapsedMs is how long the check took. All findings of one check have the
	// same.
	ElapsedMs int64 `json:"elapsed_ms"`
}

func ok(format string, args ...any) Finding {
	return Finding{Verdict: OK, Text: fmt.Sprintf(format, args...)}
}

func warning(next, format string, args ...any) Finding {
	return Finding{Verdict: Warning, Text: fmt.Sprintf(format, args...), Next: next}
}

func problem(next, format string, args ...any) Finding {
	return Finding{Verdict: Problem, Text: fmt.Sprintf(format, args...), Next: next}
}

// nextLate is the next step after a check that took too long.
const nextLate = "look at what the machine is busy with, or give it longer with --timeout, and run spool doctor again"

// DefaultDeadline is how long a check may take that names no deadline.
const DefaultDeadline = 30 * time.Second

// Check is one thing that is checked.
type Check struct {
	Group, Name string
	Deadline    time.Duration // zero means [DefaultDeadline]
	// Try returns at least one finding. It leaves Group, Check and ElapsedMs
	// to [Run].
	Try func(context.Context) []Finding
}

// one makes a Try of a function with one finding.
func one(f func(context.Context) Finding) func(context.Context) []Finding {
	return func(ctx context.Context) []Finding { return []Finding{f(ctx)} }
}

// Options say what is checked.
type Options struct {
	Dir       string // the state directory
	TokenFile string // a file with a token of the user; may be empty
	// Against are commands of other programs that isolate, to be compared
	// with the profiles of Spool.
	Against []string
	// Escaped, if it is not nil, is called with what the attempts to escape
	// came to, for each profile and each command of Against.
	Escaped func(Escape)
}

// Escape is what the attempts to escape from an isolation came to.
type Escape = isolate.Result

// Checks returns all checks of this machine, in the order of their subjects.
func Checks(o Options) []Check {
	var all []Check
	for _, group := range []struct {
		name   string
		checks []Check
	}{
		{"processes", processChecks()},
		{"isolation", isolationChecks(o)},
		{"state", stateChecks(o)},
		{"keepers", keeperChecks(o)},
		{"network", networkChecks(o)},
		{"programs", programChecks()},
	} {
		for _, c := range group.checks {
			c.Group = group.name
			all = append(all, c)
		}
	}
	return all
}

// Select returns the checks with some names or of some groups, all if there are
// no names.
func Select(checks []Check, names []string) ([]Check, error) {
	if len(names) == 0 {
		return checks, nil
	}
	var selected []Check
	used := make(map[string]bool)
	for _, c := range checks {
		if slices.Contains(names, c.Name) || slices.Contains(names, c.Group) {
			selected = append(selected, c)
		}
		used[c.Name], used[c.Group] = true, true
	}
	for _, n := range names {
		if !used[n] {
			return nil, fmt.Errorf("no check or group %q; there are: %s", n, strings.Join(slices.Sorted(maps.Keys(used)), ", "))
		}
	}
	return selected, nil
}

// concurrent is how many checks run at once. Most of them wait for children.
const concurrent = 4

// Run runs checks and yields their findings in the order of the checks. Begun is
// called, by one goroutine at a time, with the checks that are running whenever
// that changes; it may be nil.
func Run(ctx context.Context, checks []Check, begun func(running []string)) iter.Seq[Finding] {
	return func(yield func(Finding) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		p := progress{begun: begun}
		results := make([]chan []Finding, len(checks))
		free := make(chan struct{}, concurrent)
		var wg sync.WaitGroup
		defer wg.Wait()
		for i := range checks {
			results[i] = make(chan []Finding, 1)
		}
		wg.Go(func() {
			for i, c := range checks {
				select {
				case free <- struct{}{}:
				case <-ctx.Done():
					return
				}
				wg.Go(func() {
					p.begin(c.Name)
					results[i] <- c.run(ctx)
					p.end(c.Name)
					<-free
				})
			}
		})
		for _, r := range results {
			select {
			case list := <-r:
				for _, f := range list {
					if !yield(f) {
						return
					}
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

// run tries one check until its deadline. A check that does not end with its
// context, because it waits for a file system that does not answer, is left
// behind: nothing can end such a wait.
func (c Check) run(ctx context.Context) []Finding {
	limit := c.Deadline
	if limit == 0 {
		limit = DefaultDeadline
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	result := make(chan []Finding, 1)
	go func() { result <- c.Try(ctx) }()
	var list []Finding
	select {
	case list = <-result:
	case <-ctx.Done():
		select {
		case list = <-result: // it ended with the context
		case <-time.After(time.Second):
			list = []Finding{problem(nextLate, "no result after %v", limit)}
		}
	}
	for i := range list {
		list[i].Group, list[i].Check, list[i].ElapsedMs = c.Group, c.Name, time.Since(began).Milliseconds()
	}
	return list
}

// progress keeps the names of the checks that are running.
type progress struct {
	begun func([]string)

	mu      sync.Mutex
	running []string
}

func (p *progress) begin(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = append(p.running, name)
	p.tell()
}

func (p *progress) end(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, r := range p.running {
		if r == name {
			p.running = append(p.running[:i:i], p.running[i+1:]...)
			break
		}
	}
	p.tell()
}

func (p *progress) tell() {
	if p.begun != nil {
		p.begun(p.running)
	}
}

// Worst returns the worst verdict.
func Worst(found []Finding) Verdict {
	worst := OK
	for _, f := range found {
		if f.Verdict == Problem || f.Verdict == Warning && worst == OK {
			worst = f.Verdict
		}
	}
	return worst
}

// list joins the first few texts and says how many more there are.
func list(texts []string) string {
	const most = 3
	if len(texts) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(texts[:most], ", "), len(texts)-most)
	}
	return strings.Join(texts, ", ")
}
