//go:build amd64 || arm64

package isolate

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// trial is a process that tries to leave a cell.
type trial struct {
	out io.ReadCloser // what [TryCell] writes
	uid int           // the user outside; zero if that is unknown
	// abandon does what the end of this process would do; nil if that does not end
	// the process.
	abandon func()
	end     func() // ends the process
}

func (t *trial) close() {
	t.end()
	_ = t.out.Close()
}

// try starts a process behind a wall that tries to leave it.
func (o *CellOptions) try(w wall, arg string) (*trial, error) {
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	start := o.tryFork
	if o.Places != nil {
		start = o.tryLead
	}
	path, argv := o.Attempt(arg)
	t, err := start(w, path, argv, &syscall.ProcAttr{Dir: "/", Env: []string{}, Files: []uintptr{in.Fd(), in.Fd(), in.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		return nil, errors.Join(err, out.Close())
	}
	t.out = out
	return t, nil
}

// tryFork is try in a cell that is there before its processes.
func (o *CellOptions) tryFork(w wall, path string, argv []string, attr *syscall.ProcAttr) (*trial, error) {
	var e enclosure
	if w.mechanism != Filter {
		policy, err := o.policy()
		if err != nil {
			return nil, err
		}
		if e, err = w.enclose(policy, nil); err != nil {
			return nil, err
		}
	}
	closeWall := func() {
		if e != nil {
			e.close()
		}
	}
	pid, err := forkIn(e, path, argv, attr)
	if err != nil {
		closeWall()
		return nil, err
	}
	t := &trial{uid: OwnerOf(pid), end: func() {
		_ = unix.Kill(pid, unix.SIGKILL) // it was not waited for, so the number is still its own
		reap(pid)
		closeWall()
	}}
	if s, ok := e.(*sandbox); ok {
		t.abandon = s.abandon
	}
	return t, nil
}

// tryLead is try in a cell with a first process of its own.
func (o *CellOptions) tryLead(w wall, path string, argv []string, attr *syscall.ProcAttr) (*trial, error) {
	s, err := o.lead(w, newLeader(path, argv, attr))
	if err != nil {
		return nil, err
	}
	return &trial{uid: OwnerOf(s.pid), abandon: s.abandon, end: s.close}, nil
}

// tested is what the attempts to leave a cell came to.
type tested struct {
	proof *CellProof
	outer Set // what the wall gives before the process has given up anything
}

// abandonTime is how long the processes of a cell may take to end when that which
// started them has ended.
const abandonTime = survivorTime

// tryCell makes the attempts of one process.
func (r *rig) tryCell(ctx context.Context, start func(arg string) (*trial, error)) (_ *tested, err error) {
	targets := cellTargets{Outer: r.targets, Inner: r.targets}
	targets.Inner.Workspace, targets.Inner.Outside = r.targets.Workspace+"-2", r.targets.Outside+"-2"
	if err := errors.Join(targets.Outer.reset(), targets.Inner.reset()); err != nil {
		return nil, err
	}
	arg, err := json.Marshal(targets)
	if err != nil {
		return nil, err
	}
	process, err := start(string(arg))
	if err != nil {
		return nil, err
	}
	closeOnce := sync.OnceFunc(process.close)
	defer closeOnce()
	stop := context.AfterFunc(ctx, closeOnce)
	defer stop()
	lines := bufio.NewScanner(process.out)
	var outer, inner []Attempt
	over := false
	for !over && lines.Scan() {
		var a cellAttempt
		switch err := json.Unmarshal(lines.Bytes(), &a); {
		case err != nil || a.Name == "":
			return nil, fmt.Errorf("the process that tries to escape said %q", lines.Text())
		case a.Name == overLine:
			over = true
		case a.Confined:
			inner = append(inner, a.Attempt)
		default:
			outer = append(outer, a.Attempt)
		}
	}
	if !over {
		return nil, errors.Join(fmt.Errorf("the process that tries to escape ended after %d attempts", len(outer)+len(inner)), lines.Err(), ctx.Err())
	}
	targets.Outer.forgive(outer)
	targets.Inner.forgive(inner)
	t := &tested{outer: held(outer, nil), proof: &CellProof{Why: make(map[Guarantee]string), Attempts: inner}}
	t.proof.Has = held(inner, t.proof.Why)
	if process.uid != 0 {
		t.proof.Has = t.proof.Has.With(Rootless)
	} else {
		t.proof.Why[Rootless] = "it is root outside"
	}
	if t.proof.Has.Has(Writes) {
		t.proof.Has = t.proof.Has.With(Protects) // there is nothing to protect
	}
	if process.abandoned(closeOnce) {
		t.proof.Has = t.proof.Has.With(Survives)
		t.proof.Attempts = append(t.proof.Attempts, Attempt{Name: "outlive-spool", Guarantee: Survives, Errno: "killed"})
	} else {
		t.proof.Why[Survives] = "no process ends it when Spool ends"
		t.proof.Attempts = append(t.proof.Attempts, Attempt{Name: "outlive-spool", Guarantee: Survives, Escaped: true})
	}
	return t, ctx.Err()
}

// abandoned reports whether the process ends when that which started it does. It is
// closed then.
func (t *trial) abandoned(closeOnce func()) bool {
	if t.abandon == nil {
		return false
	}
	t.abandon()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = io.Copy(io.Discard, t.out)
	}()
	late := time.NewTimer(abandonTime)
	defer late.Stop()
	ended := true
	select {
	case <-gone:
	case <-late.C:
		ended = false
	}
	closeOnce()
	<-gone
	return ended
}

// cellTargets are what a process that tries to leave a cell tries it on, before and
// after it gave up what it does not need.
type cellTargets struct {
	Outer targets `json:"outer"`
	Inner targets `json:"inner"`
}

// forgive takes back writes that had no effect outside, as those to a private directory.
func (t *targets) forgive(list []Attempt) {
	if !t.asItWas() {
		return
	}
	for i, a := range list {
		if a.Guarantee == Writes && a.Escaped && a.Name != "sysctl" {
			list[i].Escaped, list[i].Errno = false, "no effect"
		}
	}
}

// held returns the guarantees against which every attempt failed. It says of the others
// why they do not hold.
func held(list []Attempt, why map[Guarantee]string) Set {
	var tried, escaped []Guarantee
	for _, a := range list {
		tried = append(tried, a.Guarantee)
		if a.Escaped {
			escaped = append(escaped, a.Guarantee)
			if why != nil {
				why[a.Guarantee] = a.Name + " succeeded"
			}
		}
	}
	return NewSet(tried...).Without(escaped)
}

// cellAttempt is a line of a process that tries to leave a cell.
type cellAttempt struct {
	Attempt
	Confined bool `json:"confined,omitempty"` // after it gave up what it does not need
}

// overLine is the name of a line that is no attempt: there are no more.
const overLine = "over"

// TryCell is the life of a process that tries to leave a cell: it makes every attempt,
// gives up with confine what processes of the cell give up, and makes them again. It
// writes the results to standard output and stays until it is killed. It returns the
// exit code.
func TryCell(arg string, confine func() error) int {
	var t cellTargets
	if err := json.Unmarshal([]byte(arg), &t); err != nil {
		fmt.Fprintln(os.Stderr, "spool:", err)
		return 2
	}
	encoder := json.NewEncoder(os.Stdout)
	try := func(list []attempt, confined bool) bool {
		for _, a := range list {
			err := a.try()
			r := cellAttempt{Attempt: Attempt{Name: a.name, Guarantee: a.guarantee, Escaped: err == nil}, Confined: confined}
			if err != nil {
				r.Errno = errnoName(err)
			}
			if encoder.Encode(r) != nil {
				return false
			}
		}
		return true
	}
	// A filter of its own takes the place of another kernel, and refuses with EPERM.
	left := NewSet(Protects, Processes, Narrow)
	attempts := func(t targets) []attempt {
		return slices.DeleteFunc(t.attempts(), func(a attempt) bool { return left.Has(a.guarantee) })
	}
	if !try(attempts(t.Outer), false) {
		return 1
	}
	if err := confine(); err != nil {
		fmt.Fprintln(os.Stderr, "spool:", err)
		return 1
	}
	list := append(attempts(t.Inner), attempt{"fork-bomb", Processes, func() error { return forkMany(4 * t.Inner.Processes) }}, attempt{"daemon", Kills, func() error { return forkMany(1) }})
	if !try(append(list, narrowAttempts()...), true) || encoder.Encode(cellAttempt{Attempt: Attempt{Name: overLine}}) != nil {
		return 1
	}
	time.Sleep(time.Minute)
	return 0
}

// narrowAttempts are system calls that a process with few of them does not need. Each
// harms no process if it succeeds.
func narrowAttempts() []attempt {
	call := func(name string, number uintptr, args ...uintptr) attempt {
		args = append(args, 0, 0, 0, 0)
		return attempt{name, Narrow, func() error {
			_, _, errno := unix.Syscall6(number, args[0], args[1], args[2], args[3], 0, 0)
			if errno == unix.EPERM || errno == unix.ENOSYS || errno == unix.EACCES {
				return errno
			}
			return nil // the kernel has looked at it
		}}
	}
	bad := ^uintptr(0)
	return []attempt{
		call("socket", unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_STREAM),
		call("execve", unix.SYS_EXECVE), call("execveat", unix.SYS_EXECVEAT, bad),
		call("ptrace", unix.SYS_PTRACE, bad), call("unshare", unix.SYS_UNSHARE), call("setns", unix.SYS_SETNS, bad), call("mount", unix.SYS_MOUNT),
		call("bpf", unix.SYS_BPF, bad), call("perf_event_open", unix.SYS_PERF_EVENT_OPEN), call("userfaultfd", unix.SYS_USERFAULTFD, bad), call("io_uring_setup", unix.SYS_IO_URING_SETUP),
		call("add_key", unix.SYS_ADD_KEY), call("keyctl", unix.SYS_KEYCTL, bad), call("init_module", unix.SYS_INIT_MODULE), call("kexec_load", unix.SYS_KEXEC_LOAD, bad, bad),
		call("memfd_create", unix.SYS_MEMFD_CREATE), call("inotify_init1", unix.SYS_INOTIFY_INIT1, bad), call("fanotify_init", unix.SYS_FANOTIFY_INIT, bad), call("timerfd_create", unix.SYS_TIMERFD_CREATE, bad),
		call("shmget", unix.SYS_SHMGET, 0, bad), call("msgget", unix.SYS_MSGGET, 1), call("semget", unix.SYS_SEMGET, 1), call("setpriority", unix.SYS_SETPRIORITY, bad),
		call("open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT, bad), call("landlock_create_ruleset", unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, bad),
	}
}
