package access

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
)

// describer is a backend that knows what does not change about a run without
// asking the process that owns it.
type describer interface {
	Describe(ctx context.Context, id spool.RunID) (spool.Info, error)
}

// backend is what one subject may use of a backend.
type backend struct {
	guard   *Guard
	inner   spool.Backend
	subject *Subject
	from    string
	account *account // nil without quotas

	mu    sync.Mutex
	read  map[spool.RunID]bool  // runs that were read
	typed map[spool.RunID]int64 // bytes of standard input that were not
	blobs map[blobOf]bool       // blobs that events of a run refer to
}

// blobOf is a blob of a run.
type blobOf struct {
	run    spool.RunID
	digest spool.Digest
}

var (
	_ spool.Backend    = (*backend)(nil)
	_ spool.Executor   = (*backend)(nil)
	_ record.Follower  = (*backend)(nil)
	_ spool.Remover    = (*backend)(nil)
	_ spool.Renamer    = (*backend)(nil)
	_ spool.Meter      = (*backend)(nil)
	_ spool.Workspaces = (*backend)(nil)
)

// maxNoted is how many runs and blobs are remembered of a connection.
const maxNoted = 4096

// Label returns the name of the subject that a run belongs to; it is empty for
// a run of the owner.
func Label(info *spool.Info) string { return info.Labels[LabelSubject] }

// deny writes a refusal to the audit log and returns it.
func (b *backend) deny(act string, id spool.RunID, err error) error {
	if errors.Is(err, spool.ErrDenied) || errors.Is(err, spool.ErrBusy) || errors.Is(err, spool.ErrNotFound) {
		_ = b.guard.audit.write(Entry{Act: ActDenied, Subject: b.subject.String(), From: b.from, Run: id, What: act, Reason: reason(err)})
	}
	return err
}

// reason returns the sentinel of an error: its text may hold what a client sent.
func reason(err error) string {
	for _, sentinel := range []error{spool.ErrDenied, spool.ErrBusy, spool.ErrNotFound} {
		if errors.Is(err, sentinel) {
			return sentinel.Error()
		}
	}
	return ""
}

// enter checks that the subject has a scope and that the run is the subject's. It
// returns what does not change about the run.
func (b *backend) enter(ctx context.Context, act string, scope Scope, id spool.RunID) (spool.Info, error) {
	if err := b.subject.Scopes.Require(scope); err != nil {
		return spool.Info{}, b.deny(act, id, err)
	}
	describe := b.inner.Stat
	if d, ok := b.inner.(describer); ok {
		describe = d.Describe
	}
	info, err := describe(ctx, id)
	if err != nil {
		return spool.Info{}, err
	}
	if !b.owns(&info) {
		return spool.Info{}, b.deny(act, id, notFound(id))
	}
	return info, nil
}

// owns reports whether the subject may know of a run.
func (b *backend) owns(info *spool.Info) bool {
	return b.subject.Sees(info)
}

// notFound is the error that an unknown run has, too.
func notFound(id spool.RunID) error { return fmt.Errorf("run %.140s: %w", id, spool.ErrNotFound) }

// Stat implements [spool.Backend].
func (b *backend) Stat(ctx context.Context, id spool.RunID) (spool.Info, error) {
	if err := b.subject.Scopes.Require(Read); err != nil {
		return spool.Info{}, b.deny(ActRead, id, err)
	}
	info, err := b.inner.Stat(ctx, id)
	if err == nil && !b.owns(&info) {
		return spool.Info{}, b.deny(ActRead, id, notFound(id))
	}
	return info, err
}

// note writes what the subject did to the audit log.
func (b *backend) note(e Entry) {
	if b.guard.audit == nil {
		return
	}
	e.Subject, e.From = b.subject.String(), b.from
	_ = b.guard.audit.write(e) // fails only when the server ends
}
