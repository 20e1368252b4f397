// Package access decides who may do what. Every listener uses it: an
// [Authenticator] turns a request into a [Subject], and [Guard.Backend] is the
// part of a [spool.Backend] that the subject may use.
//
// A subject is a name with scopes and quotas. Runs and sessions belong to the
// subject that started them; other subjects neither see nor reach them, except
// those with the scope admin. The subject without a name is the owner of the
// machine: it may do everything, its runs carry no label, and no check costs it
// anything.
//
// Subjects are not isolated from each other by this package. The processes of
// all subjects run under one account and can read each other's files.
package access

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
)

// Labels of runs that clients cannot set.
const (
	// ReservedLabels is the prefix of those labels.
	ReservedLabels = record.AccessLabels
	// LabelSubject is the label with the name of the subject that started a
	// run. A run of the owner does not have it.
	LabelSubject = record.LabelSubject
)

// maxName is the length of the longest name of a subject in bytes.
const maxName = 128

// Subject is who sent a request. It does not change.
type Subject struct {
	// Name is empty for the owner of the machine.
	Name    string
	Scopes  Scopes
	Expires time.Time // zero means never
	Quotas  Quotas
	Narrow

	file    string // the token file; empty if it came another way
	token   string // id of the token in a token file; empty if it came another way
	session string // id of the session of a page; empty if it came another way
}

// Owner returns the subject of the user who runs the server.
func Owner() *Subject { return &Subject{Scopes: Scopes{Admin}} }

// IsOwner reports whether the subject is the owner of the machine.
func (s *Subject) IsOwner() bool { return s == nil || s.Name == "" }

// Session returns the id of the session of the page that sent the request, or
// nothing.
func (s *Subject) Session() string {
	if s == nil {
		return ""
	}
	return s.session
}

// String returns the name of the subject for people.
func (s *Subject) String() string {
	if s.IsOwner() {
		return "owner"
	}
	return s.Name
}

// Quotas limit a subject, however many connections it has. Zero means no limit.
type Quotas struct {
	// Live is how many runs may be live at once.
	Live int `json:"live,omitempty"`
	// Sandboxes is how many of them may be sandboxes.
	Sandboxes int `json:"sandboxes,omitempty"`
	// StartsPerMinute is how many runs may start in a minute.
	StartsPerMinute int `json:"starts_per_minute,omitempty"`
	// DiskBytes is how much disk space the runs may take, with their blobs,
	// before no further run or turn starts. A run that starts may log what is
	// left.
	DiskBytes int64 `json:"disk_bytes,omitempty"`
	// AnswerRate is how many bytes of events and blobs are read per second.
	AnswerRate int64 `json:"answer_rate_bytes,omitempty"`
}

// Check returns an error for a negative quota.
func (q Quotas) Check() error {
	if q.Live < 0 || q.Sandboxes < 0 || q.StartsPerMinute < 0 || q.DiskBytes < 0 || q.AnswerRate < 0 {
		return fmt.Errorf("%w: a quota must not be negative", spool.ErrInvalid)
	}
	return nil
}

// CheckName returns an error for a text that cannot be the name of a subject.
func CheckName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: the name of a subject must not be empty", spool.ErrInvalid)
	case len(name) > maxName:
		return fmt.Errorf("%w: the name of a subject has at most %d bytes", spool.ErrInvalid, maxName)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Errorf("%w: the name of a subject has only printable characters, not %q", spool.ErrInvalid, name)
	}
	return nil
}

// CheckLabels returns an error if a client sets a label that is not its own to
// set: one that begins with a prefix of ours.
func CheckLabels(labels map[string]string, prefixes ...string) error {
	for k := range labels {
		for _, prefix := range append(prefixes, ReservedLabels) {
			if strings.HasPrefix(k, prefix) {
				return fmt.Errorf("%w: label %q: labels that begin with %s are set by the server", spool.ErrDenied, k, prefix)
			}
		}
	}
	return nil
}

// expired returns an error once the subject has expired.
func (s *Subject) expired(now time.Time) error {
	if !s.Expires.IsZero() && now.After(s.Expires) {
		return fmt.Errorf("%w: the token of %s expired at %s", spool.ErrDenied, s, s.Expires.UTC().Format(time.RFC3339))
	}
	return nil
}
