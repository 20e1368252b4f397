package access

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/spool-run/spool"
)

// maxRuns is how many runs a token may be narrowed to.
const maxRuns = 100

// Narrow is what a subject sees of the runs that it could see. The zero value is all
// of them.
type Narrow struct {
	// Runs are the only runs that it sees. They belong to the subject Of, which
	// is empty for the owner of the machine: another run that gets the id of one
	// that was deleted is not meant.
	Runs []spool.RunID `json:"runs,omitempty"`
	Of   string        `json:"of,omitempty"`
	// Labels are those that the runs have. What the subject starts gets them.
	Labels map[string]string `json:"labels,omitempty"`
}

// check returns an error for what cannot be.
func (n *Narrow) check(scopes Scopes) error {
	if len(n.Runs) > maxRuns {
		return fmt.Errorf("%w: a token is narrowed to at most %d runs", spool.ErrInvalid, maxRuns)
	}
	for _, id := range n.Runs {
		if err := id.Check(); err != nil {
			return err
		}
	}
	if len(n.Runs) == 0 && n.Of != "" {
		return fmt.Errorf("%w: of needs runs", spool.ErrInvalid)
	}
	if err := CheckLabels(n.Labels); err != nil {
		return err
	}
	for _, s := range scopes {
		if s == Admin && (len(n.Runs) > 0 || len(n.Labels) > 0) || len(n.Runs) > 0 && (s == Start || strings.HasPrefix(string(s), startPrefix)) {
			return fmt.Errorf("%w: a token that is narrowed to some runs cannot have the scope %s", spool.ErrInvalid, s)
		}
	}
	return nil
}

func (n *Narrow) equal(o *Narrow) bool {
	return slices.Equal(n.Runs, o.Runs) && n.Of == o.Of && maps.Equal(n.Labels, o.Labels)
}

// key returns a text that is another one for another Narrow.
func (n *Narrow) key() string {
	if len(n.Runs) == 0 && len(n.Labels) == 0 {
		return ""
	}
	b := fmt.Appendf(nil, "%q %q", n.Runs, n.Of)
	for _, k := range slices.Sorted(maps.Keys(n.Labels)) {
		b = fmt.Appendf(b, " %q=%q", k, n.Labels[k])
	}
	return string(b)
}

// Key returns a text that is the same for subjects that see the same runs.
func (s *Subject) Key() string { return fmt.Sprintf("%q %s", s.Name, s.key()) }

// Sees reports whether the subject may know of a run. It is the one place where that
// is decided.
func (s *Subject) Sees(info *spool.Info) bool {
	if len(s.Runs) > 0 {
		if !slices.Contains(s.Runs, info.ID) || Label(info) != s.Of {
			return false
		}
	} else if !s.Scopes.Has(Admin) && Label(info) != s.Name {
		return false
	}
	for k, v := range s.Labels {
		if got, ok := info.Labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// listRuns lists the runs that a subject is narrowed to.
func (b *backend) listRuns(ctx context.Context, f spool.Filter) iter.Seq2[spool.Info, error] {
	return func(yield func(spool.Info, error) bool) {
		if err := f.Check(); err != nil {
			yield(spool.Info{}, fmt.Errorf("list runs: %w", err))
			return
		}
		limit := f.Limit
		f.Limit = 0
		var found []spool.Info
		for _, id := range b.subject.Runs {
			if !strings.HasPrefix(string(id), string(f.Prefix)) {
				continue
			}
			one := f
			one.Prefix = id
			for info, err := range b.inner.List(ctx, one) {
				if err == nil && info.ID == id && b.subject.Sees(&info) {
					found = append(found, info)
				}
			}
			if ctx.Err() != nil {
				yield(spool.Info{}, context.Cause(ctx))
				return
			}
		}
		slices.SortFunc(found, func(x, y spool.Info) int { return f.Compare(&x, &y) })
		for i := range found {
			if limit > 0 && i == limit || !yield(found[i], nil) {
				return
			}
		}
	}
}
