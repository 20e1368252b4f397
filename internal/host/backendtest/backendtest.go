// Package backendtest is the test suite of backends: the local host, the keeper
// and the remote client run the same tests, because a program that holds a
// handle must not notice a difference.
package backendtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
)

// tests are the tests of the suite.
var tests = []struct {
	name string
	test func(*testing.T, spool.Backend)
}{
	{"exec_process_starts_and_exits", startsAndExits},
	{"streams_output", streamsOutput},
	{"pushes_events", pushesEvents},
	{"replays_events_after_close", replaysAfterClose},
	{"write_then_read", writeThenReadPTY},
	{"write_then_read_without_tty", writeThenReadPipe},
	{"rejects_write_without_pipe_stdin", rejectsWriteWithoutStdin},
	{"preserves_queued_events_before_subscribe", preservesQueuedEvents},
	{"start_errors_are_typed", startErrors},
	{"repeated_start_id_is_one_run", repeatedStart},
	{"a_start_waits_for_the_end", executes},
	{"repeated_input_id_is_applied_once", repeatedInput},
	{"repeated_control_id_is_done_once", repeatedControl},
	{"close_stdin_ends_the_reader", closeStdin},
	{"exited_and_closed_are_two_facts", exitedThenClosed},
	{"signals_are_128_plus_n", signalled},
	{"stop_leaves_no_process", stopTree},
	{"kill_passes_input_that_waits", killPassesInput},
	{"resize_is_seen_by_the_child", resize},
	{"finds_runs_by_prefix_and_name", finds},
	{"each_filter_selects", filters},
	{"pages_of_a_list_are_stable_while_runs_start", listPages},
	{"runs_are_counted_by_state", counts},
	{"a_watcher_learns_of_every_change", watching},
	{"a_list_goes_on_after_a_run_that_was_removed", listAfterRemoved},
	{"removes_finished_runs_only", removesFinished},
	{"a_reader_of_a_removed_run_sees_one_gap", removedUnderReader},
	{"renames_live_and_finished_runs", renames},
	{"the_end_of_a_run_starts_its_notification", notifies},
	{"of_starts_with_one_name_one_wins", namesAtOnce},
	{"of_renames_to_one_name_one_wins", renamesAtOnce},
	{"filters_that_make_no_sense_are_invalid", invalidFilters},
	{"unknown_run_is_not_found", unknownRun},
	{"unknown_blob_is_not_found", unknownBlobs},
	{"another_run_of_a_taken_id_exists", otherRunOfTheSameID},
	{"errors_of_send", sendErrors},
	{"errors_of_control", controlErrors},
	{"errors_of_a_closed_backend", closedBackend},
	{"an_ended_context_is_its_cause", endedContext},
	{"long_poll_waits_for_the_first_event", longPoll},
	{"pages_cover_the_log_without_holes", pages},
	{"random_bytes_arrive_identical", randomBytes},
	{"records_decode_to_what_follow_yields", relaysRecords},
	{"stalled_reader_changes_nothing", stalledReader},
	{"many_at_once", manyAtOnce},
	{"env_values_are_not_kept", envNotKept},
	{"search_finds_lines_of_live_and_finished_runs", searches},
	{"pages_of_a_search_hold_each_hit_once", searchPages},
	{"errors_of_a_search", searchErrors},
	{"changes_of_workspaces_are_listed_applied_and_discarded", workspaces},
	{"errors_of_workspaces", workspaceErrors},
	{"an_ended_run_has_a_ledger", ledgers},
	{"a_limit_that_was_met_is_in_the_ledger", ledgerLimits},
	{"what_is_said_is_as_new_as_the_last_event", saidAsNewAsEvents},
}

// Run runs the suite. open returns a new backend with a process engine for each
// test; the caller's cleanup closes it.
func Run(t *testing.T, open func(t *testing.T) spool.Backend) {
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { tt.test(t, open(t)) })
	}
}

// Names returns the names of the tests, which the suites of clients in other
// languages have as well.
func Names() []string {
	var names []string
	for _, tt := range tests {
		names = append(names, tt.name)
	}
	return names
}

// Shell returns the spec of a shell script.
func Shell(script string) spool.Spec {
	return spool.Spec{Argv: []string{"/bin/sh", "-c", script}, Cwd: "/", Env: map[string]string{"PATH": os.Getenv("PATH")}}
}

// Start starts a run, or ends the test.
func Start(t *testing.T, b spool.Backend, spec spool.Spec) *spool.Run {
	t.Helper()
	r, err := spool.Start(t.Context(), b, spec)
	if err != nil {
		t.Fatalf("start %q: %v", spec.Argv, err)
	}
	return r
}

var sh, start = Shell, Start

// collect reads the whole log by following it.
func collect(t *testing.T, r *spool.Run) []spool.Event {
	t.Helper()
	var all []spool.Event
	for e, err := range r.Events(t.Context(), 0) {
		if err != nil {
			t.Fatalf("after %d events: %v", len(all), err)
		}
		all = append(all, e)
	}
	checkSeqs(t, all)
	return all
}

func checkSeqs(t *testing.T, events []spool.Event) {
	t.Helper()
	for i, e := range events {
		if e.Seq != spool.Seq(i+1) {
			t.Fatalf("event %d has seq %d", i+1, e.Seq)
		}
	}
	if n := len(events); n == 0 || events[n-1].Kind != spool.KindClosed {
		t.Fatalf("log of %d events does not end with closed", n)
	}
}

// summary describes the parts of events that tests compare.
func summary(events []spool.Event) []string {
	var out []string
	for _, e := range events {
		s := fmt.Sprintf("%d %s", e.Seq, e.Kind)
		if e.Kind == spool.KindOutput {
			s += fmt.Sprintf(" %s %q", e.Stream, e.Bytes)
		}
		if o, ok := e.Outcome(); ok {
			s += " " + o.String()
		}
		out = append(out, s)
	}
	return out
}

func output(events []spool.Event, stream spool.Stream) string {
	var b strings.Builder
	for _, e := range events {
		if e.Kind == spool.KindOutput && e.Stream == stream {
			b.Write(e.Bytes)
		}
	}
	return b.String()
}

func wantOutcome(t *testing.T, r *spool.Run, want spool.Outcome) {
	t.Helper()
	got, err := r.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("outcome %v, want %v", got, want)
	}
}

// until follows the run until the output of all streams contains text.
func until(t *testing.T, r *spool.Run, text string) string {
	t.Helper()
	var seen strings.Builder
	for e, err := range r.Events(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == spool.KindOutput {
			seen.Write(e.Bytes)
			if strings.Contains(seen.String(), text) {
				return seen.String()
			}
		}
	}
	t.Fatalf("the run closed without %q: %q", text, seen.String())
	return ""
}

func startsAndExits(t *testing.T, b spool.Backend) {
	r := start(t, b, spool.Spec{Argv: []string{"true"}, Env: map[string]string{"PATH": os.Getenv("PATH")}})
	want := []string{"1 exited exited 0", "2 closed"}
	if diff := cmp.Diff(want, summary(collect(t, r))); diff != "" {
		t.Error(diff)
	}
	info, err := r.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.State != spool.StateClosed || info.Last != 2 || info.Outcome == nil || *info.Outcome != (spool.Outcome{Kind: spool.Exited}) {
		t.Errorf("info %+v", info)
	}
}

// streamsOutput reads each line before the process may write the next.
func streamsOutput(t *testing.T, b spool.Backend) {
	spec := sh("echo one; read x; echo two; read x; echo three; exit 3")
	spec.Stdin = true
	r := start(t, b, spec)
	for _, line := range []string{"one\n", "two\n"} {
		until(t, r, line)
		if _, err := r.Send(t.Context(), spool.Input{ID: line, Kind: spool.InputStdin, Bytes: []byte("\n")}); err != nil {
			t.Fatal(err)
		}
	}
	if got := output(collect(t, r), spool.Stdout); got != "one\ntwo\nthree\n" {
		t.Errorf("stdout %q", got)
	}
	wantOutcome(t, r, spool.Outcome{Kind: spool.Exited, Code: 3})
}

func pushesEvents(t *testing.T, b spool.Backend) {
	r := start(t, b, sh("printf 'event output\\n'; printf 'event err\\n' >&2; exit 7"))
	want := []string{`1 output stdout "event output\n"`, `2 output stderr "event err\n"`, "3 exited exited 7", "4 closed"}
	if diff := cmp.Diff(want, summary(collect(t, r))); diff != "" {
		t.Error(diff)
	}
}

func writeThenReadPTY(t *testing.T, b spool.Backend) {
	spec := sh("printf 'ready\\n'; read line; printf 'got:%s\\n' \"$line\"")
	spec.TTY = &spool.Size{Rows: 24, Cols: 80}
	r := start(t, b, spec)
	until(t, r, "ready")
	if _, err := r.Send(t.Context(), spool.Input{ID: "w1", Kind: spool.InputStdin, Bytes: []byte("hello\n")}); err != nil {
		t.Fatal(err)
	}
	wantOutcome(t, r, spool.Outcome{Kind: spool.Exited})
	if got := output(collect(t, r), spool.PTY); !strings.Contains(got, "got:hello\r\n") {
		t.Errorf("pty %q", got)
	}
}

func writeThenReadPipe(t *testing.T, b spool.Backend) {
	spec := sh("read line; printf 'from-stdin:%s\\n' \"$line\"")
	spec.Stdin = true
	r := start(t, b, spec)
	receipt, err := r.Send(t.Context(), spool.Input{ID: "w1", Kind: spool.InputStdin, Bytes: []byte("hello\n")})
	if err != nil || receipt.Repeated {
		t.Fatalf("send: %+v, %v", receipt, err)
	}
	if got := output(collect(t, r), spool.Stdout); got != "from-stdin:hello\n" {
		t.Errorf("stdout %q", got)
	}
	wantOutcome(t, r, spool.Outcome{Kind: spool.Exited})
}

func rejectsWriteWithoutStdin(t *testing.T, b spool.Backend) {
	r := start(t, b, sh("if read line; then echo unexpected; else echo eof; fi"))
	_, err := r.Send(t.Context(), spool.Input{ID: "w1", Kind: spool.InputStdin, Bytes: []byte("hello\n")})
	if !errors.Is(err, spool.ErrInputClosed) {
		t.Errorf("send: %v, want %v", err, spool.ErrInputClosed)
	}
	if got := output(collect(t, r), spool.Stdout); got != "eof\n" {
		t.Errorf("stdout %q", got)
	}
}

func repeatedStart(t *testing.T, b spool.Backend) {
	spec := sh("read line; echo done")
	spec.ID, spec.Stdin = "repeatedstart", true
	first, err := b.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	again, err := b.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if first.Pid != again.Pid || first.Pid == 0 {
		t.Errorf("pids %d and %d", first.Pid, again.Pid)
	}
	r := spool.Attach(b, spec.ID)
	if err := r.Stdin(t.Context()).Close(); err != nil {
		t.Fatal(err)
	}
	collect(t, r)
}

func repeatedInput(t *testing.T, b spool.Backend) {
	spec := sh("cat")
	spec.Stdin = true
	r := start(t, b, spec)
	for i := range 3 {
		receipt, err := r.Send(t.Context(), spool.Input{ID: "same", Kind: spool.InputStdin, Bytes: []byte("once\n")})
		if err != nil || receipt.Repeated != (i > 0) {
			t.Fatalf("send %d: %+v, %v", i, receipt, err)
		}
	}
	if err := r.Stdin(t.Context()).Close(); err != nil {
		t.Fatal(err)
	}
	if got := output(collect(t, r), spool.Stdout); got != "once\n" {
		t.Errorf("stdout %q", got)
	}
	// A sender that lost the answer, and learned nothing of the end since.
	receipt, err := r.Send(t.Context(), spool.Input{ID: "same", Kind: spool.InputStdin, Bytes: []byte("once\n")})
	if err != nil || !receipt.Repeated {
		t.Errorf("send after the end: %+v, %v", receipt, err)
	}
}

func closeStdin(t *testing.T, b spool.Backend) {
	spec := sh("wc -c")
	spec.Stdin = true
	r := start(t, b, spec)
	w := r.Stdin(t.Context())
	if _, err := io.CopyN(w, zeros{}, 300_000); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(output(collect(t, r), spool.Stdout)); got != "300000" {
		t.Errorf("wc says %q", got)
	}
	if _, err := w.Write([]byte("x")); !errors.Is(err, spool.ErrInputClosed) {
		t.Errorf("write after the end: %v", err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func exitedThenClosed(t *testing.T, b spool.Backend) {
	// The background child outlives its parent and writes when told to.
	fifo := filepath.Join(t.TempDir(), "go")
	mkfifo(t, fifo)
	r := start(t, b, sh("echo now; (read x < "+fifo+"; echo late) & exit 5"))
	for e, err := range r.Events(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == spool.KindExited {
			break
		}
	}
	info, err := r.Info(t.Context())
	if err != nil || info.State != spool.StateExited {
		t.Errorf("state %q, %v; want exited", info.State, err)
	}
	if err := os.WriteFile(fifo, []byte("x\n"), 0); err != nil {
		t.Fatal(err)
	}
	want := []string{`1 output stdout "now\n"`, "2 exited exited 5", `3 output stdout "late\n"`, "4 closed"}
	if diff := cmp.Diff(want, summary(collect(t, r))); diff != "" {
		t.Error(diff)
	}
}

func signalled(t *testing.T, b spool.Backend) {
	for _, tty := range []bool{false, true} {
		t.Run(fmt.Sprintf("tty=%v", tty), func(t *testing.T) {
			spec := sh("echo ready; exec sleep 1000")
			if tty {
				spec.TTY = &spool.Size{Rows: 24, Cols: 80}
			}
			r := start(t, b, spec)
			until(t, r, "ready")
			if err := r.Signal(t.Context(), "SIGHUP"); err != nil {
				t.Fatal(err)
			}
			wantOutcome(t, r, spool.Outcome{Kind: spool.Exited, Code: 129, Signal: "SIGHUP"})
			if err := r.Signal(t.Context(), "SIGHUP"); !errors.Is(err, spool.ErrEnded) {
				t.Errorf("signal after the end: %v", err)
			}
			if err := r.Kill(t.Context()); err != nil {
				t.Errorf("kill after the end: %v", err)
			}
		})
	}
}

// repeatedControl counts the signals that a run gets. The last one ends it, and is
// known when it is repeated.
func repeatedControl(t *testing.T, b spool.Backend) {
	spec := sh("n=0; trap 'n=$((n+1)); echo $n' USR1; trap 'echo end $n; exit' USR2; echo ready; while :; do read x; done")
	spec.Stdin = true
	r := start(t, b, spec)
	until(t, r, "ready")
	signal := func(name, id string) error {
		return r.Control(t.Context(), spool.Control{Op: spool.ControlSignal, Signal: name, ID: id})
	}
	wantErr(t, "a signal that there is not", signal("SIGNOTHING", "same"), spool.ErrInvalid)
	for range 3 { // what was refused may be repeated
		wantErr(t, "signal", signal("SIGUSR1", "same"), nil)
	}
	until(t, r, "1\n")
	wantErr(t, "signal", signal("SIGUSR1", "other"), nil)
	until(t, r, "2\n")
	wantErr(t, "signal", signal("SIGUSR2", "last"), nil)
	if got := output(collect(t, r), spool.Stdout); got != "ready\n1\n2\nend 2\n" {
		t.Errorf("stdout %q", got)
	}
	wantErr(t, "the signal that ended it", signal("SIGUSR2", "last"), nil)
	wantErr(t, "another signal", signal("SIGUSR2", "late"), spool.ErrEnded)
	wantErr(t, "a signal without an id", signal("SIGUSR2", ""), spool.ErrEnded)
}

func stopTree(t *testing.T, b spool.Backend) {
	// The leader ignores SIGTERM; children escape by setsid and double fork.
	dir := t.TempDir()
	mark := "spooltree" + fmt.Sprint(rand.Uint64())
	script := fmt.Sprintf(`trap '' TERM
for i in 1 2 3 4 5; do setsid sh -c 'exec -a %[1]s sleep 1000' & done
(setsid sh -c '(exec -a %[1]s sleep 1000) & exit 0' &) 
echo ready; while :; do sleep 1; done`, mark)
	r := start(t, b, spool.Spec{Argv: []string{"bash", "-c", strings.ReplaceAll(script, "sh -c", "bash -c")}, Cwd: dir, Env: map[string]string{"PATH": os.Getenv("PATH")}, Limits: spool.Limits{Grace: 50 * time.Millisecond}})
	until(t, r, "ready")
	if err := r.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantOutcome(t, r, spool.Outcome{Kind: spool.Exited, Code: 137, Signal: "SIGKILL"})
	if left := running(t, mark); len(left) > 0 {
		t.Errorf("still running after stop: %v", left)
	}
}

func killPassesInput(t *testing.T, b spool.Backend) {
	spec := sh("echo ready; exec sleep 1000")
	spec.Stdin = true
	r := start(t, b, spec)
	until(t, r, "ready")
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { // fills every queue there is
		w := r.Stdin(ctx)
		for {
			if _, err := w.Write(make([]byte, 256<<10)); err != nil {
				return
			}
		}
	})
	if err := r.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantOutcome(t, r, spool.Outcome{Kind: spool.Exited, Code: 137, Signal: "SIGKILL"})
	cancel()
	wg.Wait()
}

func resize(t *testing.T, b spool.Backend) {
	spec := sh("stty size; read x; stty size")
	spec.TTY = &spool.Size{Rows: 33, Cols: 101}
	r := start(t, b, spec)
	until(t, r, "33 101")
	first, second := spool.Size{Rows: 33, Cols: 101}, spool.Size{Rows: 50, Cols: 160}
	if info, err := r.Info(t.Context()); err != nil || info.Size != first || info.FirstSize != first {
		t.Errorf("at first the size is %v, began as %v: %v", info.Size, info.FirstSize, err)
	}
	for range 2 { // the second changes nothing
		if err := r.Resize(t.Context(), second); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := r.Info(t.Context()); err != nil || info.Size != second || info.FirstSize != first {
		t.Errorf("after a resize the size is %v, began as %v: %v", info.Size, info.FirstSize, err)
	}
	if _, err := r.Stdin(t.Context()).Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	events := collect(t, r)
	if got := output(events, spool.PTY); !strings.Contains(got, "50 160") {
		t.Errorf("pty %q", got)
	}
	var resized []spool.Resized
	for i := range events {
		if events[i].Kind == spool.KindResized {
			var r spool.Resized
			if err := json.Unmarshal(events[i].Data, &r); err != nil {
				t.Fatal(err)
			}
			r.By = "" // only a server with subjects knows it
			resized = append(resized, r)
		}
	}
	want := spool.Resized{Size: spool.Size{Rows: 50, Cols: 160}, Was: spool.Size{Rows: 33, Cols: 101}}
	if len(resized) != 1 || resized[0] != want {
		t.Errorf("the log says %+v, want %+v once", resized, want)
	}
	if info, err := r.Info(t.Context()); err != nil || info.Size != second || info.FirstSize != first {
		t.Errorf("after the end the size is %v, began as %v: %v", info.Size, info.FirstSize, err)
	}
	piped := start(t, b, sh("read x"))
	if err := piped.Resize(t.Context(), spool.Size{Rows: 1, Cols: 1}); err == nil {
		t.Error("resize without a terminal worked")
	}
	collect(t, piped)
}

func manyAtOnce(t *testing.T, b spool.Backend) {
	const n = 500
	spec := sh("read x; echo \"$x\"; exit 3")
	spec.Stdin = true
	runs := make([]*spool.Run, n)
	for i := range runs {
		runs[i] = start(t, b, spec)
	}
	live := 0
	for _, err := range b.List(t.Context(), spool.Filter{Live: true}) {
		if err != nil {
			t.Fatal(err)
		}
		live++
	}
	if live != n {
		t.Errorf("%d live runs, want %d", live, n)
	}
	for i, r := range runs {
		if _, err := fmt.Fprintf(r.Stdin(t.Context()), "run %d\n", i); err != nil {
			t.Fatal(err)
		}
	}
	for i, r := range runs {
		want := []string{fmt.Sprintf("1 output stdout \"run %d\\n\"", i), "2 exited exited 3", "3 closed"}
		if diff := cmp.Diff(want, summary(collect(t, r))); diff != "" {
			t.Fatalf("run %d: %s", i, diff)
		}
	}
}

func envNotKept(t *testing.T, b spool.Backend) {
	spec := sh("test ${#SECRET} -eq 7")
	spec.Env["SECRET"] = "hunter2"
	r := start(t, b, spec)
	wantOutcome(t, r, spool.Outcome{Kind: spool.Exited})
	info, err := r.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if s := fmt.Sprintf("%+v %v", info, collect(t, r)); strings.Contains(s, "hunter2") {
		t.Errorf("a value of the environment was kept: %s", s)
	}
}
