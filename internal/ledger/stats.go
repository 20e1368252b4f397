package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spool-run/spool"
)

// Keys are what runs can be grouped by; label needs a key.
var Keys = []string{"label", "engine", "day", "name", "subject", "outcome"}

// By says how to group runs.
type By struct {
	key, label string
	zone       *time.Location
}

// ParseBy parses one of [Keys], or label=KEY. Days are those of a time zone.
func ParseBy(text string, zone *time.Location) (By, error) {
	key, label, ok := strings.Cut(text, "=")
	switch {
	case key == "label" && label == "":
		return By{}, fmt.Errorf("%w: group by %q: use label=KEY", spool.ErrInvalid, text)
	case !slices.Contains(Keys, key), ok && key != "label":
		return By{}, fmt.Errorf("%w: group by %q: use label=KEY, %s", spool.ErrInvalid, text, strings.Join(Keys[1:], ", "))
	}
	return By{key, label, zone}, nil
}

// String is the text that [ParseBy] takes.
func (b By) String() string {
	if b.key == "label" {
		return "label=" + b.label
	}
	return b.key
}

// of returns the group of a run; it is empty if the run has no such label, name or
// subject.
func (b By) of(info *spool.Info) string {
	switch b.key {
	case "label":
		return info.Labels[b.label]
	case "engine":
		return info.Engine
	case "day":
		return info.Created.In(b.zone).Format(time.DateOnly)
	case "name":
		return info.Name
	case "subject":
		return Subject(info)
	}
	return Outcome(info)
}

// Group is what several runs used. Sums are over the runs of which it is known.
type Group struct {
	Key  string `json:"key"` // empty for runs without one
	Runs int    `json:"runs"`
	Live int    `json:"live"`
	// Failed are runs that ended, and not well; Unknown those whose outcome
	// is not known; Unmeasured those that ended without a ledger.
	Failed     int   `json:"failed"`
	Unknown    int   `json:"unknown"`
	Unmeasured int   `json:"unmeasured"`
	WallMs     int64 `json:"wall_ms"`
	// Processes has the sums of processor time, and the largest peak of memory;
	// nil if nothing is known.
	Processes *spool.ProcessUse `json:"processes,omitempty"`
	Input     int64             `json:"input_bytes"`
	Output    int64             `json:"output_bytes"`
	Turns     int               `json:"turns"`
	Tokens    *spool.TokenUse   `json:"tokens,omitempty"`
	// Limits says how many runs met each limit.
	Limits map[string]int `json:"limits,omitempty"`
}

// add adds a run.
func (g *Group) add(info *spool.Info, now time.Time) {
	e := Of(info, now)
	g.Runs++
	g.Output += e.Output
	if e.WallMs != nil {
		g.WallMs += *e.WallMs
	}
	switch {
	case info.State != spool.StateClosed:
		g.Live++
	case Failed(info):
		g.Failed++
	case info.Outcome == nil || info.Outcome.Kind == spool.Unknown:
		g.Unknown++
	}
	l := e.Ledger
	if l == nil {
		if info.State == spool.StateClosed {
			g.Unmeasured++
		}
		return
	}
	g.Input += l.InputBytes
	g.Turns += l.Turns
	if p := l.Processes; p != nil {
		if g.Processes == nil {
			g.Processes = new(spool.ProcessUse)
		}
		g.Processes.UserUs += p.UserUs
		g.Processes.SystemUs += p.SystemUs
		g.Processes.PeakMemory = max(g.Processes.PeakMemory, p.PeakMemory)
	}
	if t := l.Tokens; t != nil {
		if g.Tokens == nil {
			g.Tokens = new(spool.TokenUse)
		}
		addTokens(g.Tokens, t)
	}
	for _, code := range l.Limits {
		if g.Limits == nil {
			g.Limits = make(map[string]int)
		}
		g.Limits[code]++
	}
}

func addTokens(sum, t *spool.TokenUse) {
	sum.Input += t.Input
	sum.CacheRead += t.CacheRead
	sum.CacheWrite += t.CacheWrite
	sum.Output += t.Output
	sum.Reasoning += t.Reasoning
	sum.CostUSD += t.CostUSD
	sum.Steps += t.Steps
}

// Stats is what runs used, in groups and in all.
type Stats struct {
	By     string  `json:"by"`
	Groups []Group `json:"groups"`
	Total  Group   `json:"total"` // its key is "total"
	// Unread are errors about runs that could not be read and do not count.
	Unread []error `json:"-"`
}

// Sum lists the runs that a filter selects and adds them up. Match may be nil.
// Days come in order, other groups by their number of runs.
func Sum(ctx context.Context, b spool.Backend, f spool.Filter, match func(*spool.Info) bool, by By) (*Stats, error) {
	s := &Stats{By: by.String(), Groups: []Group{}, Total: Group{Key: "total"}}
	groups := make(map[string]*Group)
	now := time.Now()
	for info, err := range b.List(ctx, f) {
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, spool.ErrClosed) || errors.Is(err, spool.ErrDenied) || info.ID == "" && s.Total.Runs == 0 {
				return nil, err
			}
			s.Unread = append(s.Unread, err)
			continue
		}
		if match != nil && !match(&info) {
			continue
		}
		key := by.of(&info)
		g := groups[key]
		if g == nil {
			g = &Group{Key: key}
			groups[key] = g
		}
		g.add(&info, now)
		s.Total.add(&info, now)
	}
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		s.Groups = append(s.Groups, *groups[key])
	}
	if by.key != "day" {
		slices.SortStableFunc(s.Groups, func(a, b Group) int { return cmp.Compare(b.Runs, a.Runs) })
	}
	return s, nil
}
