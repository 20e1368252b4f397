package store

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/store/index"
)

// Retention says which finished runs are kept. A zero field sets no bound.
//
// A run is deleted once it is older than Age, or than the rule of a label that it
// has says instead. Then the runs that ended first are deleted, until there are no
// more than Runs and their logs have no more than TotalBytes. A run that a rule keeps
// forever always stays: it has the bytes it has, and is not one of Runs.
type Retention struct {
	Age        time.Duration // of a run, since it ended or was imported
	TotalBytes int64         // of the logs of all runs together
	Runs       int           // number of finished runs, without audit logs
	Labels     []LabelRule   // of several about one run, the longest time counts
	// Compress is how long after its end the log of a run is compressed.
	// Negative means never. Sweep does not look at it.
	Compress time.Duration
}

// Forever is the age of runs that are never deleted.
const Forever = time.Duration(math.MaxInt64)

// LabelRule says how long the runs with a label are kept.
type LabelRule struct {
	Name  string
	Value string // empty for any
	Age   time.Duration
}

// keepForever is the rule that always holds.
var keepForever = LabelRule{Name: "keep", Value: "forever", Age: Forever}

// ParseLabel makes a rule of a label, which is a name or name=value, and an age; a
// negative one means [Forever].
func ParseLabel(label string, age time.Duration) (LabelRule, error) {
	name, value, _ := strings.Cut(label, "=")
	if name == "" || age == 0 {
		return LabelRule{}, fmt.Errorf("%w: the rule %q for %v: it needs a label and a time", spool.ErrInvalid, label, age)
	}
	if age < 0 {
		age = Forever
	}
	return LabelRule{name, value, age}, nil
}

// Label is the name of the label, with the value if the rule is about one.
func (r LabelRule) Label() string {
	if r.Value == "" {
		return r.Name
	}
	return r.Name + "=" + r.Value
}

// matches reports whether the rule is about a run with these labels.
func (r LabelRule) matches(labels map[string]string) bool {
	value, ok := labels[r.Name]
	return ok && (r.Value == "" || r.Value == value)
}

// indexed returns the rule as one of the index.
func (r LabelRule) indexed(now time.Time) index.AgeRule {
	rule := index.AgeRule{Term: labelTerm(r.Name, r.Value), Before: index.Never}
	if r.Age != Forever {
		rule.Before = now.Add(-r.Age).UnixNano()
	}
	return rule
}

// rules returns all rules about labels, for the index.
func (p *Retention) rules(now time.Time) []index.AgeRule {
	rules := []index.AgeRule{keepForever.indexed(now)}
	for _, r := range p.Labels {
		rules = append(rules, r.indexed(now))
	}
	return rules
}

// exempt returns the rules that keep runs forever.
func (p *Retention) exempt() []index.AgeRule {
	return slices.DeleteFunc(p.rules(time.Now()), func(r index.AgeRule) bool { return r.Before != index.Never })
}

// ruleFor returns what the policy says about the age of a run: the rule of a label,
// or one without a name.
func (p *Retention) ruleFor(info *spool.Info) LabelRule {
	rule := LabelRule{Age: p.Age}
	for _, r := range append([]LabelRule{keepForever}, p.Labels...) {
		if r.matches(info.Labels) && (rule.Name == "" || r.Age > rule.Age) {
			rule = r
		}
	}
	return rule
}

// old reports whether a run is old that ended at this time.
func (r LabelRule) old(now, ended time.Time) bool {
	return r.Age > 0 && r.Age != Forever && now.Sub(ended) > r.Age
}

// Old reports whether a run is deleted for its age, and why. A copy of a run ages as the
// run does.
func (p *Retention) Old(info *spool.Info, now time.Time) (why string, old bool) {
	rule := p.ruleFor(info)
	if !rule.old(now, info.Ended) {
		return "", false
	}
	return rule.why(now.Sub(info.Ended)), true
}

// Forever reports whether a rule keeps a run forever.
func (p *Retention) Forever(info *spool.Info) bool { return p.ruleFor(info).Age == Forever }

// why says why a run of this age is deleted.
func (r LabelRule) why(age time.Duration) string {
	kept := "runs are kept " + ageText(r.Age)
	if r.Name != "" {
		kept = fmt.Sprintf("runs with the label %s are kept %s", r.Label(), ageText(r.Age))
	}
	return fmt.Sprintf("it ended %s ago, and %s", ageText(age), kept)
}

// ageText is a duration in the largest unit of which it has two, or one exactly.
func ageText(d time.Duration) string {
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}} {
		if d >= 2*u.unit || d == u.unit {
			return fmt.Sprintf("%d%s", d/u.unit, u.name)
		}
	}
	return fmt.Sprintf("%ds", d/time.Second)
}

// sizeText is a number of bytes for people.
func sizeText(n int64) string {
	for _, u := range []struct {
		size int64
		name string
	}{{1 << 30, "G"}, {1 << 20, "M"}, {1 << 10, "K"}} {
		if n >= u.size {
			return strings.TrimSuffix(fmt.Sprintf("%.1f", float64(n)/float64(u.size)), ".0") + u.name
		}
	}
	return fmt.Sprintf("%d bytes", n)
}
