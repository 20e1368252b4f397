package enginetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
)

// path is the environment most tests give their processes.
var path = map[string]string{"PATH": "/usr/local/bin:/usr/bin:/bin"}

func shell(script string) spool.Spec {
	return spool.Spec{Argv: []string{"/bin/sh", "-c", script}, Env: path}
}

func start(t *testing.T, e engine.Engine, spec spool.Spec) (engine.Session, *Log) {
	t.Helper()
	log := NewLog()
	s, err := e.Start(t.Context(), spec, log)
	if err != nil {
		t.Fatalf("start %q: %v", spec.Argv, err)
	}
	t.Cleanup(func() {
		if err := s.Control(context.Background(), spool.Control{Op: spool.ControlKill}); err != nil && !errors.Is(err, spool.ErrEnded) {
			t.Errorf("kill: %v", err)
		}
		s.Wait()
	})
	return s, log
}

func send(t *testing.T, s engine.Session, text string) {
	t.Helper()
	if err := s.Send(t.Context(), spool.Input{Kind: spool.InputStdin, Bytes: []byte(text)}); err != nil {
		t.Fatalf("send: %v", err)
	}
}

// argvCases are what every engine of argv processes has.
func argvCases() []testCase {
	tests := []struct {
		name string
		test func(t *testing.T, e engine.Engine)
	}{
		{"starts_and_exits", startsAndExits},
		{"streams_output", streamsOutput},
		{"pushes_events", pushesEvents},
		{"writes_then_reads_pipe", writesThenReadsPipe},
		{"writes_then_reads_pty", writesThenReadsPTY},
		{"rejects_write_without_stdin", rejectsWrite},
		{"closes_stdin", closesStdin},
		{"rejects_write_after_exit", rejectsWriteAfterExit},
		{"send_ends_with_context", sendEndsWithContext},
		{"passes_argv_exactly", passesArgv},
		{"shows_arg0", showsArg0},
		{"environment_is_exact", environmentIsExact},
		{"runs_in_cwd", runsInCwd},
		{"reports_signals_as_128_plus_n", reportsSignals},
		{"interrupts", interrupts},
		{"resizes_terminal", resizes},
		{"stop_grants_grace", stopGrantsGrace},
		{"stop_kills_after_grace", stopKillsAfterGrace},
		{"control_is_idempotent", controlIsIdempotent},
		{"late_output_follows_exited", lateOutput},
		{"bytes_are_exact", bytesAreExact},
		{"start_errors_are_typed", startErrors},
		{"sequence_has_no_holes", sequence},
		{"runs_are_independent", independent},
	}
	var cases []testCase
	for _, c := range tests {
		cases = append(cases, testCase{GroupArgv, c.name, func(t *testing.T, s *Subject) { c.test(t, s.Open(t)) }})
	}
	return cases
}

func startsAndExits(t *testing.T, e engine.Engine) {
	for _, code := range []int{0, 7, 255} {
		s, log := start(t, e, shell(fmt.Sprintf("exit %d", code)))
		if s.Pid() <= 0 {
			t.Errorf("pid is %d", s.Pid())
		}
		want := spool.Outcome{Kind: spool.Exited, Code: code}
		if got := Wait(t, s); got != want {
			t.Errorf("outcome is %v, want %v", got, want)
		}
		events := log.All(t)
		if len(events) != 1 || events[0].Kind != spool.KindExited {
			t.Fatalf("log is\n%s", log.Dump(t))
		}
		if got, ok := events[0].Outcome(); !ok || got != want {
			t.Errorf("the event says %v, want %v", got, want)
		}
		if got, want := string(events[0].Data), fmt.Sprintf(`{"code":%d}`, code); got != want {
			t.Errorf("exit status is %s, want %s", got, want)
		}
	}
}

func streamsOutput(t *testing.T, e engine.Engine) {
	spec := shell("echo one; read x; echo two >&2; read x; echo three; exit 3")
	spec.Stdin = true
	s, log := start(t, e, spec)
	log.UntilOutput(t, spool.Stdout, "one\n")
	send(t, s, "\n")
	log.UntilOutput(t, spool.Stderr, "two\n")
	send(t, s, "\n")
	log.UntilOutput(t, spool.Stdout, "three\n")
	if got, want := Wait(t, s), (spool.Outcome{Kind: spool.Exited, Code: 3}); got != want {
		t.Errorf("outcome %v, want %v", got, want)
	}
}

func pushesEvents(t *testing.T, e engine.Engine) {
	spec := shell(`printf 'event output\n'; read x; printf 'event err\n' >&2; exit 7`)
	spec.Stdin = true
	s, log := start(t, e, spec)
	log.UntilOutput(t, spool.Stdout, "event output\n")
	send(t, s, "\n")
	Wait(t, s)
	if _, err := log.Append(spool.Event{Kind: spool.KindClosed}); err != nil {
		t.Fatal(err)
	}
	type row struct {
		Seq    spool.Seq
		Kind   spool.Kind
		Stream spool.Stream
		Bytes  string
		Data   string
	}
	var got []row
	for _, e := range log.All(t) {
		got = append(got, row{e.Seq, e.Kind, e.Stream, string(e.Bytes), string(e.Data)})
	}
	want := []row{
		{1, spool.KindOutput, spool.Stdout, "event output\n", ""},
		{2, spool.KindOutput, spool.Stderr, "event err\n", ""},
		{3, spool.KindExited, "", "", `{"code":7}`},
		{4, spool.KindClosed, "", "", ""},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
}

func writesThenReadsPipe(t *testing.T, e engine.Engine) {
	spec := spool.Spec{Argv: []string{"cat"}, Env: path, Stdin: true}
	s, log := start(t, e, spec)
	for _, text := range []string{"hello\n", "", "world\x00\xff\n"} {
		send(t, s, text)
		if text != "" {
			log.UntilOutput(t, spool.Stdout, text)
		}
	}
	if err := s.Send(t.Context(), spool.Input{Kind: spool.InputEOF}); err != nil {
		t.Fatal(err)
	}
	if got := Wait(t, s); got.Code != 0 {
		t.Errorf("outcome is %v", got)
	}
}

func writesThenReadsPTY(t *testing.T, e engine.Engine) {
	spec := shell(`test -t 0 && test -t 1 && test -t 2 && read x && echo "<$x>"`)
	spec.TTY = &spool.Size{}
	s, log := start(t, e, spec)
	send(t, s, "hello\n")
	log.UntilOutput(t, spool.PTY, "<hello>\r\n")
	if got := Wait(t, s); got.Code != 0 {
		t.Errorf("outcome is %v", got)
	}
}

func rejectsWrite(t *testing.T, e engine.Engine) {
	s, _ := start(t, e, spool.Spec{Argv: []string{"sleep", "1000"}, Env: path})
	for _, kind := range []spool.InputKind{spool.InputStdin, spool.InputEOF} {
		if err := s.Send(t.Context(), spool.Input{Kind: kind, Bytes: []byte("x")}); !errors.Is(err, spool.ErrInputClosed) {
			t.Errorf("send %s: %v, want %v", kind, err, spool.ErrInputClosed)
		}
	}
	s, _ = start(t, e, spool.Spec{Argv: []string{"cat"}, Env: path}) // reads the end at once
	if got := Wait(t, s); got.Code != 0 {
		t.Errorf("outcome is %v", got)
	}
}

func closesStdin(t *testing.T, e engine.Engine) {
	for _, tty := range []bool{false, true} {
		spec := spool.Spec{Argv: []string{"cat"}, Env: path, Stdin: true}
		if tty {
			spec.TTY = &spool.Size{Rows: 24, Cols: 80}
		}
		s, log := start(t, e, spec)
		send(t, s, "line\n")
		stream := spool.Stdout
		if tty {
			stream = spool.PTY
		}
		log.UntilOutput(t, stream, "line")
		if err := s.Send(t.Context(), spool.Input{Kind: spool.InputEOF}); err != nil {
			t.Fatal(err)
		}
		if got := Wait(t, s); got != (spool.Outcome{Kind: spool.Exited}) {
			t.Errorf("tty %v: outcome is %v", tty, got)
		}
	}
}

func rejectsWriteAfterExit(t *testing.T, e engine.Engine) {
	for _, tty := range []*spool.Size{nil, {Rows: 24, Cols: 80}} {
		spec := shell("exit 0")
		spec.Stdin, spec.TTY = true, tty
		s, _ := start(t, e, spec)
		Wait(t, s)
		if err := s.Send(t.Context(), spool.Input{Kind: spool.InputStdin, Bytes: []byte("x")}); !errors.Is(err, spool.ErrInputClosed) {
			t.Errorf("send after exit: %v, want %v", err, spool.ErrInputClosed)
		}
	}
}

func sendEndsWithContext(t *testing.T, e engine.Engine) {
	spec := spool.Spec{Argv: []string{"sleep", "1000"}, Env: path, Stdin: true}
	s, _ := start(t, e, spec)
	big := make([]byte, 1<<20)
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Send(ctx, spool.Input{Kind: spool.InputStdin, Bytes: big}) }()
	cancel(cause)
	if err := <-done; !errors.Is(err, cause) {
		t.Errorf("send: %v, want %v", err, cause)
	}
	// A send that waits ends with the process, too.
	go func() { done <- s.Send(t.Context(), spool.Input{Kind: spool.InputStdin, Bytes: big}) }()
	if err := s.Control(t.Context(), spool.Control{Op: spool.ControlKill}); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, spool.ErrInputClosed) {
		t.Errorf("send: %v, want %v", err, spool.ErrInputClosed)
	}
}

func passesArgv(t *testing.T, e engine.Engine) {
	args := []string{"", " ", "$HOME", "a b", "'", `"`, "*", "\n", "\xff", "-n", "ünï", strings.Repeat("x", 100_000)}
	s, log := start(t, e, spool.Spec{Argv: append([]string{"printf", `%s\0`}, args...), Env: path})
	Wait(t, s)
	want := strings.Join(args, "\x00") + "\x00"
	if got := string(log.Output(t, spool.Stdout)); got != want {
		t.Errorf("arguments are %.300q", got)
	}
}

func showsArg0(t *testing.T, e engine.Engine) {
	for _, tty := range []*spool.Size{nil, {Rows: 24, Cols: 80}} {
		s, log := start(t, e, spool.Spec{Argv: []string{"sh", "-c", `tr '\0' '\n' < /proc/$$/cmdline | head -n 1`}, Arg0: "another name", Env: path, TTY: tty})
		Wait(t, s)
		out := append(log.Output(t, spool.Stdout), log.Output(t, spool.PTY)...)
		if got := strings.TrimSpace(string(out)); got != "another name" {
			t.Errorf("argv[0] is %q", got)
		}
	}
}

func environmentIsExact(t *testing.T, e engine.Engine) {
	t.Setenv("SPOOL_TEST_LEAK", "1")
	env := map[string]string{"A": "1", "B": "with space\nand line", "EMPTY": "", "PATH": "/usr/bin:/bin"}
	s, log := start(t, e, spool.Spec{Argv: []string{"env", "-0"}, Env: env})
	Wait(t, s)
	got := make(map[string]string)
	for v := range strings.SplitSeq(strings.TrimSuffix(string(log.Output(t, spool.Stdout)), "\x00"), "\x00") {
		name, value, _ := strings.Cut(v, "=")
		if name == "SPOOL_TREE" { // how some engines find the process again
			continue
		}
		got[name] = value
	}
	if d := cmp.Diff(env, got); d != "" {
		t.Errorf("environment (-want +got):\n%s", d)
	}
}

func runsInCwd(t *testing.T, e engine.Engine) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "program"), []byte("#!/bin/sh\npwd\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, argv := range [][]string{{"pwd"}, {"./program"}, {"program"}} {
		s, log := start(t, e, spool.Spec{Argv: argv, Cwd: dir, Env: map[string]string{"PATH": "/usr/bin:/bin:"}})
		Wait(t, s)
		if got := string(log.Output(t, spool.Stdout)); got != dir+"\n" {
			t.Errorf("%v: working directory is %q, want %q", argv, got, dir)
		}
	}
}

func lateOutput(t *testing.T, e engine.Engine) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	s, log := start(t, e, shell("echo now; (read x < "+fifo+"; echo late) & exit 5"))
	log.Until(t, "exited", func(e spool.Event) bool { return e.Kind == spool.KindExited })
	// Opened for reading and writing, so that opening does not block.
	f, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("\n"); err != nil {
		t.Fatal(err)
	}
	if got := Wait(t, s); got.Code != 5 {
		t.Errorf("outcome is %v", got)
	}
	var got []string
	for _, e := range log.All(t) {
		got = append(got, string(e.Kind)+" "+string(e.Bytes))
	}
	if d := cmp.Diff([]string{"output now\n", "exited ", "output late\n"}, got); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
}

func bytesAreExact(t *testing.T, e engine.Engine) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	want := bytes.Repeat(all, 4000)
	spec := spool.Spec{Argv: []string{"tee", "/dev/stderr"}, Env: path, Stdin: true}
	s, log := start(t, e, spec)
	send(t, s, string(want))
	if err := s.Send(t.Context(), spool.Input{Kind: spool.InputEOF}); err != nil {
		t.Fatal(err)
	}
	Wait(t, s)
	for _, stream := range []spool.Stream{spool.Stdout, spool.Stderr} {
		if got := log.Output(t, stream); !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, want the %d that were sent", stream, len(got), len(want))
		}
	}
}

func startErrors(t *testing.T, e engine.Engine) {
	dir := t.TempDir()
	file := func(name, content string, mode os.FileMode) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return p
	}
	plain := file("plain", "data", 0o644)
	script := file("script", "echo no interpreter line\n", 0o755)
	tests := []struct {
		name   string
		spec   spool.Spec
		reason string
		errno  error
	}{
		{"no argv", spool.Spec{}, engine.StartInvalid, nil},
		{"empty program", spool.Spec{Argv: []string{""}}, engine.StartNotFound, syscall.ENOENT},
		{"no such program", spool.Spec{Argv: []string{"no-such-program"}, Env: path}, engine.StartNotFound, syscall.ENOENT},
		{"no such file", spool.Spec{Argv: []string{"/no/such/program"}}, engine.StartNotFound, syscall.ENOENT},
		{"no such cwd", spool.Spec{Argv: []string{"/bin/true"}, Cwd: dir + "/none"}, engine.StartBadCwd, syscall.ENOENT},
		{"cwd is a file", spool.Spec{Argv: []string{"/bin/true"}, Cwd: plain}, engine.StartBadCwd, syscall.ENOTDIR},
		{"not executable", spool.Spec{Argv: []string{plain}}, engine.StartNotExecutable, syscall.EACCES},
		{"directory", spool.Spec{Argv: []string{dir}}, engine.StartNotExecutable, syscall.EACCES},
		{"not executable in PATH", spool.Spec{Argv: []string{"plain"}, Env: map[string]string{"PATH": dir}}, engine.StartNotExecutable, syscall.EACCES},
		{"bad format", spool.Spec{Argv: []string{script}}, engine.StartBadFormat, syscall.ENOEXEC},
		{"nul in argv", spool.Spec{Argv: []string{"/bin/true", "a\x00b"}}, engine.StartInvalid, nil},
		{"nul in arg0", spool.Spec{Argv: []string{"/bin/true"}, Arg0: "\x00"}, engine.StartInvalid, nil},
		{"nul in cwd", spool.Spec{Argv: []string{"/bin/true"}, Cwd: "/\x00"}, engine.StartInvalid, nil},
		{"nul in env", spool.Spec{Argv: []string{"/bin/true"}, Env: map[string]string{"A": "\x00"}}, engine.StartInvalid, nil},
		{"bad env name", spool.Spec{Argv: []string{"/bin/true"}, Env: map[string]string{"A=B": ""}}, engine.StartInvalid, nil},
		{"bad inheritance", spool.Spec{Argv: []string{"/bin/true"}, EnvPolicy: &spool.EnvPolicy{Inherit: "bogus"}}, engine.StartInvalid, nil},
		{"bad policy", spool.Spec{Argv: []string{"/bin/true"}, Limits: spool.Limits{OutputPolicy: "bogus"}}, engine.StartInvalid, nil},
		{"negative limit", spool.Spec{Argv: []string{"/bin/true"}, Limits: spool.Limits{Wall: -1}}, engine.StartInvalid, nil},
		{"arguments too large", spool.Spec{Argv: []string{"/bin/true", strings.Repeat("x", 1<<20)}}, engine.StartInvalid, syscall.E2BIG},
	}
	for _, tt := range tests {
		for _, tty := range []*spool.Size{nil, {Rows: 24, Cols: 80}} {
			tt.spec.TTY = tty
			log := NewLog()
			s, err := e.Start(t.Context(), tt.spec, log)
			var se *spool.StartError
			if s != nil || !errors.As(err, &se) {
				t.Errorf("%s: session %v, error %v", tt.name, s, err)
				continue
			}
			if se.Reason != tt.reason {
				t.Errorf("%s: reason is %q, want %q (%v)", tt.name, se.Reason, tt.reason, err)
			}
			if tt.errno != nil && !errors.Is(err, tt.errno) {
				t.Errorf("%s: %v, want %v inside", tt.name, err, tt.errno)
			}
			if strings.HasPrefix(tt.name, "nul") && se.Err.Error() != "nul byte found in provided data" {
				t.Errorf("%s: %v", tt.name, se.Err)
			}
			if n := len(log.All(t)); n != 0 {
				t.Errorf("%s: %d events were logged", tt.name, n)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.Start(ctx, spool.Spec{Argv: []string{"/bin/true"}}, NewLog()); !errors.Is(err, context.Canceled) {
		t.Errorf("start with an ended context: %v", err)
	}
}

func sequence(t *testing.T, e engine.Engine) {
	s, log := start(t, e, shell(`i=0; while [ $i -lt 200 ]; do echo $i; echo $i >&2; i=$((i+1)); done`))
	Wait(t, s)
	var last spool.Seq
	for _, e := range log.All(t) {
		if e.Seq != last+1 {
			t.Errorf("event %d follows %d", e.Seq, last)
		}
		last = e.Seq
	}
	var want strings.Builder
	for i := range 200 {
		fmt.Fprintln(&want, i)
	}
	for _, stream := range []spool.Stream{spool.Stdout, spool.Stderr} {
		if got := string(log.Output(t, stream)); got != want.String() {
			t.Errorf("%s is %q", stream, got)
		}
	}
}

func independent(t *testing.T, e engine.Engine) {
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			log := NewLog()
			s, err := e.Start(t.Context(), shell(fmt.Sprintf("echo %d; exit %d", i, i)), log)
			if err != nil {
				t.Error(err)
				return
			}
			if got := s.Wait(); got.Code != i {
				t.Errorf("run %d: outcome is %v", i, got)
			}
			if got := string(log.Output(t, spool.Stdout)); got != fmt.Sprintf("%d\n", i) {
				t.Errorf("run %d: output is %q", i, got)
			}
		})
	}
	wg.Wait()
}
