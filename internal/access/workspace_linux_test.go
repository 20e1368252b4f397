package access_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
)

// Changes of a run can be listed by who may read it, applied by who may control it, and
// discarded by who may delete it; for other subjects there is no such run. The audit log
// says who applied changes, and who tried.
func TestScopesOfWorkspaces(t *testing.T) {
	h := openHost(t)
	log := openAudit(t, h)
	guard := access.NewGuard(h, log)
	as := func(name string, scopes access.Scopes) follower {
		return guard.Backend(&access.Subject{Name: name, Scopes: scopes}, "here").(follower)
	}
	spec := sh("echo x >new")
	spec.Cwd, spec.Workspace = t.TempDir(), &spool.Workspace{Kind: "snapshot"}
	r := start(t, as("alice", access.DefaultScopes()), spec)
	if _, err := r.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name                    string
		scopes                  access.Scopes
		changes, apply, discard error
	}{
		{"bob", append(access.DefaultScopes(), access.Delete), spool.ErrNotFound, spool.ErrNotFound, spool.ErrNotFound},
		{"alice", access.Scopes{access.Input}, spool.ErrDenied, spool.ErrDenied, spool.ErrDenied},
		{"alice", access.Scopes{access.Read}, nil, spool.ErrDenied, spool.ErrDenied},
		{"alice", access.DefaultScopes(), nil, nil, spool.ErrDenied},
		{"alice", access.Scopes{access.Delete}, spool.ErrDenied, spool.ErrDenied, spool.ErrUnsupported}, // of a snapshot
		{"root", access.Scopes{access.Admin}, nil, nil, spool.ErrUnsupported},
	} {
		b := as(tt.name, tt.scopes)
		page, err := b.Changes(t.Context(), r.ID(), spool.ChangeQuery{})
		if !errors.Is(err, tt.changes) || (err == nil) != (len(page.Changes) == 1) {
			t.Errorf("%s with %q lists %+v, %v, want error %v", tt.name, tt.scopes, page, err, tt.changes)
		}
		if _, err := b.Apply(t.Context(), r.ID(), nil, false); !errors.Is(err, tt.apply) {
			t.Errorf("%s with %q applies: %v, want %v", tt.name, tt.scopes, err, tt.apply)
		}
		if err := b.Discard(t.Context(), r.ID()); !errors.Is(err, tt.discard) {
			t.Errorf("%s with %q discards: %v, want %v", tt.name, tt.scopes, err, tt.discard)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	entries, _ := auditEntries(t, h, log.Run())
	var got []string
	for _, e := range entries {
		if e.Act == access.ActApply || e.What == access.ActApply {
			got = append(got, e.Subject+" "+e.Act)
		}
	}
	if want := []string{"bob denied", "alice denied", "alice denied", "alice apply", "alice denied", "root apply"}; !slices.Equal(got, want) {
		t.Errorf("the audit log has %q, want %q", got, want)
	}
}
