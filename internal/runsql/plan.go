package runsql

import (
	"database/sql/driver"
	"maps"
	"slices"
	"strings"
	"time"

	"modernc.org/sqlite/vtab"

	"github.com/spool-run/spool"
)

// plan is what the planner of SQLite tells a cursor, as an IdxStr: words, one for each
// argument, and flags.
type plan struct {
	oldest bool // rows in the order of the start of runs, not the reverse
	count  bool // only the state of runs is read, so that it is enough to count them
	terms  []term
}

// term is a condition on a column: its argument equals, bounds from below or bounds from
// above the value of the column.
type term struct {
	column string
	op     byte // '=', '>' or '<'
}

const (
	oldestWord = "oldest"
	countWord  = "count"
)

// noTerm is a condition that does not make the list of runs shorter.
var noTerm = term{"-", '='}

func (p plan) String() string {
	var words []string
	if p.oldest {
		words = append(words, oldestWord)
	}
	if p.count {
		words = append(words, countWord)
	}
	for _, t := range p.terms {
		words = append(words, t.column+string(t.op))
	}
	return strings.Join(words, " ")
}

func parsePlan(text string) (p plan) {
	for _, word := range strings.Fields(text) {
		switch word {
		case oldestWord:
			p.oldest = true
		case countWord:
			p.count = true
		default:
			last := len(word) - 1
			p.terms = append(p.terms, term{word[:last], word[last]})
		}
	}
	return p
}

// narrowing are the columns of each table whose conditions make the list of runs
// shorter, and the operators.
var narrowing = map[string]map[string]string{
	"runs":   {"name": "=", "engine": "=", "state": "=", "outcome": "=", "created": "<>", "ended": "<>"},
	"labels": {"key": "=", "value": "="},
	"turns":  {"began": ">", "ended": ">"},
	"asks":   {"asked": ">", "closed": ">"},
	"usage":  {"time": ">"},
}

// plan gives the conditions that make the list of runs shorter arguments, after that of
// the best, and returns them.
func (t *table) plan(info *vtab.IndexInfo, best int) plan {
	p := plan{count: t.Name == "runs" && info.ColUsed&^(1<<t.column("state")) == 0}
	if best >= 0 {
		first, ok := t.termOf(&info.Constraints[best])
		if !ok {
			first = noTerm
		}
		p.terms = append(p.terms, first)
		if info.Constraints[best].Column == 0 { // the rows of one run
			return p
		}
	}
	for i := range info.Constraints {
		if found, ok := t.termOf(&info.Constraints[i]); ok && i != best {
			info.Constraints[i].ArgIndex = len(p.terms)
			p.terms = append(p.terms, found)
			info.EstimatedCost, info.EstimatedRows = info.EstimatedCost/2, info.EstimatedRows/2
		}
	}
	return p
}

// termOf returns the term that a condition is for the list of runs, and reports whether
// it is one.
func (t *table) termOf(c *vtab.Constraint) (term, bool) {
	if !c.Usable || c.Column < 0 || c.Column >= len(t.Columns) || !t.exact {
		return term{}, false
	}
	found := term{column: t.Columns[c.Column].Name}
	switch c.Op {
	case vtab.OpEQ:
		found.op = '='
	case vtab.OpGT, vtab.OpGE:
		found.op = '>'
	case vtab.OpLT, vtab.OpLE:
		found.op = '<'
	default:
		return term{}, false
	}
	return found, strings.IndexByte(narrowing[t.Name][found.column], found.op) >= 0
}

// narrow adds conditions to a filter. What it selects has all rows for which they are
// true. It reports whether that may make the list shorter, and whether the index finds
// runs that have a value.
func (p *plan) narrow(f *spool.Filter, vals []driver.Value) (helps, equal bool) {
	var key, value string
	for i, t := range p.terms {
		text, ok := vals[i].(string)
		if !ok || text == "" {
			continue
		}
		switch at, isTime := second(text); {
		case t.op == '=':
			of := map[string]*string{
				"name": &f.Name, "engine": &f.Engine, "state": (*string)(&f.State), "outcome": (*string)(&f.Outcome),
				"key": &key, "value": &value,
			}[t.column]
			if of != nil {
				*of = text
			}
			equal = equal || of != nil && of != &value
		case !isTime:
		case t.op == '>':
			// A run ends after all that it does, or has not ended.
			if at.After(f.Since) {
				f.Since, helps = at, true
			}
		default:
			if at = at.Add(time.Second); f.Before.IsZero() || at.Before(f.Before) {
				f.Before, helps = at, true
			}
		}
	}
	switch {
	case key != "" && value != "":
		f.Labels = maps.Clone(f.Labels)
		if f.Labels == nil {
			f.Labels = make(map[string]string)
		}
		f.Labels[key] = value
	case key != "":
		f.HasLabels = append(slices.Clone(f.HasLabels), key)
	}
	return helps || equal, equal
}

// second returns the second at which a text begins that is compared with times as the
// tables have them: the start of the day, if it has no time in that form.
func second(text string) (time.Time, bool) {
	for _, layout := range []string{"2006-01-02T15:04:05", time.DateOnly} {
		if len(text) < len(layout) {
			continue
		}
		if at, err := time.Parse(layout, text[:len(layout)]); err == nil {
			return at, true
		}
	}
	return time.Time{}, false
}

// counted yields as many rows as there are runs, with their state alone. It returns nil if
// the backend cannot count them. A join reads the table again and again: it counts once.
func (t *table) counted(f spool.Filter) rowSource {
	counter, ok := t.backend.(spool.Counter)
	if !ok || t.Match != nil {
		return nil
	}
	counts, ok := t.counts[f.State]
	if !ok {
		var err error
		if counts, err = counter.Count(t.ctx, f); err != nil { // which the list tells, if it has the same reason
			return nil
		}
		if t.counts == nil {
			t.counts = make(map[spool.State]map[spool.State]int)
		}
		t.counts[f.State] = counts
	}
	column := t.column("state")
	return func(yield func(row, error) bool) {
		for _, state := range slices.Sorted(maps.Keys(counts)) {
			r := make(row, len(t.Columns))
			r[column] = string(state)
			for range counts[state] {
				if !yield(r, nil) {
					return
				}
			}
		}
	}
}
