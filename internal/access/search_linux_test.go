package access_test

import (
	"errors"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/search"
)

// TestSearchFindsOwnRunsOnly checks that a search shows a subject nothing of another's
// runs, that it needs the right to read, and that the audit log has it once.
func TestSearchFindsOwnRunsOnly(t *testing.T) {
	h := openHost(t)
	log := openAudit(t, h)
	guard := access.NewGuard(h, log)
	of := func(name string, scopes ...access.Scope) spool.Backend {
		return guard.Backend(&access.Subject{Name: name, Scopes: append(access.Scopes{}, scopes...)}, "test")
	}
	alice := of("alice", access.Read, access.StartOf(spool.EngineProcess))
	bob := of("bob", access.Read, access.StartOf(spool.EngineProcess))
	admin := of("root", access.Admin)
	var ids []spool.RunID
	for _, b := range []spool.Backend{alice, bob} {
		r := start(t, b, sh("echo the secret word"))
		if _, err := r.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, r.ID())
	}
	for _, tt := range []struct {
		name string
		b    spool.Backend
		q    search.Query
		want []spool.RunID
		err  error
	}{
		{"own runs", alice, search.Query{Pattern: "secret"}, ids[:1], nil},
		{"pages", bob, search.Query{Pattern: "secret", Limit: 1}, ids[1:], nil},
		{"another's run by its id", alice, search.Query{Pattern: "secret", Runs: ids[1:]}, nil, spool.ErrNotFound},
		{"another's runs by their label", alice, search.Query{Pattern: "secret", Filter: spool.Filter{Labels: map[string]string{access.LabelSubject: "bob"}}}, nil, nil},
		{"all runs", admin, search.Query{Pattern: "secret word", Filter: spool.Filter{Engine: spool.EngineProcess}}, []spool.RunID{ids[1], ids[0]}, nil},
		{"no right to read", of("carol", access.StartOf(spool.EngineProcess)), search.Query{Pattern: "secret"}, nil, spool.ErrDenied},
	} {
		var got []spool.RunID
		var failed error
		for hit, err := range search.Find(t.Context(), tt.b, tt.q) {
			if err != nil {
				failed = err
				break
			}
			got = append(got, hit.Run)
		}
		if !errors.Is(failed, tt.err) || len(got) != len(tt.want) {
			t.Errorf("%s: %v, %v", tt.name, got, failed)
			continue
		}
		for i := range got {
			if got[i] != tt.want[i] {
				t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
			}
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	var searches, reads int
	entries, _ := auditEntries(t, h, log.Run())
	for _, e := range entries {
		switch {
		case e.Act == access.ActSearch && e.Subject == "alice":
			searches++
		case e.Act == access.ActRead:
			reads++
		}
	}
	if searches != 3 || reads > 2 { // the tests wait for the runs, which reads them
		t.Errorf("the audit log has %d searches of alice, and %d reads", searches, reads)
	}
}
