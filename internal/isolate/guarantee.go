// Package isolate keeps runs from what they must not do.
//
// A profile is a set of guarantees. A mechanism proves guarantees: it starts a
// process behind its walls on this machine, has it try what it must not do, and
// counts only what failed. A start uses the cheapest mechanism that proves every
// guarantee it needs; if there is none, it is refused with the reason and the way
// out. There is no best effort: what is not proven is refused or waived, and a
// waiver is recorded.
package isolate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spool-run/spool/internal/strict"
)

// A Guarantee is one thing that an isolated run cannot do, or that holds for it.
type Guarantee string

// The guarantees, in the order in which they are listed.
const (
	Writes    Guarantee = "W"  // writes only below the writable paths and to a private /tmp
	Protects  Guarantee = "P"  // protected paths below them stay as they are
	Reads     Guarantee = "R"  // reads only of what is listed
	NoNetwork Guarantee = "N0" // no network of any family
	Proxied   Guarantee = "NP" // only connections that a proxy allows
	Apart     Guarantee = "I"  // cannot see, signal or trace other processes
	Kills     Guarantee = "K"  // a kill leaves nothing
	Survives  Guarantee = "S"  // the end of Spool leaves nothing
	Memory    Guarantee = "M"  // a limit of memory
	Processor Guarantee = "C"  // a limit of processor time
	Processes Guarantee = "T"  // a limit of processes
	Rootless  Guarantee = "U"  // not root outside
	Narrow    Guarantee = "H"  // few system calls
)

// all are the guarantees in order, with what a refusal says of each.
var all = []struct {
	g    Guarantee
	text string
}{
	{Writes, "writes only below the writable paths"},
	{Protects, "no writes to protected paths"},
	{Reads, "reads only below the readable paths"},
	{NoNetwork, "no network"},
	{Proxied, "network only through a proxy"},
	{Apart, "no access to other processes"},
	{Kills, "a kill leaves no process"},
	{Survives, "the end of Spool leaves no process"},
	{Memory, "a limit of memory"},
	{Processor, "a limit of processor time"},
	{Processes, "a limit of processes"},
	{Rootless, "not root outside"},
	{Narrow, "few system calls"},
}

// Text says what the guarantee means.
func (g Guarantee) Text() string {
	for _, a := range all {
		if a.g == g {
			return a.text
		}
	}
	return "unknown"
}

// Set is a set of guarantees, in the order of the constants.
type Set []Guarantee

// NewSet returns a set of guarantees without repetitions.
func NewSet(list ...Guarantee) Set {
	if len(list) == 0 {
		return nil
	}
	s := make(Set, 0, len(list))
	for _, a := range all {
		if slices.Contains(list, a.g) {
			s = append(s, a.g)
		}
	}
	return s
}

// Has reports whether the set has the guarantee.
func (s Set) Has(g Guarantee) bool { return slices.Contains(s, g) }

// Without returns what the set has and the other does not.
func (s Set) Without(other Set) Set {
	var rest Set
	for _, g := range s {
		if !other.Has(g) {
			if rest == nil {
				rest = make(Set, 0, len(s))
			}
			rest = append(rest, g)
		}
	}
	return rest
}

// With returns what is in either set.
func (s Set) With(other ...Guarantee) Set { return NewSet(append(slices.Clone(s), other...)...) }

// Strings returns the names.
func (s Set) Strings() []string {
	if len(s) == 0 {
		return nil
	}
	list := make([]string, 0, len(s))
	for _, g := range s {
		list = append(list, string(g))
	}
	return list
}

func (s Set) String() string { return strings.Join(s.Strings(), " ") }

// ParseSet reads names of guarantees.
func ParseSet(names []string) (Set, error) {
	var list []Guarantee
	for _, name := range names {
		if Guarantee(name).Text() == "unknown" {
			return nil, fmt.Errorf("no guarantee %q: there are %s", name, NewSet(guarantees()...))
		}
		list = append(list, Guarantee(name))
	}
	return NewSet(list...), nil
}

func guarantees() []Guarantee {
	var list []Guarantee
	for _, a := range all {
		list = append(list, a.g)
	}
	return list
}

// A Profile names a set of guarantees.
type Profile string

// The profiles.
const (
	None           Profile = "none"
	ReadOnly       Profile = "read-only"
	WorkspaceWrite Profile = "workspace-write"
	Offline        Profile = "no-network"
	NetAllow       Profile = "net-allow"
	Strict         Profile = "strict"
)

// Profiles are the profiles that isolate, from the weakest on.
var Profiles = []Profile{ReadOnly, WorkspaceWrite, Offline, NetAllow, Strict}

var profiles = map[Profile]Set{
	None:           nil,
	ReadOnly:       NewSet(Writes, Apart, Kills, Survives, Processes),
	WorkspaceWrite: NewSet(Writes, Protects, Apart, Kills, Survives, Processes),
	Offline:        NewSet(Writes, Protects, NoNetwork, Apart, Kills, Survives, Processes),
	NetAllow:       NewSet(Writes, Protects, Proxied, Apart, Kills, Survives, Processes),
	Strict:         NewSet(Writes, Protects, Reads, NoNetwork, Apart, Kills, Survives, Memory, Processor, Processes, Rootless, Narrow),
}

// Guarantees returns the guarantees of the profile.
func (p Profile) Guarantees() Set { return profiles[p] }

// ParseProfile reads the name of a profile; an empty one is [None].
func ParseProfile(name string) (Profile, error) {
	if name == "" {
		return None, nil
	}
	if _, ok := profiles[Profile(name)]; ok {
		return Profile(name), nil
	}
	names := []string{string(None)}
	for _, p := range Profiles {
		names = append(names, string(p))
	}
	if near, ok := strict.Nearest(name, names); ok {
		return "", fmt.Errorf("no isolation profile %q: do you mean %q?", name, near)
	}
	return "", fmt.Errorf("no isolation profile %q: there are %s", name, strings.Join(names, ", "))
}
