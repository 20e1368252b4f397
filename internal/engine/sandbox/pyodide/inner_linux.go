//go:build amd64 || arm64

package pyodide

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/fdpass"
	"github.com/spool-run/spool/internal/isolate"
)

// fdRunner is the connection of an interpreter's process.
const fdRunner = 3

// supervisor is the first process of the cell. It starts Node, forks
// interpreters from it, ends them on demand, and tells the host when they are
// gone. It ends with its control socket, and all others with it.
type supervisor struct {
	plan   plan
	in     *isolate.Inside
	null   *os.File
	zygote *zygote    // nil if interpreters are processes of their own
	pass   *os.File   // the zygote's connection: where to send descriptors
	places []*os.File // the distribution and its packages, without a root

	queue chan birth // processes to be made, by the thread that traces

	mu     sync.Mutex
	procs  map[uint64]int    // pids of the living by their number
	unborn map[uint64]string // fates of those that are in the queue
}

// supervise is the life of the supervisor.
func supervise(p plan) error {
	// The tracer of a process is a thread, so this is the one that does
	// everything but wait for the end of interpreters.
	runtime.LockOSThread()
	// Node inherits nothing of what this process has left: it gets what it is
	// given by name.
	if err := unix.CloseRange(fdControl, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("keep descriptors back: %w", err)
	}
	w := &supervisor{plan: p, procs: make(map[uint64]int), unborn: make(map[uint64]string)}
	if !p.rooted() {
		defer w.killAll()
		if err := w.openPlaces(); err != nil {
			return err
		}
	}
	var err error
	if w.in, err = isolate.Enter(); err != nil {
		return err
	}
	if w.null, err = os.OpenFile("/dev/null", os.O_RDWR, 0); err != nil {
		return err
	}
	forks := p.Fork && canFork && w.in.Proc != nil
	if err := w.tell(report{What: isUp, Forks: forks, Protections: protections(forks, p.Wall)}); err != nil {
		return err
	}
	if forks {
		if err := w.makeZygote(); err != nil {
			return w.tell(report{What: isFailed, Text: err.Error()})
		}
	}
	return w.serve()
}

// protections names the protections between an interpreter and this machine.
func protections(forks bool, wall string) []string {
	list := []string{
		"an empty environment",
		"no capabilities, and no new privileges",
		"seccomp: no sockets, no signals to others, no tracing, no mounts, no namespaces",
	}
	switch {
	case wall == isolate.Filter:
		return append(list, "none for files: a script can read every file the user can")
	case wall == isolate.Landlock:
		return append(list, "Landlock: of this machine's files only Node and the distribution can be opened, for reading; names and sizes of others can be seen",
			protectNoProcesses)
	case forks:
		return append(list, ProtectNamespaces, protectRoot, ProtectStrictFilter)
	}
	return append(list, ProtectNamespaces, protectRoot, protectNoProcesses)
}

const (
	protectRoot        = "a read-only root with nothing but Node and the distribution, without /proc"
	protectNoProcesses = "no new processes or threads once it is loaded, by resource limit"
)

// openPlaces opens what processes without a root of their own are given.
func (w *supervisor) openPlaces() error {
	for _, dir := range []string{w.plan.Dist, w.plan.Packages} {
		if dir == "" {
			dir = "/dev/null"
		}
		f, err := os.Open(dir)
		if err != nil {
			return err
		}
		w.places = append(w.places, f)
	}
	return nil
}

// killAll ends what no namespace would.
func (w *supervisor) killAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, pid := range w.procs {
		_ = unix.Kill(pid, unix.SIGKILL) // it may be gone
	}
}

func (w *supervisor) tell(r report) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	for {
		err = unix.Sendmsg(fdControl, b, nil, nil, unix.MSG_NOSIGNAL)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// makeZygote starts a process, waits until it is loaded, and stops it.
func (w *supervisor) makeZygote() error {
	ours, theirs, err := socketPair()
	if err != nil {
		return err
	}
	defer theirs.Close()
	w.pass = ours // keeps it open
	pid, err := w.startNode(theirs, 2)
	if err != nil {
		return err
	}
	theirs.Close()
	info, err := rehearsal(ours, newFrames(ours))
	var failed *failedError
	switch {
	case errors.As(err, &failed), errors.Is(err, ErrProtocol):
		return err
	case err != nil:
		_ = unix.Kill(pid, unix.SIGKILL) // it may have let go of the connection only
		ws, werr := waitFor(pid)
		return fmt.Errorf("it ended before it was ready: %w", errors.Join(statusError(ws), werr))
	}
	if w.plan.Snapshot != snapshotWrite && info.Kind == kindPyodide {
		if w.zygote, err = newZygote(w.in.Proc, pid, fdRunner, w.plan.Mark, innerFilter(), func(f *os.File) error { return w.give(f) }); err != nil {
			return fmt.Errorf("prepare the process to fork from: %w", err)
		}
	} else if err := unix.Kill(pid, unix.SIGKILL); err != nil { // it has said all there is to know
		return err
	} else if _, err := waitFor(pid); err != nil {
		return err
	}
	r := report{What: isReady, Ready: info}
	if w.zygote != nil {
		if r.RSS, err = fields(w.in.Proc, pid, "status", "VmRSS"); err != nil {
			return err
		}
	}
	return w.tell(r)
}

// give sends descriptors to the zygote, or to who stands in its place.
func (w *supervisor) give(files ...*os.File) error {
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	return fdpass.Send(int(w.pass.Fd()), []byte{0}, fds...)
}

func statusError(ws unix.WaitStatus) error {
	if ws.Signaled() {
		return fmt.Errorf("killed by %v", ws.Signal())
	}
	return fmt.Errorf("exit status %d", ws.ExitStatus())
}

// socketPair makes a connection whose ends are plain, blocking descriptors.
func socketPair() (a, b *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a connection: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "connection"), os.NewFile(uintptr(fds[1]), "connection"), nil
}

// startNode starts a process with all protections that a process can be started
// behind.
func (w *supervisor) startNode(conn *os.File, stderr uintptr) (pid int, err error) {
	stack, err := allowStack()
	if err != nil {
		return 0, err
	}
	// Freeing compiled code would be the first thing that every copy does.
	args := []string{"node", "--no-addons", "--expose-gc", "--no-warnings", "--disable-proto=delete", "--openssl-config=/dev/null",
		"--no-wasm-code-gc", "--no-flush-bytecode", "--max-old-space-size=" + strconv.Itoa(w.plan.HeapMB), "--stack-size=" + strconv.Itoa(stack>>10)}
	if w.plan.Fork {
		// Threads are not forked, so there should not be any.
		args = append(args, "--single-threaded", "--v8-pool-size=0")
	}
	// The runner is no file: there is none but those of this machine.
	args = append(args, "--preserve-symlinks", "--input-type=module", "--eval", string(runnerSource), "--", string(w.plan.Config))
	files := []uintptr{w.null.Fd(), w.null.Fd(), stderr, conn.Fd(), fdSnapshot}
	path := guestNode
	if !w.plan.rooted() {
		path = w.plan.Node
		files = append(files, w.places[0].Fd(), w.places[1].Fd())
	}
	pid, err = w.in.Fork(path, args, &syscall.ProcAttr{Dir: "/", Env: []string{}, Files: files, Sys: &syscall.SysProcAttr{Setsid: true}}, outerFilter())
	if err != nil {
		return 0, fmt.Errorf("start Node: %w", err)
	}
	return pid, nil
}

// stackSize is how deep Node's stack may be. It has to hold all that Python's own
// limit of recursion in C allows: Python then raises RecursionError, where the
// interpreter would otherwise break. The system's limit has room above it.
const (
	stackSize  = 48 << 20
	stackLimit = 64 << 20
)

// allowStack has the processes that this one starts have a stack of stackLimit, or
// of as much as this one may allow. It returns how much of that Node may use.
func allowStack() (int, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_STACK, &limit); err != nil {
		return 0, fmt.Errorf("read the limit of the stack: %w", err)
	}
	limit.Cur = min(limit.Max, stackLimit)
	if err := unix.Setrlimit(unix.RLIMIT_STACK, &limit); err != nil {
		return 0, fmt.Errorf("set the limit of the stack: %w", err)
	}
	return min(stackSize, int(limit.Cur/4*3)), nil
}

// noProcesses keeps a process from making any others, and threads.
func noProcesses(pid int) error {
	if err := unix.Prlimit(pid, unix.RLIMIT_NPROC, &unix.Rlimit{}, nil); err != nil {
		return fmt.Errorf("forbid processes: %w", err)
	}
	return nil
}

// bound keeps a process from having more writable memory than that.
func bound(pid int, bytes int64) error {
	if bytes <= 0 {
		return nil
	}
	limit := unix.Rlimit{Cur: uint64(bytes), Max: uint64(bytes)}
	if err := unix.Prlimit(pid, unix.RLIMIT_DATA, &limit, nil); err != nil {
		return fmt.Errorf("limit memory: %w", err)
	}
	return nil
}
