package access

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"

	"github.com/spool-run/spool"
)

// Watch implements [spool.Watcher]. A subject that does not see all runs watches its
// own.
func (b *backend) Watch(ctx context.Context, f spool.Filter) iter.Seq2[spool.Info, error] {
	return func(yield func(spool.Info, error) bool) {
		if err := b.subject.Scopes.Require(Read); err != nil {
			yield(spool.Info{}, b.deny(ActList, "", err))
			return
		}
		watcher, ok := b.inner.(spool.Watcher)
		if !ok {
			yield(spool.Info{}, fmt.Errorf("watch runs: %w", spool.ErrUnsupported))
			return
		}
		narrowed := len(b.subject.Runs) > 0 || len(b.subject.Labels) > 0
		all := b.subject.Scopes.Has(Admin) && !narrowed
		if !b.subject.Scopes.Has(Admin) && len(b.subject.Runs) == 0 {
			labels := maps.Clone(f.Labels)
			if labels == nil {
				labels = make(map[string]string, 1)
			}
			if of, ok := labels[LabelSubject]; ok && of != b.subject.Name {
				yield(spool.Info{}, notFound("")) // of other subjects there is nothing to see
				return
			}
			labels[LabelSubject] = b.subject.Name
			f.Labels = labels
		}
		seen := make(map[spool.RunID]struct{}) // of those that are told
		var hidden error                       // what the watch yielded last, if the subject was not told
		for info, err := range watcher.Watch(ctx, f) {
			hidden = nil
			if err == nil && info.State == spool.StateRemoved && !all {
				if _, ok := seen[info.ID]; !ok {
					continue
				}
				delete(seen, info.ID)
				if !yield(info, nil) {
					return
				}
				continue
			}
			switch {
			case all, err == nil && (info.ID == "" || b.owns(&info)):
			case err == nil:
				continue
			case errors.Is(err, spool.ErrInvalid), errors.Is(err, spool.ErrClosed), ctx.Err() != nil:
			default:
				hidden = err // it may be the error of a run of another subject
				continue
			}
			if err == nil && !all {
				seen[info.ID] = struct{}{}
			}
			if !yield(info, err) {
				return
			}
		}
		if hidden != nil { // it has ended the watch
			yield(spool.Info{}, errors.New("watch runs: the runs cannot be listed now"))
		}
	}
}
