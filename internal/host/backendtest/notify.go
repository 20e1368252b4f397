package backendtest

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/fifotest"
)

// notifies checks that the end of a run starts the command that tells of it, with
// the environment of the run, as a run of its own.
func notifies(t *testing.T, b spool.Backend) {
	dir := t.TempDir()
	pipe := fifotest.New(t, dir, "told")
	spec := sh("exit 3")
	spec.Env["TOLD"], spec.Env["SECRET"] = filepath.Join(dir, "told"), "hidden"
	spec.Notify = []string{"/bin/sh", "-c", `echo "$SPOOL_RUN|$SPOOL_STATUS|$SPOOL_EXIT_CODE|$SECRET" > "$TOLD"; echo told`}
	r := start(t, b, spec)
	line, err := pipe.Line(t.Context())
	if want := string(r.ID()) + "|exited 3|3|hidden"; err != nil || line != want {
		t.Errorf("told %q, %v; want %q", line, err, want)
	}
	var told []spool.Info
	for info, err := range b.List(t.Context(), spool.Filter{Labels: map[string]string{"spool.notify": string(r.ID())}}) {
		if err != nil {
			t.Fatal(err)
		}
		told = append(told, info)
	}
	if len(told) != 1 || strings.Contains(strings.Join(told[0].Argv, " "), "hidden") {
		t.Fatalf("notifications: %+v", told)
	}
	if out := output(collect(t, spool.Attach(b, told[0].ID)), spool.Stdout); out != "told\n" {
		t.Errorf("the notification wrote %q", out)
	}
}
