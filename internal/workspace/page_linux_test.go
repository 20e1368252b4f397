package workspace

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/spool-run/spool"
)

// TestPagesOfChanges lists changes one by one, with names that sort around those of
// directories, and a patch that is larger than a page.
func TestPagesOfChanges(t *testing.T) {
	m := newMaker(t)
	for _, kind := range []string{Overlay, Snapshot} {
		t.Run(kind, func(t *testing.T) {
			base := tempDir(t)
			fill(t, base, map[string]string{"a/b/x": "x", "a/y": "y", "gone/z/1": "1", "gone/2": "2"})
			script := `rm -r gone; echo changed > a/y; echo 1 > a-b; echo 1 > a.b; echo 1 > a0; mkdir a/b/c; echo 1 > a/b/c/d; echo 1 > a/b0; echo 1 > "$(printf 'a/\\377')"; chmod 700 .`
			var w *Workspace
			if kind == Overlay {
				w = m.run(t, base, script)
			} else {
				w = m.make(t, base, kind)
				cmd := exec.Command("sh", "-ec", script)
				cmd.Dir = base
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
			all, err := w.Changes(t.Context(), spool.ChangeQuery{})
			if err != nil || len(all.Changes) < 10 || all.More != 0 {
				t.Fatalf("%q, %d more, %v", lines(all.Changes), all.More, err)
			}
			var list []spool.Change
			for after := ""; ; {
				page, err := w.Changes(t.Context(), spool.ChangeQuery{After: after, MaxBytes: 1, Patch: true})
				if err != nil || len(page.Changes) != 1 || page.More != len(all.Changes)-len(list)-1 {
					t.Fatalf("after %q: %q and %d more, %v", after, lines(page.Changes), page.More, err)
				}
				last := &page.Changes[0]
				list = append(list, *last)
				if after = last.Path; len(last.Base64) > 0 {
					after = string(last.Base64)
				}
				if page.More == 0 {
					break
				}
			}
			same(t, "pages", lines(list), lines(all.Changes))
		})
	}
}

// TestPagesAreBounded fills a page with many changes, and one with large ones. Those
// with a conflict come first if there is no room for all.
func TestPagesAreBounded(t *testing.T) {
	many := make([]spool.Change, MaxPage+2)
	for i := range many {
		many[i].Path = fmt.Sprint(i)
	}
	many[MaxPage+1].Conflict = "changed since the run began"
	if p := firstOf(many); len(p.Changes) != MaxPage || p.More != 2 || p.Changes[0].Conflict == "" || p.Changes[1].Path != "0" {
		t.Errorf("%d changes and %d more; the first is %+v", len(p.Changes), p.More, p.Changes[0])
	}
	large := spool.Change{Patch: strings.Repeat("x", MaxPageBytes/2)}
	if p := firstOf([]spool.Change{large, large, large}); len(p.Changes) != 2 || p.More != 1 {
		t.Errorf("%d large changes and %d more", len(p.Changes), p.More)
	}
}
