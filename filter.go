package spool

import (
	"cmp"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"
)

// Filter selects runs in [Backend.List] and says in which order and how many.
// The zero value selects all, newest first.
type Filter struct {
	Prefix RunID  `json:"prefix,omitempty"` // of the id
	Name   string `json:"name,omitempty"`
	// NameGlob is a pattern that the name matches: * stands for any characters
	// but a slash, ? for one, [a-z] for one of those, as in [path.Match].
	NameGlob string `json:"name_glob,omitempty"`

	Engine string `json:"engine,omitempty"`
	State  State  `json:"state,omitempty"`
	Live   bool   `json:"live,omitempty"` // only runs that are not closed
	// Waiting selects only runs with open asks.
	Waiting bool `json:"waiting,omitempty"`

	Outcome OutcomeKind       `json:"outcome,omitempty"` // only runs that ended this way
	Since   time.Time         `json:"since,omitzero"`    // only runs that are not closed or ended since then
	Before  time.Time         `json:"before,omitzero"`   // only runs that were created before then
	Labels  map[string]string `json:"labels,omitempty"`
	// HasLabels are names of labels that a run must have, with any value.
	HasLabels []string `json:"has_labels,omitempty"`

	// Brief is for a reader of many runs to whom their ID, Name, Engine, Labels,
	// Created, Ended, State and the Kind of their Outcome are enough: descriptions
	// of finished runs may have nothing else, which takes a fraction of the time.
	// A run that is being removed may still be in the list.
	Brief bool `json:"brief,omitempty"`

	// Oldest lists the oldest run first instead of the newest.
	Oldest bool `json:"oldest,omitempty"`
	// Limit ends the list after so many runs; zero means no limit.
	Limit int `json:"limit,omitempty"`
	// After is the [Info.Cursor] of a run: the list goes on with the run
	// that comes after it, whether or not it still exists.
	After string `json:"after,omitempty"`
}

// Check returns [ErrInvalid] for a filter that makes no sense.
func (f *Filter) Check() error {
	switch f.State {
	case "", StateQueued, StateRunning, StateExited, StateClosed:
	default:
		return fmt.Errorf("%w: unknown state %q: use queued, running, exited or closed", ErrInvalid, f.State)
	}
	switch f.Outcome {
	case "", Exited, Failed, Unknown:
	default:
		return fmt.Errorf("%w: unknown outcome %q: use exited, failed or unknown", ErrInvalid, f.Outcome)
	}
	if _, err := path.Match(f.NameGlob, ""); err != nil {
		return fmt.Errorf("%w: the pattern %.200q of names has an open bracket or ends with a backslash", ErrInvalid, f.NameGlob)
	}
	if f.Limit < 0 {
		return fmt.Errorf("%w: a limit of %d runs", ErrInvalid, f.Limit)
	}
	if _, ok := parseCursor(f.After); !ok {
		return fmt.Errorf("%w: %.200q is no cursor of a list", ErrInvalid, f.After)
	}
	return nil
}

// Match reports whether the filter selects the run, [Filter.Limit] aside.
func (f *Filter) Match(i *Info) bool {
	switch {
	case f.Live && i.State == StateClosed,
		f.Waiting && i.Asks == nil,
		f.State != "" && f.State != i.State,
		f.Name != "" && f.Name != i.Name,
		f.Engine != "" && f.Engine != i.Engine,
		f.Outcome != "" && (i.Outcome == nil || i.Outcome.Kind != f.Outcome),
		!f.Before.IsZero() && !i.Created.Before(f.Before),
		!f.Since.IsZero() && i.State == StateClosed && i.Ended.Before(f.Since),
		!strings.HasPrefix(string(i.ID), string(f.Prefix)):
		return false
	}
	if f.NameGlob != "" {
		if ok, _ := path.Match(f.NameGlob, i.Name); !ok {
			return false
		}
	}
	for k, v := range f.Labels {
		if i.Labels[k] != v {
			return false
		}
	}
	for _, k := range f.HasLabels {
		if _, ok := i.Labels[k]; !ok {
			return false
		}
	}
	if f.After == "" {
		return true
	}
	after, ok := parseCursor(f.After)
	return ok && f.Compare(&after, i) < 0
}

// Compare orders two runs as the list has them.
func (f *Filter) Compare(a, b *Info) int {
	n := cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	if f.Oldest {
		return n
	}
	return -n
}

// Cursor is the place of the run in a list, for [Filter.After]. Its form may
// change.
func (i *Info) Cursor() string {
	return strconv.FormatInt(i.Created.UnixNano(), 36) + "." + string(i.ID)
}

// parseCursor returns the place that a cursor names.
func parseCursor(s string) (Info, bool) {
	if s == "" {
		return Info{}, true
	}
	created, id, ok := strings.Cut(s, ".")
	ns, err := strconv.ParseInt(created, 36, 64)
	if !ok || err != nil || RunID(id).Check() != nil {
		return Info{}, false
	}
	return Info{ID: RunID(id), Created: time.Unix(0, ns)}, true
}
