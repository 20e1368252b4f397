package access

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"

	"github.com/spool-run/spool"
)

// List implements [spool.Backend].
func (b *backend) List(ctx context.Context, f spool.Filter) iter.Seq2[spool.Info, error] {
	if err := b.subject.Scopes.Require(Read); err != nil {
		err = b.deny(ActList, "", err)
		return func(yield func(spool.Info, error) bool) { yield(spool.Info{}, err) }
	}
	if len(b.subject.Runs) > 0 {
		return b.listRuns(ctx, f)
	}
	if b.subject.Scopes.Has(Admin) {
		return b.inner.List(ctx, f)
	}
	if of, ok := f.Labels[LabelSubject]; ok && of != b.subject.Name {
		return func(yield func(spool.Info, error) bool) {
			if err := f.Check(); err != nil {
				yield(spool.Info{}, fmt.Errorf("list runs: %w", err))
			}
		}
	}
	labels := make(map[string]string, len(f.Labels)+1)
	maps.Copy(labels, f.Labels)
	for k, v := range b.subject.Labels {
		if got, ok := labels[k]; ok && got != v {
			return func(func(spool.Info, error) bool) {}
		}
		labels[k] = v
	}
	labels[LabelSubject] = b.subject.Name
	f.Labels = labels
	return func(yield func(spool.Info, error) bool) {
		unreadable := false
		for info, err := range b.inner.List(ctx, f) {
			switch {
			case err == nil && b.owns(&info):
				unreadable = false
			case err == nil:
				continue
			case errors.Is(err, spool.ErrInvalid), errors.Is(err, spool.ErrClosed), ctx.Err() != nil:
			default:
				// It may be an error of one run, and that run another
				// subject's. Only an error that ends the list is reported.
				unreadable = true
				continue
			}
			if !yield(info, err) {
				return
			}
		}
		if unreadable {
			yield(spool.Info{}, errors.New("list runs: some runs cannot be read"))
		}
	}
}
