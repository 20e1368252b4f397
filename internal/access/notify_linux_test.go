package access_test

import (
	"errors"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
)

// A subject is told of events of its own runs only, and of none if the backend cannot.
func TestOnEventOfSubjects(t *testing.T) {
	h := openHost(t)
	guarded := func(inner spool.Backend, name string) access.Notifier {
		s := &access.Subject{Name: name, Scopes: access.DefaultScopes()}
		return access.NewGuard(inner, nil).Backend(s, "test").(access.Notifier)
	}
	alice := guarded(h, "alice")
	spec := sh("read line; exec sleep 1000")
	spec.Stdin = true
	r := start(t, alice.(spool.Backend), spec)
	told := make(chan struct{}, 1)
	tell := func() { told <- struct{}{} }
	stop, err := alice.OnEvent(t.Context(), r.ID(), 0, tell)
	if err != nil || stop == nil {
		t.Fatalf("nothing to wait for: %v", err)
	}
	for name, n := range map[string]struct {
		access.Notifier
		want error
	}{
		"of another":          {guarded(h, "bob"), spool.ErrNotFound},
		"of a silent backend": {guarded(struct{ spool.Backend }{h}, "alice"), spool.ErrUnsupported},
	} {
		if _, err := n.OnEvent(t.Context(), r.ID(), 0, tell); !errors.Is(err, n.want) {
			t.Errorf("%s: %v, want %v", name, err, n.want)
		}
	}
	if err := r.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-told
}
