package client_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/internal/servertest"
	"github.com/spool-run/spool/internal/skiptest"
)

// A page of changes has about one MiB, whatever the client asks for. A path that is not
// UTF-8 arrives as it is.
func TestPagesOfChanges(t *testing.T) {
	c := dial(t, servertest.Start(t, t.TempDir()).URL, client.Options{})
	spec := sh(`for f in a b c; do yes | head -c 500000 >$f; done; echo x >"$(printf 'd\377')"`)
	spec.Cwd, spec.Workspace = t.TempDir(), &spool.Workspace{Kind: "overlay"}
	r, err := spool.Start(t.Context(), c, spec)
	if errors.Is(err, spool.ErrUnsupported) {
		skiptest.Missing(t, "%v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if o, err := r.Wait(t.Context()); err != nil || o.Code != 0 {
		t.Fatalf("outcome %v, %v", o, err)
	}
	page, err := c.Changes(t.Context(), r.ID(), spool.ChangeQuery{Patch: true, MaxBytes: 1 << 30})
	if err != nil || len(page.Changes) != 2 || page.More != 2 {
		t.Fatalf("%d changes and %d more, %v", len(page.Changes), page.More, err)
	}
	page, err = c.Changes(t.Context(), r.ID(), spool.ChangeQuery{Patch: true, After: page.Changes[1].Path})
	if err != nil || len(page.Changes) != 2 || page.More != 0 || string(page.Changes[1].Base64) != "d\xff" {
		t.Fatalf("%d changes and %d more, %v", len(page.Changes), page.More, err)
	}
	if page, err = c.Changes(t.Context(), r.ID(), spool.ChangeQuery{After: "d\xff"}); err != nil || len(page.Changes) != 0 {
		t.Errorf("after the last one: %+v, %v", page, err)
	}
	if page, err = c.Apply(t.Context(), r.ID(), []string{"d\xff"}, false); err != nil || len(page.Changes) != 1 {
		t.Errorf("apply: %+v, %v", page, err)
	}
	if _, err := os.Stat(filepath.Join(spec.Cwd, "d\xff")); err != nil {
		t.Error(err)
	}
	if _, err := c.Remove(t.Context(), []spool.RunID{r.ID()}, false); err != nil {
		t.Error(err)
	}
}
