package isolate

import (
	"fmt"
	"strings"
)

// Refusal is the error of a start whose guarantees no mechanism proves here.
type Refusal struct {
	Profile Profile
	Missing Set     // what no mechanism gives
	Causes  []Cause // why, for each mechanism that was tried
	Fixes   []string
}

// Cause is why a mechanism does not give what was asked for.
type Cause struct {
	Mechanism string
	Text      string
}

func (r *Refusal) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "isolation_unavailable: profile %q needs %s", r.Profile, strings.Join(r.Missing.Strings(), ", "))
	if len(r.Missing) == 1 {
		fmt.Fprintf(&b, " (%s)", r.Missing[0].Text())
	}
	for _, c := range r.Causes {
		fmt.Fprintf(&b, "; %s: %s", c.Mechanism, c.Text)
	}
	return b.String()
}

// Hint is the way out.
func (r *Refusal) Hint() string { return strings.Join(r.Fixes, ", or ") }

// waivers are the flags that accept the absence of guarantees.
func waivers(s Set) string {
	var list []string
	for _, g := range s {
		list = append(list, "--waive "+string(g))
	}
	return strings.Join(list, " ")
}
