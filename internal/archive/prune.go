package archive

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spool-run/spool/internal/store"
)

// Retention says which runs an archive keeps. A zero field sets no bound. A run with
// the label keep=forever always stays.
type Retention struct {
	Age   time.Duration // of a run, since it ended
	Bytes int64         // of all runs; those that ended first go
	// Labels may keep runs longer than Age says, never shorter. A key is the name
	// of a label, or name=value; a negative time means forever.
	Labels map[string]time.Duration
}

// policy returns the same for a store.
func (r *Retention) policy() (store.Retention, error) {
	p := store.Retention{Age: r.Age}
	for label, age := range r.Labels {
		rule, err := store.ParseLabel(label, age)
		if err != nil {
			return p, err
		}
		p.Labels = append(p.Labels, rule)
	}
	return p, nil
}

// Due is a run that an archive need not keep.
type Due struct {
	*Manifest
	Why string // for people
}

// Due returns the runs that a retention removes, those that ended first first.
func (a *Archive) Due(ctx context.Context, r Retention, now time.Time) ([]Due, error) {
	policy, err := r.policy()
	if err != nil {
		return nil, err
	}
	q := Query{}
	if r.Bytes <= 0 && r.Age > 0 {
		q.Before = now.Add(-r.Age) // it was archived after its end
	}
	var all []*Manifest
	for m, err := range a.List(ctx, q) {
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *Manifest) int {
		return cmp.Or(a.Info.Ended.Compare(b.Info.Ended), cmp.Compare(a.Run, b.Run))
	})
	var due []Due
	var total int64
	var rest []*Manifest
	for _, m := range all {
		total += m.Bytes()
		if why, old := policy.Old(&m.Info, now); old && r.Age > 0 && now.Sub(m.Info.Ended) > r.Age {
			due = append(due, Due{m, why})
			total -= m.Bytes()
			continue
		}
		rest = append(rest, m)
	}
	for _, m := range rest {
		if r.Bytes <= 0 || total <= r.Bytes {
			break
		}
		if policy.Forever(&m.Info) {
			continue
		}
		due = append(due, Due{m, fmt.Sprintf("the archive has more than %d bytes, and it is among those that ended first", r.Bytes)})
		total -= m.Bytes()
	}
	return due, nil
}

// prune applies the retention of the archive, when that is due.
func (s *Shipper) prune(ctx context.Context) error {
	if s.opts.Retention.Age <= 0 && s.opts.Retention.Bytes <= 0 || time.Since(s.pruned) < pruneEvery {
		return nil
	}
	a, now := New(s.objects), time.Now()
	due, err := a.Due(ctx, s.opts.Retention, now)
	if err != nil {
		return fmt.Errorf("apply the retention of the archive: %w", err)
	}
	for _, d := range due {
		if err := a.Remove(ctx, d.Run); err != nil {
			return err
		}
		s.log.Info("removed from the archive", "run", d.Run, "why", d.Why)
		s.mu.Lock()
		s.status.PrunedRuns++
		s.mu.Unlock()
	}
	if _, err := a.RemoveAbandoned(ctx, now); err != nil {
		return err
	}
	s.pruned = now
	return nil
}
