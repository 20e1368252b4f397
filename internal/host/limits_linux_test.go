package host_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/failpoint"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/launch"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/skiptest"
	"github.com/spool-run/spool/internal/store"
)

// mount returns a directory on a small file system.
func mount(t *testing.T, how string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, how+",mode=0700"); err != nil {
		skiptest.Missing(t, "mount: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}

func openWith(t *testing.T, o host.Options) *host.Host {
	t.Helper()
	h, err := host.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return h
}

func begin(t *testing.T, h *host.Host, id spool.RunID, script string) {
	t.Helper()
	if _, err := h.Start(t.Context(), spool.Spec{ID: id, Argv: []string{"sh", "-c", script}, Stdin: true}); err != nil {
		t.Fatalf("start %s: %v", id, err)
	}
}

// say sends a line to a run.
func say(t *testing.T, h *host.Host, id spool.RunID, line string) {
	t.Helper()
	if _, err := h.Send(t.Context(), id, spool.Input{Kind: spool.InputStdin, Bytes: []byte(line + "\n")}); err != nil {
		t.Fatalf("send to %s: %v", id, err)
	}
}

// end follows a run to its end and returns its output and its outcome.
func end(t *testing.T, h *host.Host, id spool.RunID) (string, spool.Outcome) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out []byte
	var outcome spool.Outcome
	var last spool.Event
	for e, err := range h.Follow(ctx, id, 0) {
		if err != nil {
			t.Fatalf("follow %s: %v", id, err)
		}
		if e.Seq != last.Seq+1 {
			t.Fatalf("%s: seq %d after %d", id, e.Seq, last.Seq)
		}
		if o, ok := e.Outcome(); ok {
			outcome = o
		}
		out = append(out, e.Bytes...)
		last = e
	}
	if last.Kind != spool.KindClosed {
		t.Fatalf("%s ends with %s", id, last.Kind)
	}
	return string(out), outcome
}

func wantExit(t *testing.T, h *host.Host, id spool.RunID, output string, code int) {
	t.Helper()
	out, outcome := end(t, h, id)
	if out != output || outcome != (spool.Outcome{Kind: spool.Exited, Code: code}) {
		t.Errorf("%s: %q, %v; want %q, exited %d", id, out, outcome, output, code)
	}
}

// wantRefused checks that a start fails now, and that the error has a hint.
func wantRefused(t *testing.T, h *host.Host, hint string) {
	t.Helper()
	_, err := h.Start(t.Context(), spool.Spec{ID: "refused", Argv: []string{"true"}})
	var refused *spool.StartError
	if !errors.As(err, &refused) || refused.Reason != engine.StartLimit || !strings.Contains(refused.Hint, hint) {
		t.Errorf("start: %v, want a limit and %q", err, hint)
	}
	if _, err := h.Stat(t.Context(), "refused"); !errors.Is(err, spool.ErrNotFound) {
		t.Errorf("a run that was refused: %v", err)
	}
}

// TestDiskFull checks that a full disk ends the run that writes, with the
// reason in its log, and no other run.
func TestDiskFull(t *testing.T) {
	dir := mount(t, "size=4m")
	other := filepath.Join(dir, "other")
	if err := os.WriteFile(other, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	h := openWith(t, options(dir, launch.TreeAuto))
	begin(t, h, "quiet", `read line; echo "$line"; exit 7`)
	for _, id := range []spool.RunID{"greedy", "second"} {
		begin(t, h, id, `read line; exec cat /dev/zero`)
	}
	wantFailed := func(id spool.RunID) int {
		t.Helper()
		out, outcome := end(t, h, id)
		for _, word := range []string{"its log could not be written", "no space left on device", "the disk of " + dir + " is full: free some space"} {
			if outcome.Kind != spool.Failed || !strings.Contains(outcome.Reason, word) {
				t.Errorf("%s: %v, want failed with %q", id, outcome, word)
			}
		}
		if info, err := h.Stat(t.Context(), id); err != nil || info.Bytes != int64(len(out)) {
			t.Errorf("%s: %d bytes, %v; it has %d", id, info.Bytes, err, len(out))
		}
		return len(out)
	}
	say(t, h, "greedy", "go")
	if n := wantFailed("greedy"); n < 1<<20 {
		t.Errorf("%d bytes were written before the disk was full", n)
	}
	// Only the reserve is left now.
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 8<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("fill the disk: %v", err)
	}
	say(t, h, "second", "go")
	if n := wantFailed("second"); n != 0 {
		t.Errorf("%d bytes were written to a full disk", n)
	}
	wantRefused(t, h, "is full")

	if err := errors.Join(os.Remove(ballast), os.Remove(other)); err != nil {
		t.Fatal(err)
	}
	say(t, h, "quiet", "there is room again")
	wantExit(t, h, "quiet", "there is room again\n", 7)
	begin(t, h, "next", "echo next")
	wantExit(t, h, "next", "next\n", 0)
	if fi, err := os.Stat(filepath.Join(dir, "reserve")); err != nil || fi.Size() != 1<<20 {
		t.Errorf("reserve after there was room: %v, %v", fi, err)
	}

	again := openWith(t, options(dir, launch.TreeAuto))
	if _, outcome := end(t, again, "greedy"); outcome.Kind != spool.Failed {
		t.Errorf("read by another host: %v", outcome)
	}
	if info, err := again.Stat(t.Context(), "greedy"); err != nil || info.State != spool.StateClosed {
		t.Errorf("read by another host: %v, %v", info.State, err)
	}
}

// TestEndIsWrittenLater checks that readers see the end of a run even if it
// cannot be written, and that it is written later.
func TestEndIsWrittenLater(t *testing.T) {
	dir := t.TempDir()
	h := openWith(t, options(dir, launch.TreeAuto))
	begin(t, h, "r", `echo one; read line; echo two; read line; echo three`)
	begin(t, h, "exits", `read line; exit 5`)
	waitFor(t, h, "r", 1)
	disable := failpoint.Enable("store.append", 0, failpoint.Fail(syscall.EIO))
	defer disable()
	say(t, h, "r", "go")
	say(t, h, "exits", "go")
	if out, outcome := end(t, h, "r"); out != "one\n" || outcome.Kind != spool.Failed || !strings.Contains(outcome.Reason, "the disk of "+dir+" fails") {
		t.Errorf("%q, %v", out, outcome)
	}
	if _, outcome := end(t, h, "exits"); outcome.Kind != spool.Exited || outcome.Code != 5 {
		t.Errorf("only its end was refused: %v", outcome)
	}
	if n := h.Live(); n != 2 {
		t.Errorf("%d runs have no end on disk, want 2", n)
	}
	disable()
	polltest.Until(t, "the ends on disk", func() bool { return h.Live() == 0 })
	again := openWith(t, options(dir, launch.TreeAuto))
	if out, outcome := end(t, again, "r"); out != "one\n" || outcome.Kind != spool.Failed {
		t.Errorf("on disk: %q, %v", out, outcome)
	}
	if _, outcome := end(t, again, "exits"); outcome.Kind != spool.Exited || outcome.Code != 5 {
		t.Errorf("on disk: %v", outcome)
	}
}

// TestEndIsNeverWritten checks that a host that closes before that leaves the
// run for the next host to recover.
func TestEndIsNeverWritten(t *testing.T) {
	dir := t.TempDir()
	h, err := host.Open(options(dir, launch.TreeAuto))
	if err != nil {
		t.Fatal(err)
	}
	begin(t, h, "r", `read line; echo lost`)
	disable := failpoint.Enable("store.append", 0, failpoint.Fail(syscall.EIO))
	defer disable()
	say(t, h, "r", "go")
	end(t, h, "r")
	if err := h.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	// The state directory can be opened nevertheless.
	h, err = host.Open(options(dir, launch.TreeAuto))
	if err != nil {
		t.Fatal(err)
	}
	if h.Unsettled() == nil {
		t.Error("nothing is said of a run that could not be settled")
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	disable()
	again := openWith(t, options(dir, launch.TreeAuto))
	if _, outcome := end(t, again, "r"); outcome.Kind != spool.Unknown {
		t.Errorf("settled: %v", outcome)
	}
}

func waitFor(t *testing.T, h *host.Host, id spool.RunID, seq spool.Seq) {
	t.Helper()
	page, err := h.Read(t.Context(), id, spool.Query{After: seq - 1, Wait: time.Minute})
	if err != nil || len(page.Events) == 0 {
		t.Fatalf("%s: %+v, %v", id, page, err)
	}
}

// TestInodesFull checks that without free inodes a start fails, and that a log
// continues in its current file.
func TestInodesFull(t *testing.T) {
	dir := mount(t, "size=16m,nr_inodes=30")
	h := openWith(t, options(dir, launch.TreeAuto))
	begin(t, h, "r", `read line; head -c 500000 /dev/zero; read line; head -c 500000 /dev/zero`)
	for i := range 30 {
		if os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600) != nil {
			break
		}
	}
	say(t, h, "r", "go")
	wantRefused(t, h, "no room for more files: delete some")
	say(t, h, "r", "go")
	wantExit(t, h, "r", strings.Repeat("\x00", 1000000), 0)
	if err := os.Remove(filepath.Join(dir, "0")); err != nil {
		t.Fatal(err)
	}
	begin(t, h, "next", "true")
	wantExit(t, h, "next", "", 0)
}

// TestReadOnlyState checks that a read-only state directory can be read.
func TestReadOnlyState(t *testing.T) {
	dir := mount(t, "size=4m")
	h, err := host.Open(options(dir, launch.TreeAuto))
	if err != nil {
		t.Fatal(err)
	}
	begin(t, h, "r", "echo hi")
	wantExit(t, h, "r", "hi\n", 0)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	h = openWith(t, options(dir, launch.TreeAuto))
	wantExit(t, h, "r", "hi\n", 0)
	wantRefused(t, h, dir+" must be writable")
	if _, err := host.Open(options(dir+"/other", launch.TreeAuto)); !errors.Is(err, syscall.EROFS) || !strings.Contains(err.Error(), "must be writable") {
		t.Errorf("open: %v", err)
	}
}

// TestStateRemoved checks that removing the state directory does not end live
// runs.
func TestStateRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	h := openWith(t, options(dir, launch.TreeAuto))
	begin(t, h, "r", `read line; head -c 300000 /dev/zero; read line; echo done`)
	begin(t, h, "gone", "echo hi")
	wantExit(t, h, "gone", "hi\n", 0)
	polltest.Until(t, "the end of the run on disk", func() bool { return h.Live() == 1 })
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, h, "the state directory "+dir+" was removed: restart")
	events := make(chan spool.Event)
	go func() {
		defer close(events)
		for e, err := range h.Follow(t.Context(), "r", 0) {
			if err != nil {
				t.Errorf("follow: %v", err)
				return
			}
			events <- e
		}
	}()
	say(t, h, "r", "go")
	n := 0
	for n < 300000 {
		e, ok := <-events
		if !ok {
			t.Fatal("the run ended early")
		}
		n += len(e.Bytes)
	}
	say(t, h, "r", "go")
	var outcome spool.Outcome
	for e := range events {
		if o, ok := e.Outcome(); ok {
			outcome = o
		}
	}
	if outcome != (spool.Outcome{Kind: spool.Exited}) {
		t.Errorf("outcome %v", outcome)
	}
}

// TestCorruptRun checks that damage to the file of one run affects only that
// run.
func TestCorruptRun(t *testing.T) {
	dir := t.TempDir()
	h, err := host.Open(options(dir, launch.TreeAuto))
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []spool.RunID{"a", "b", "c"} {
		begin(t, h, id, "echo "+string(id))
		wantExit(t, h, id, string(id)+"\n", 0)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	for id, damage := range map[string]func([]byte) []byte{
		"a": func(b []byte) []byte { return bytes.Replace(b, []byte("a\n"), []byte("x\n"), 1) },
		"b": func([]byte) []byte { return []byte("this is not a log at all") },
	} {
		file := filepath.Join(dir, "runs", id+".00000000000000000001.seg")
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, damage(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h = openWith(t, options(dir, launch.TreeAuto))
	var corrupt *store.CorruptError
	var listed []spool.RunID
	for info, err := range h.List(t.Context(), spool.Filter{}) {
		if err == nil {
			listed = append(listed, info.ID)
		} else if !errors.As(err, &corrupt) || corrupt.Run != "b" {
			t.Errorf("list: %v", err)
		}
	}
	if len(listed) != 2 {
		t.Errorf("listed %v", listed)
	}
	for _, id := range []spool.RunID{"a", "b"} {
		if _, err := h.Read(t.Context(), id, spool.Query{}); !errors.As(err, &corrupt) || corrupt.Run != id {
			t.Errorf("read %s: %v", id, err)
		}
	}
	wantExit(t, h, "c", "c\n", 0)
	begin(t, h, "d", "echo d")
	wantExit(t, h, "d", "d\n", 0)
}

// TestOutOfDescriptors checks that without descriptors a start fails, that live
// runs continue and can be stopped, and that a start succeeds afterwards.
func TestOutOfDescriptors(t *testing.T) {
	for _, tree := range []launch.TreeMode{launch.TreeAuto, launch.TreeWalk} {
		cmd := child("descriptors", t.TempDir(), tree, "")
		if out, err := cmd.Output(); err != nil {
			t.Errorf("%s: %v\n%s", tree, err, out)
		}
	}
}

func outOfDescriptors(o host.Options) error {
	ctx := context.Background()
	h, err := host.Open(o)
	if err != nil {
		return err
	}
	// The first start opens descriptors that all starts share.
	start := func(n int) error {
		_, err := h.Start(ctx, spool.Spec{ID: spool.RunID(fmt.Sprint("r", n)), Argv: []string{"sh", "-c", `read line; echo "$line"`}, Stdin: true})
		return err
	}
	if err := start(0); err != nil {
		return err
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 80, Max: 80}); err != nil {
		return err
	}
	started := 1
	for ; err == nil && started < 64; started++ {
		err = start(started)
	}
	started--
	var refused *spool.StartError
	if !errors.As(err, &refused) || refused.Reason != engine.StartLimit || !strings.Contains(refused.Hint, "too many open files") {
		return fmt.Errorf("after %d starts: %w", started, err)
	}
	if started < 5 {
		return fmt.Errorf("only %d started", started)
	}
	if _, err := h.Send(ctx, "r1", spool.Input{Kind: spool.InputStdin, Bytes: []byte("hi\n")}); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	if err := h.Control(ctx, "r2", spool.Control{Op: spool.ControlKill}); err != nil {
		return fmt.Errorf("kill: %w", err)
	}
	for id, want := range map[spool.RunID]spool.Outcome{
		"r1": {Kind: spool.Exited},
		"r2": {Kind: spool.Exited, Code: 137, Signal: "SIGKILL"},
	} {
		var got spool.Outcome
		for e, err := range h.Follow(ctx, id, 0) {
			if err != nil {
				return fmt.Errorf("follow %s: %w", id, err)
			}
			if o, ok := e.Outcome(); ok {
				got = o
			}
		}
		if got != want {
			return fmt.Errorf("%s: %v, want %v", id, got, want)
		}
	}
	// The descriptors of a run are closed a moment after readers see its end.
	if !polltest.Holds(func() bool {
		err = start(100)
		return err == nil || !errors.As(err, &refused) || refused.Reason != engine.StartLimit
	}) || err != nil {
		return fmt.Errorf("start with room again: %w", err)
	}
	return h.Close()
}
