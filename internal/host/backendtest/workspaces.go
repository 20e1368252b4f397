package backendtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/skiptest"
)

// workspacesOf returns the backend as workspaces, and a directory for runs to work on.
func workspacesOf(t *testing.T, b spool.Backend) (spool.Workspaces, string) {
	t.Helper()
	w, ok := b.(spool.Workspaces)
	if !ok {
		t.Fatalf("%T has no workspaces", b)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"kept": "kept\n", "changed": "before\n", "deleted": "deleted\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return w, dir
}

// startWork starts a script on a view of a directory. Its changes are deleted before
// the state directory is: the kernel leaves directories that a user cannot remove.
func startWork(t *testing.T, b spool.Backend, dir, kind, script string) *spool.Run {
	t.Helper()
	spec := sh(script)
	spec.Cwd, spec.Workspace, spec.Stdin = dir, &spool.Workspace{Kind: kind}, true
	r, err := spool.Start(t.Context(), b, spec)
	if kind == "overlay" && errors.Is(err, spool.ErrUnsupported) {
		skiptest.Missing(t, "%v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context()) // which has ended
		_ = r.Kill(ctx)
		if _, err := r.Wait(ctx); err == nil {
			if remover, ok := b.(spool.Remover); ok {
				_, _ = remover.Remove(ctx, []spool.RunID{r.ID()}, false) // a test may have closed the backend
			}
		}
	})
	return r
}

// endWork waits for the end of a script.
func endWork(t *testing.T, r *spool.Run) {
	t.Helper()
	if o, err := r.Wait(t.Context()); err != nil || o.Code != 0 {
		t.Fatalf("outcome %v, %v", o, err)
	}
}

// paths describes changes in one line.
func paths(page spool.ChangePage) string {
	var b strings.Builder
	for _, c := range page.Changes {
		b.WriteString(c.Op[:1] + " " + c.Path)
		if c.Conflict != "" {
			b.WriteString("!")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// workspaces lists, applies and discards what runs changed on views of one directory.
// The second of two that changed the same file has a conflict, and none of its changes
// is made.
func workspaces(t *testing.T, b spool.Backend) {
	w, dir := workspacesOf(t, b)
	ctx := t.Context()
	script := "echo %s >changed; rm deleted; mkdir new; echo %s >new/%s; head -n 1 >/dev/null"
	one := startWork(t, b, dir, "overlay", strings.ReplaceAll(script, "%s", "one"))
	two := startWork(t, b, dir, "overlay", strings.ReplaceAll(script, "%s", "two"))

	// While a run lives, its changes can be listed only.
	if _, err := w.Apply(ctx, one.ID(), nil, false); !errors.Is(err, spool.ErrBusy) {
		t.Errorf("apply of a live run: %v", err)
	}
	if err := w.Discard(ctx, one.ID()); !errors.Is(err, spool.ErrBusy) {
		t.Errorf("discard of a live run: %v", err)
	}
	if _, err := w.Changes(ctx, one.ID(), spool.ChangeQuery{}); err != nil {
		t.Errorf("changes of a live run: %v", err)
	}
	for _, r := range []*spool.Run{one, two} {
		if _, err := r.Stdin(ctx).Write([]byte("go\n")); err != nil {
			t.Fatal(err)
		}
		endWork(t, r)
	}

	const all = "m changed\nd deleted\na new\na new/one\n"
	page, err := w.Changes(ctx, one.ID(), spool.ChangeQuery{})
	if err != nil || paths(page) != all || page.More != 0 {
		t.Errorf("changes %q and %d more, %v", paths(page), page.More, err)
	}
	page, err = w.Changes(ctx, one.ID(), spool.ChangeQuery{After: "changed", MaxBytes: 1, Patch: true})
	if err != nil || paths(page) != "d deleted\n" || page.More != 2 || !strings.Contains(page.Changes[0].Patch, "\n-deleted\n") {
		t.Errorf("page %+v, %v", page, err)
	}
	if page, err = w.Apply(ctx, one.ID(), nil, true); err != nil || paths(page) != all {
		t.Errorf("dry apply %q, %v", paths(page), err)
	}
	content(t, dir, "changed", "before\n")
	if _, err = w.Apply(ctx, one.ID(), []string{"other"}, false); !errors.Is(err, spool.ErrNotFound) {
		t.Errorf("apply of a path without changes: %v", err)
	}
	if _, err = w.Apply(ctx, one.ID(), []string{"../other"}, false); !errors.Is(err, spool.ErrInvalid) {
		t.Errorf("apply of a path outside: %v", err)
	}
	if page, err = w.Apply(ctx, one.ID(), []string{"changed", "new"}, false); err != nil || paths(page) != "m changed\na new\na new/one\n" {
		t.Errorf("apply of two paths: %q, %v", paths(page), err)
	}
	content(t, dir, "changed", "one\n")
	content(t, dir, "deleted", "deleted\n")
	if page, err = w.Changes(ctx, one.ID(), spool.ChangeQuery{}); err != nil || paths(page) != "d deleted\n" {
		t.Errorf("changes that are left: %q, %v", paths(page), err)
	}

	page, err = w.Apply(ctx, two.ID(), nil, false)
	if !errors.Is(err, spool.ErrExists) || paths(page) != "m changed!\nd deleted\na new/two\n" || !strings.Contains(err.Error(), "changed") {
		t.Errorf("apply with a conflict: %q, %v", paths(page), err)
	}
	content(t, dir, "deleted", "deleted\n")
	content(t, dir, "new/two", "")
	if err := w.Discard(ctx, two.ID()); err != nil {
		t.Errorf("discard: %v", err)
	}
	if _, err := w.Changes(ctx, two.ID(), spool.ChangeQuery{}); !errors.Is(err, spool.ErrNotFound) {
		t.Errorf("changes that were discarded: %v", err)
	}
	if _, err := w.Apply(ctx, two.ID(), nil, false); !errors.Is(err, spool.ErrNotFound) {
		t.Errorf("apply of what was discarded: %v", err)
	}
}

// content checks a file of a directory; an empty text means that there is none.
func content(t *testing.T, dir, name, want string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if want == "" && errors.Is(err, os.ErrNotExist) {
		return
	}
	if err != nil || string(b) != want {
		t.Errorf("%s has %q, %v, want %q", name, b, err, want)
	}
}

// workspaceErrors asks for changes of runs that have none to apply.
func workspaceErrors(t *testing.T, b spool.Backend) {
	w, dir := workspacesOf(t, b)
	ctx := t.Context()
	none := start(t, b, sh("true"))
	endWork(t, none)
	snapshot := startWork(t, b, dir, "snapshot", "echo x >direct")
	endWork(t, snapshot)
	each := func(id spool.RunID) (errs []error) {
		_, err := w.Changes(ctx, id, spool.ChangeQuery{})
		errs = append(errs, err)
		_, err = w.Apply(ctx, id, nil, false)
		return append(errs, err, w.Discard(ctx, id))
	}
	for i, err := range each(none.ID()) {
		if !errors.Is(err, spool.ErrUnsupported) || !strings.Contains(err.Error(), "the run has no workspace") {
			t.Errorf("method %d of a run without a workspace: %v", i, err)
		}
	}
	for i, err := range each("nosuchrun") {
		if !errors.Is(err, spool.ErrNotFound) {
			t.Errorf("method %d of an unknown run: %v", i, err)
		}
	}
	got := each(snapshot.ID())
	if got[0] != nil || got[1] != nil || !errors.Is(got[2], spool.ErrUnsupported) {
		t.Errorf("methods of a snapshot: %v", got)
	}
	if page, err := w.Changes(ctx, snapshot.ID(), spool.ChangeQuery{}); err != nil || paths(page) != "a direct\n" {
		t.Errorf("changes of a snapshot: %q, %v", paths(page), err)
	}
	bad := sh("true")
	bad.Workspace = &spool.Workspace{Kind: "copy"}
	var se *spool.StartError
	if _, err := spool.Start(ctx, b, bad); !errors.As(err, &se) || se.Reason != "invalid" {
		t.Errorf("a kind that there is not: %v", err)
	}
}
