package codextest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/spool-run/spool/internal/modeltest"
)

// turnTimeout limits one run of codex in a scenario. It is longer than the 25
// seconds for which codex tries to reconnect, and than a busy machine takes.
const turnTimeout = 3 * time.Minute

// turn is a run of codex with a script, in the background.
type turn struct {
	model  *modeltest.Model
	ctx    context.Context // ends with codex, or at the timeout
	cancel context.CancelFunc
	done   chan struct{}
	result *Result
	err    error
}

// begin starts codex with a scripted model and the server as its environment.
// It ends with the test.
func begin(t testing.TB, serverURL, dir string, script ...modeltest.Step) *turn {
	t.Helper()
	return beginWith(t, Config{Server: serverURL, Dir: dir}, script...)
}

// beginWith is [begin] with more of the configuration.
func beginWith(t testing.TB, cfg Config, script ...modeltest.Step) *turn {
	t.Helper()
	cfg.Binary = Binary(t)
	model, err := modeltest.New(modeltest.InOrder(script...))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), turnTimeout)
	u := &turn{model: model, ctx: ctx, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(u.done)
		defer cancel()
		cfg.Model = model.URL()
		u.result, u.err = Exec(ctx, cfg)
	}()
	t.Cleanup(func() {
		cancel()
		model.Close()
		<-u.done
	})
	return u
}

// end waits for codex and fails the test unless it played the whole script and
// exited with 0. It returns the tool outputs that the model received.
func (u *turn) end(t testing.TB) (*Result, []Output) {
	t.Helper()
	<-u.done
	err := u.err
	if err == nil {
		err = u.model.Err()
	}
	if err == nil && u.result.ExitCode != 0 {
		err = fmt.Errorf("exit code %d", u.result.ExitCode)
	}
	if err != nil {
		u.explain(t)
		t.Fatalf("codex: %v", err)
	}
	return u.result, Outputs(u.model)
}

// explain stops codex if it is running, and logs its state.
func (u *turn) explain(t testing.TB) {
	t.Helper()
	u.cancel()
	<-u.done
	if err := u.model.Err(); err != nil {
		t.Logf("model: %v", err)
	}
	for _, out := range Outputs(u.model) {
		t.Logf("tool output: %s", out.Raw)
	}
	if u.result == nil {
		t.Logf("codex: %v", u.err)
		return
	}
	for _, e := range u.result.Events {
		t.Logf("event: %s", e.Raw)
	}
	t.Logf("exit code %d, stderr:\n%s", u.result.ExitCode, u.result.Stderr)
}
