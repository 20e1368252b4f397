package access_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
)

// cutWatcher is a backend whose watches end with an error.
type cutWatcher struct{ spool.Backend }

func (cutWatcher) Watch(context.Context, spool.Filter) iter.Seq2[spool.Info, error] {
	return func(yield func(spool.Info, error) bool) {
		_ = yield(spool.Info{ID: "a"}, errors.New("/srv/runs/a is damaged")) && yield(spool.Info{}, nil) && yield(spool.Info{}, errors.New("/srv does not answer"))
	}
}

// TestWatchEndsWithAnError checks that a subject which sees only its own runs learns that
// its watch was cut off, and nothing of other runs.
func TestWatchEndsWithAnError(t *testing.T) {
	b := access.NewGuard(cutWatcher{}, nil).Backend(&access.Subject{Name: "alice", Scopes: access.Scopes{access.Read}}, "")
	var synced, failed int
	for _, err := range b.(spool.Watcher).Watch(t.Context(), spool.Filter{}) {
		switch {
		case err == nil:
			synced++
		case strings.Contains(err.Error(), "/srv"):
			t.Errorf("the subject is told %q", err)
		default:
			failed++
		}
	}
	if synced != 1 || failed != 1 {
		t.Errorf("synced %d times, failed %d times; want one of each", synced, failed)
	}
}
