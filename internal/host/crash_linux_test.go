package host_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/process"
	"github.com/spool-run/spool/internal/failpoint"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/launch"
	"github.com/spool-run/spool/internal/polltest"
)

// The test binary is also the host that is killed: these variables select that
// role.
const (
	childRole = "HOST_TEST_ROLE"
	childDir  = "HOST_TEST_DIR"
	childTree = "HOST_TEST_TREE"
	markName  = "HOST_TEST_MARK" // in the environment of every process of a run
)

// options are the options of a host with a given mechanism for process trees.
func options(dir string, tree launch.TreeMode) host.Options {
	return host.Options{
		FileAfter: time.Hour, // tests look at the files
		Dir:       dir,
		Engines: map[string]host.NewEngine{
			spool.EngineProcess: func(owner string) (engine.Engine, error) {
				return process.New(process.Options{Owner: owner, Tree: tree})
			},
		},
		Sweep:        func(owner string) error { _, err := launch.SweepOwner(owner); return err },
		SegmentBytes: 64 << 10,
	}
}

// runChild runs a host in its own process.
func runChild(role string) error {
	if err := failpoint.FromEnv(); err != nil {
		return err
	}
	o := options(os.Getenv(childDir), launch.TreeMode(os.Getenv(childTree)))
	switch role {
	case "settle":
		return host.Settle(o)
	case "crash":
		return crash(o)
	case "descriptors":
		return outOfDescriptors(o)
	case "weigh":
		return weigh(o)
	}
	return fmt.Errorf("no role %q", role)
}

// child returns the command of a host in its own process.
func child(role, dir string, tree launch.TreeMode, failpoints string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childRole+"="+role, childDir+"="+dir, childTree+"="+string(tree),
		markName+"="+dir, failpoint.Variable+"="+failpoints, "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	return cmd
}

// scripts are the runs of a host that is killed. The output of chat is 4 MB: many
// events and files, however few reads a busy machine needs for it.
var scripts = map[spool.RunID]string{
	"short": `echo one; echo two >&2; exit 3`,
	"tree":  `setsid sleep 1000 & (sleep 1000 &); echo up; sleep 1000`,
	"chat":  `i=0; while [ $i -lt 400 ]; do echo $i; i=$((i+1)); printf %010000d 0; done; exit 4`,
}

// crash starts the runs and prints the events it has seen. It ends when the
// runs that end by themselves have ended.
func crash(o host.Options) error {
	h, err := host.Open(o)
	if err != nil {
		return err
	}
	// Start all runs before printing any event, so that a killed host had all
	// of them.
	for id, script := range scripts {
		spec := spool.Spec{ID: id, Argv: []string{"sh", "-c", script}}
		if _, err := h.Start(context.Background(), spec); err != nil {
			return err
		}
	}
	ended := make(chan error)
	for id := range scripts {
		go func() { ended <- acknowledge(h, id) }()
	}
	for range scripts {
		if err := <-ended; err != nil {
			return err
		}
	}
	// The tree lives; the others may not be complete yet.
	if !polltest.Holds(func() bool { return h.Live() <= 1 }) {
		return errors.New("the runs do not end")
	}
	return nil
}

func acknowledge(h *host.Host, id spool.RunID) error {
	for e, err := range h.Follow(context.Background(), id, 0) {
		if err != nil {
			return err
		}
		// One write per event: the parent reads only events that were really
		// seen.
		fmt.Printf("%s %d %s\n", id, e.Seq, digest(&e))
		if id == "tree" && e.Kind == spool.KindOutput {
			fmt.Println("up")
			return nil
		}
	}
	return nil
}

func digest(e *spool.Event) string {
	return fmt.Sprintf("%s:%s:%08x", e.Kind, e.Stream, crc32.ChecksumIEEE(append(bytes.Clone(e.Bytes), e.Data...)))
}

// seen holds the events that a host acknowledged before it ended.
type seen map[spool.RunID]map[spool.Seq]string

func (s seen) read(t *testing.T, cmd *exec.Cmd, up func()) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if lines.Text() == "up" {
			up()
			continue
		}
		var id spool.RunID
		var seq spool.Seq
		var what string
		if _, err := fmt.Sscan(lines.Text(), &id, &seq, &what); err != nil {
			continue // the last line may be incomplete
		}
		if s[id] == nil {
			s[id] = make(map[spool.Seq]string)
		}
		s[id][seq] = what
	}
	_ = cmd.Wait() // the caller checks how it ended
}

func killed(cmd *exec.Cmd) bool {
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// TestKilledAnywhere checks that the next host can recover everything after a
// host was killed at any of these points.
func TestKilledAnywhere(t *testing.T) {
	type fault struct {
		tree  launch.TreeMode
		point string
	}
	faults := []fault{
		{launch.TreeWalk, "launch.forked=kill@2"}, {launch.TreeWalk, "launch.reaped=kill@1"}, {launch.TreeWalk, "store.append=kill@5"},
	}
	for _, point := range []string{
		"store.append=kill@1", "store.append=kill@7", "store.written=kill@2", "store.written=kill@9",
		"store.begin=kill@2", "store.begin=kill@4", "store.begun=kill@3", "store.begun=kill@5", "store.seal=kill@1",
		"launch.fork=kill@3", "launch.forked=kill@1", "launch.forked=kill@3",
		"launch.reap=kill@1", "launch.reap=kill@2", "launch.reaped=kill@1", "launch.reaped=kill@2",
	} {
		faults = append(faults, fault{launch.TreeAuto, point})
	}
	for _, f := range faults {
		t.Run(strings.TrimSpace(f.point+" "+string(f.tree)), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			acks := make(seen)
			cmd := child("crash", dir, f.tree, f.point)
			acks.read(t, cmd, func() {})
			if !killed(cmd) {
				t.Errorf("the host was not killed but %v", cmd.ProcessState)
			}
			checkSettled(t, dir, f.tree, acks)
		})
	}
}

// TestKilledWhileSettling checks that a host killed during recovery does no
// further damage.
func TestKilledWhileSettling(t *testing.T) {
	for _, point := range []string{
		"host.recover=kill", "host.swept=kill", "host.settled=kill@1", "host.settled=kill@3",
		"host.settle=kill@1", "host.settle=kill@2", "store.recover=kill@1", "store.recovered=kill@2",
		"store.append=kill@1", "store.written=kill@1", "store.written=kill@4", "store.seal=kill@1", "store.seal=kill@3",
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			acks := make(seen)
			cmd := child("crash", dir, launch.TreeAuto, "launch.reap=stall")
			acks.read(t, cmd, func() { _ = cmd.Process.Kill() })
			cmd = child("settle", dir, launch.TreeAuto, point)
			if err := cmd.Run(); !killed(cmd) {
				t.Errorf("settling was not killed: %v", err)
			}
			checkSettled(t, dir, launch.TreeAuto, acks)
		})
	}
}

// checkSettled opens a state directory after a crash, twice, and checks every
// promise.
func checkSettled(t *testing.T, dir string, tree launch.TreeMode, acks seen) {
	t.Helper()
	if err := host.Settle(options(dir, tree)); err != nil {
		t.Fatalf("settle: %v", err)
	}
	if left := marked(t, dir); len(left) > 0 {
		t.Errorf("still running: %v", left)
	}
	if files, _ := filepath.Glob(dir + "/hosts/*.json"); len(files) > 0 {
		t.Errorf("files of hosts are left: %v", files)
	}
	before := contents(t, dir)
	h, err := host.Open(options(dir, tree))
	if err != nil {
		t.Fatal(err)
	}
	for info, err := range h.List(t.Context(), spool.Filter{}) {
		if err != nil {
			t.Errorf("list: %v", err)
			continue
		}
		checkLog(t, h, info, acks[info.ID])
		delete(acks, info.ID)
	}
	for id, events := range acks {
		t.Errorf("run %s is missing; %d of its events were seen", id, len(events))
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if after := contents(t, dir); after != before {
		t.Errorf("the second recovery changed\n%s\ninto\n%s", before, after)
	}
}

// checkLog checks one log after a crash.
func checkLog(t *testing.T, h *host.Host, info spool.Info, acks map[spool.Seq]string) {
	t.Helper()
	if info.State != spool.StateClosed || info.Outcome == nil {
		t.Errorf("run %s is %s with outcome %v", info.ID, info.State, info.Outcome)
		return
	}
	if info.Outcome.Kind == spool.Unknown && info.Ledger != nil {
		t.Errorf("run %s was lost, and has the ledger %+v", info.ID, info.Ledger)
	}
	var outcomes, closed int
	var last spool.Seq
	for e, err := range h.Follow(t.Context(), info.ID, 0) {
		if err != nil {
			t.Errorf("run %s: %v", info.ID, err)
			return
		}
		if e.Seq != last+1 {
			t.Errorf("run %s: seq %d after %d", info.ID, e.Seq, last)
		}
		last = e.Seq
		if want, ok := acks[e.Seq]; ok && digest(&e) != want {
			t.Errorf("run %s: event %d is %s, was seen as %s", info.ID, e.Seq, digest(&e), want)
		}
		delete(acks, e.Seq)
		if _, ok := e.Outcome(); ok {
			outcomes++
		}
		if e.Kind == spool.KindClosed {
			closed++
		}
	}
	if len(acks) > 0 {
		t.Errorf("run %s: lost %v", info.ID, acks)
	}
	if last != info.Last || outcomes != 1 || closed != 1 {
		t.Errorf("run %s: %d of %d events, %d outcomes, closed %d times", info.ID, last, info.Last, outcomes, closed)
	}
	code := map[spool.RunID]int{"short": 3, "chat": 4}
	switch o := *info.Outcome; o.Kind {
	case spool.Unknown:
		if !strings.Contains(o.Reason, "died") {
			t.Errorf("run %s: unknown because %q", info.ID, o.Reason)
		}
	case spool.Exited:
		if o.Code != code[info.ID] || info.ID == "tree" {
			t.Errorf("run %s: %v", info.ID, o)
		}
	default:
		t.Errorf("run %s: %v", info.ID, o)
	}
}

// marked returns the processes of the runs of a test.
func marked(t *testing.T, mark string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, f := range files {
		env, err := os.ReadFile(f)
		if err == nil && bytes.Contains(env, []byte(markName+"="+mark+"\x00")) {
			cmdline, _ := os.ReadFile(filepath.Dir(f) + "/cmdline")
			found = append(found, f+" "+string(bytes.ReplaceAll(cmdline, []byte{0}, []byte(" "))))
		}
	}
	return found
}

// contents summarizes the files of the runs.
func contents(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(dir + "/runs/*")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range files {
		content, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %d %.8x\n", filepath.Base(f), len(content), sha256.Sum256(content))
	}
	return b.String()
}
