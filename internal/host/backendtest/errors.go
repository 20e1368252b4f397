package backendtest

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spool-run/spool"
)

// unknownBlob is a digest that no blob of a test has.
const unknownBlob = spool.Digest("sha256:" + "00000000000000000000000000000000" + "00000000000000000000000000000000")

// calls makes every call of a backend that names a run.
func calls(ctx context.Context, b spool.Backend, id spool.RunID) map[string]error {
	errs := make(map[string]error)
	_, errs["stat"] = b.Stat(ctx, id)
	_, errs["read"] = b.Read(ctx, id, spool.Query{})
	_, errs["send"] = b.Send(ctx, id, spool.Input{Kind: spool.InputEOF})
	errs["interrupt"] = b.Control(ctx, id, spool.Control{Op: spool.ControlInterrupt})
	errs["kill"] = b.Control(ctx, id, spool.Control{Op: spool.ControlKill})
	_, errs["blob"] = b.Blob(ctx, id, unknownBlob)
	errs["follow"] = errors.New("no event and no error")
	for _, err := range b.Follow(ctx, id, 0) {
		errs["follow"] = err
	}
	return errs
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) || err == nil != (want == nil) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func unknownRun(t *testing.T, b spool.Backend) {
	for _, id := range []spool.RunID{"nobody", "", "../x", "UPPER", "a-b", spool.RunID(strings.Repeat("a", 129))} {
		for what, err := range calls(t.Context(), b, id) {
			wantErr(t, what+" of "+string(id), err, spool.ErrNotFound)
		}
	}
}

func unknownBlobs(t *testing.T, b spool.Backend) {
	r := start(t, b, sh("true"))
	_, err := r.Blob(t.Context(), unknownBlob)
	wantErr(t, "unknown blob", err, spool.ErrNotFound)
	for _, d := range []spool.Digest{"", "nonsense", "sha256:../../x", unknownBlob + "0"} {
		_, err := r.Blob(t.Context(), d)
		wantErr(t, "blob "+string(d), err, spool.ErrInvalid)
	}
	collect(t, r)
}

func otherRunOfTheSameID(t *testing.T, b spool.Backend) {
	spec := sh("true")
	spec.ID = "taken"
	collect(t, start(t, b, spec))
	again, err := b.Start(t.Context(), spec)
	if err != nil || again.ID != spec.ID {
		t.Errorf("the same start again: %+v, %v", again, err)
	}
	spec.Argv = []string{"false"}
	_, err = b.Start(t.Context(), spec)
	wantErr(t, "another start", err, spool.ErrExists)
}

func sendErrors(t *testing.T, b spool.Backend) {
	spec := sh("echo ready; read x")
	spec.Stdin = true
	r := start(t, b, spec)
	until(t, r, "ready")
	send := func(in spool.Input) error {
		_, err := r.Send(t.Context(), in)
		return err
	}
	for _, kind := range []spool.InputKind{spool.InputCell, spool.InputPrompt, spool.InputAnswer, "song", ""} {
		wantErr(t, "send "+string(kind)+" to a process", send(spool.Input{Kind: kind, Data: []byte("{}")}), spool.ErrUnsupported)
	}
	wantErr(t, "end of input", send(spool.Input{Kind: spool.InputEOF}), nil)
	wantErr(t, "stdin after its end", send(spool.Input{Kind: spool.InputStdin, Bytes: []byte("x")}), spool.ErrInputClosed)
	collect(t, r)
	for _, kind := range []spool.InputKind{spool.InputStdin, spool.InputEOF, spool.InputCell, spool.InputPrompt, spool.InputAnswer} {
		wantErr(t, "send "+string(kind)+" after the end", send(spool.Input{Kind: kind, Data: []byte("{}")}), spool.ErrInputClosed)
	}
}

func controlErrors(t *testing.T, b spool.Backend) {
	spec := sh("echo ready; read x")
	spec.TTY = &spool.Size{Rows: 24, Cols: 80}
	tty := start(t, b, spec)
	spec.TTY, spec.Stdin = nil, true
	piped := start(t, b, spec)
	for _, r := range []*spool.Run{tty, piped} {
		until(t, r, "ready")
		wantErr(t, "unknown control", r.Control(t.Context(), spool.Control{Op: "dance"}), spool.ErrUnsupported)
		wantErr(t, "restart of a process", r.Control(t.Context(), spool.Control{Op: spool.ControlRestart}), spool.ErrUnsupported)
		wantErr(t, "unknown signal", r.Signal(t.Context(), "SIGNOTHING"), spool.ErrInvalid)
	}
	wantErr(t, "resize without a terminal", piped.Resize(t.Context(), spool.Size{Rows: 1, Cols: 1}), spool.ErrUnsupported)
	wantErr(t, "resize to nothing", tty.Resize(t.Context(), spool.Size{}), spool.ErrInvalid)
	for _, r := range []*spool.Run{tty, piped} {
		wantErr(t, "kill", r.Kill(t.Context()), nil)
		collect(t, r)
		wantErr(t, "interrupt after the end", r.Interrupt(t.Context()), spool.ErrEnded)
		wantErr(t, "signal after the end", r.Signal(t.Context(), "SIGHUP"), spool.ErrEnded)
		wantErr(t, "resize after the end", r.Resize(t.Context(), spool.Size{Rows: 1, Cols: 1}), spool.ErrEnded)
		wantErr(t, "stop after the end", r.Stop(t.Context()), nil)
		wantErr(t, "kill after the end", r.Kill(t.Context()), nil)
	}
}

// closedBackend closes the backend, which the caller's cleanup does again.
func closedBackend(t *testing.T, b spool.Backend) {
	r := start(t, b, sh("true"))
	collect(t, r)
	c, ok := b.(io.Closer)
	if !ok {
		t.Fatalf("%T cannot be closed", b)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for what, err := range calls(t.Context(), b, r.ID()) {
		wantErr(t, what, err, spool.ErrClosed)
	}
	_, err := b.Start(t.Context(), sh("true"))
	wantErr(t, "start", err, spool.ErrClosed)
	n := 0
	for _, err := range b.List(t.Context(), spool.Filter{}) {
		n++
		wantErr(t, "list", err, spool.ErrClosed)
	}
	if n != 1 {
		t.Errorf("the list of a closed backend has %d entries, want one error", n)
	}
}

func endedContext(t *testing.T, b spool.Backend) {
	spec := sh("read x")
	spec.Stdin = true
	r := start(t, b, spec)
	cause := errors.New("the reader left")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	_, err := r.Read(ctx, spool.Query{Wait: 1 << 40})
	wantErr(t, "read", err, cause)
	for _, err := range r.Events(ctx, 0) {
		wantErr(t, "follow", err, cause)
	}
	wantErr(t, "kill", r.Kill(t.Context()), nil)
	collect(t, r)
}

func startErrors(t *testing.T, b spool.Backend) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("not a program"), 0o644); err != nil {
		t.Fatal(err)
	}
	gone := filepath.Join(dir, "gone")
	tests := []struct {
		name string
		spec spool.Spec
		want string
		is   error  // a sentinel or errno
		text string // with the hint
	}{
		{"no argv", spool.Spec{}, "invalid", spool.ErrInvalid, "start: argv must not be empty"},
		{"nul byte", spool.Spec{Argv: []string{"/bin/echo", "a\x00b"}}, "invalid", spool.ErrInvalid,
			"start: nul byte found in provided data"},
		{"bad id", spool.Spec{ID: "../x", Argv: []string{"/bin/true"}}, "invalid", spool.ErrInvalid,
			`start: invalid request: run id "../x" has other characters than a-z and 0-9 (use 1 to 128 of a-z and 0-9)`},
		{"id of other characters", spool.Spec{ID: "Abc-1", Argv: []string{"/bin/true"}}, "invalid", spool.ErrInvalid,
			`start: invalid request: run id "Abc-1" has other characters than a-z and 0-9 (use 1 to 128 of a-z and 0-9)`},
		{"missing program", spool.Spec{Argv: []string{"no-such-program-here"}}, "not_found", syscall.ENOENT,
			"start: exec no-such-program-here: no such file or directory (no such program in the PATH of its environment)"},
		{"not executable", spool.Spec{Argv: []string{plain}}, "not_executable", syscall.EACCES,
			"start: exec " + plain + ": permission denied (the file is not executable)"},
		{"missing cwd", spool.Spec{Argv: []string{"/bin/true"}, Cwd: gone}, "bad_cwd", syscall.ENOENT,
			"start: chdir " + gone + ": no such file or directory (the working directory must exist on the machine that runs the program)"},
		{"cwd is a file", spool.Spec{Argv: []string{"/bin/true"}, Cwd: plain}, "bad_cwd", syscall.ENOTDIR,
			"start: chdir " + plain + ": not a directory (the working directory must exist on the machine that runs the program)"},
		{"no such engine", spool.Spec{Engine: "teapot", Argv: []string{"/bin/true"}}, "unsupported", spool.ErrUnsupported, `start: not supported: no engine "teapot" (`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := b.Start(t.Context(), tt.spec)
			var se *spool.StartError
			if !errors.As(err, &se) {
				t.Fatalf("error %v is no StartError", err)
			}
			if se.Reason != tt.want {
				t.Errorf("reason %q, want %q (%v)", se.Reason, tt.want, err)
			}
			wantErr(t, "start", err, tt.is)
			text := err.Error()
			if tt.want == "unsupported" { // the hint names the engines that there are
				text, _, _ = strings.Cut(text, "this host has ")
			}
			if text != tt.text {
				t.Errorf("it says %q, want %q", text, tt.text)
			}
		})
	}
	for info, err := range b.List(t.Context(), spool.Filter{}) {
		t.Errorf("a failed start left %+v, %v", info, err)
	}
}
