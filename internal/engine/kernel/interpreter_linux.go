package kernel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/internal/launch"
	"github.com/spool-run/spool/python"
)

// interpreter is one interpreter process and the engine's ends of its descriptors,
// which do not block.
type interpreter struct {
	tree       *launch.Tree
	out, err   int // ends of its descriptors 1 and 2
	ctl        int // the control socket
	dump       int // where it writes stacks when it crashes or is asked to
	version    string
	executable string
	forked     bool // not started plainly
	pids       int  // the limit of processes of one that was forked
	memory     *launch.MemoryGroup
	lease      *isolate.Lease // nil if it is not isolated
	life       int            // of an isolated one: it is killed when this end of a pipe closes

	incoming    []byte    // read from the control socket, not yet a whole frame
	ctlEvents   uint32    // the events that the control socket is watched for
	ctlClosed   time.Time // when the control socket ended
	unreachable bool      // it was killed because it had closed the control socket
	killed      time.Time // when it was killed, other than to end the run
	oomKills    int64     // the value of the function oomKills at its start
}

// childFiles are the interpreter's ends of its descriptors.
type childFiles struct{ out, err, ctl, dump, life int }

func (t *childFiles) close() {
	for _, fd := range []int{t.out, t.err, t.ctl, t.dump, t.life} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	*t = childFiles{-1, -1, -1, -1, -1}
}

// newInterpreter makes the descriptors of an interpreter.
func newInterpreter() (*interpreter, *childFiles, error) {
	p := &interpreter{out: -1, err: -1, ctl: -1, dump: -1, life: -1, oomKills: oomKills()}
	t := &childFiles{-1, -1, -1, -1, -1}
	err := p.open(t)
	if err != nil {
		p.closeFiles()
		t.close()
		return nil, nil, err
	}
	return p, t, nil
}

func (p *interpreter) open(t *childFiles) error {
	for _, ends := range [][2]*int{{&p.out, &t.out}, {&p.err, &t.err}} {
		var fds [2]int
		if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
			return fmt.Errorf("make pipe: %w", err)
		}
		*ends[0], *ends[1] = fds[0], fds[1]
		if err := unix.SetNonblock(fds[0], true); err != nil {
			return fmt.Errorf("set non-blocking: %w", err)
		}
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make control socket: %w", err)
	}
	p.ctl, t.ctl = fds[0], fds[1]
	if err := unix.SetNonblock(p.ctl, true); err != nil {
		return fmt.Errorf("set non-blocking: %w", err)
	}
	if p.dump, err = unix.MemfdCreate("spool-dump", unix.MFD_CLOEXEC); err != nil {
		return fmt.Errorf("make memory file: %w", err)
	}
	if t.dump, err = unix.FcntlInt(uintptr(p.dump), unix.F_DUPFD_CLOEXEC, 3); err != nil {
		return fmt.Errorf("duplicate memory file: %w", err)
	}
	return nil
}

func (p *interpreter) closeFiles() {
	for _, fd := range []*int{&p.out, &p.err, &p.ctl, &p.dump, &p.life} {
		if *fd >= 0 {
			_ = unix.Close(*fd)
			*fd = -1
		}
	}
}

// discard kills an interpreter that did not become ready. It returns its exit code,
// if it had exited by itself, and its last line on stderr.
func (p *interpreter) discard() string {
	said := ""
	if p.tree != nil {
		_ = p.tree.Kill() // the wait below shows whether it worked
		status, err := p.tree.Reap()
		p.release()
		if err == nil && status.Exited() {
			said = fmt.Sprintf("exited with code %d", status.ExitStatus())
		}
	}
	buf := make([]byte, 4096)
	if n, err := unix.Read(p.err, buf); err == nil && n > 0 {
		lines := strings.Split(strings.TrimSpace(string(buf[:n])), "\n")
		last := strings.TrimSpace(lines[len(lines)-1])
		if said != "" {
			said += ": "
		}
		said += strings.ToValidUTF8(last, "\uFFFD")
	}
	p.closeFiles()
	p.closeMemoryGroup()
	return said
}

// release releases the tree and the isolation of an interpreter that was reaped.
func (p *interpreter) release() {
	p.tree.Release()
	if p.lease != nil {
		p.lease.Release()
	}
}

// closeMemoryGroup removes the memory group after its last process has ended.
func (p *interpreter) closeMemoryGroup() {
	if p.memory != nil {
		_ = p.memory.Close() // else it is removed with the launcher
		p.memory = nil
	}
}

// killedForMemory reports whether the kernel killed the interpreter because memory
// was exhausted. Without a memory group this is a guess: the kernel has killed some
// process for that reason since the interpreter started.
func (p *interpreter) killedForMemory() bool {
	if p.memory != nil {
		return p.memory.Kills() > 0
	}
	return oomKills() > p.oomKills
}

// limitMemory makes a memory group for the interpreter, if the machine has them.
func (e *Engine) limitMemory(p *interpreter, l *launchSpec, m dict) {
	if l.cfg.MemoryBytes == 0 || l.isolated() { // an isolated one cannot enter a group by itself
		return
	}
	group, err := e.launcher.MemoryGroup(l.cfg.MemoryBytes)
	if err != nil {
		return // RLIMIT_DATA still applies
	}
	p.memory = group
	m["groups"] = []string{group.Tasks()}
}

// launchSpec describes how to start an interpreter for a run.
type launchSpec struct {
	cfg    python.KernelConfig
	cwd    string
	env    []string
	own    dict // the variables of env whose value is the id of the run
	pids   int
	memory int64   // bytes of the whole tree; zero for no limit
	cpus   float64 // zero for no limit
	files  int     // open ones; zero for no limit of its own
	limits dict
	// sameDir is set if the spec names no working directory.
	sameDir bool
	// isolation is what Info says that the run has, and request the spec with
	// what it asked for, or with an overlay; both nil without a request.
	isolation *spool.Isolation
	request   *spool.Spec
	// overlay is what interpreters see in place of its base; nil without one.
	overlay *isolate.Overlay
}

// limited reports whether the tree has limits that only a process started for them
// has: those that were forked in advance are in other control groups.
func (l *launchSpec) limited() bool { return l.memory > 0 || l.cpus > 0 || l.files > 0 }

// shared returns the environment without what is this run's alone. Every run can
// have the same zygote with it.
func (l *launchSpec) shared() []string {
	return slices.DeleteFunc(slices.Clone(l.env), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		_, own := l.own[name]
		return own
	})
}

// init returns the message that configures an interpreter.
func (l *launchSpec) init() dict {
	m := dict{"t": "init", "cwd": l.cwd, "input": string(l.cfg.Input), "tools": l.cfg.Tools}
	if len(l.limits) > 0 {
		m["limits"] = l.limits
	}
	if len(l.own) > 0 {
		m["env"] = l.own
	}
	if l.cfg.Once {
		m["once"] = true
	}
	if l.cfg.Init != "" {
		m["code"] = l.cfg.Init
	}
	return m
}

// startProcess starts an interpreter with the runner. It does not wait until the
// interpreter is ready.
func (e *Engine) startProcess(c candidate, l *launchSpec) (*interpreter, error) {
	p, t, err := newInterpreter()
	if err != nil {
		return nil, err
	}
	defer t.close()
	cmd := launch.Command{
		Path: c.path, Argv: runnerArgs(c.path, "kernel", ""), Env: c.activate(l.env), Dir: l.cwd,
		Pids: l.pids, Memory: l.memory, CPUs: l.cpus,
		Files: []uintptr{uintptr(e.null), uintptr(t.out), uintptr(t.err), uintptr(t.ctl), uintptr(e.lifePipe[0]), uintptr(t.dump)},
	}
	if err := e.enclose(p, l, &cmd, t); err != nil {
		p.closeFiles()
		return nil, err
	}
	if err = isolate.LimitFiles(&cmd, p.lease, l.files); err == nil {
		p.tree, err = e.launcher.Start(cmd)
	}
	if err != nil {
		if p.lease != nil {
			p.lease.Release()
		}
		p.closeFiles()
		return nil, err
	}
	m := l.init()
	e.limitMemory(p, l, m)
	if err := writeAll(p.ctl, appendFrame(nil, m)); err != nil {
		return nil, errors.Join(fmt.Errorf("write to interpreter: %w", err), errors.New(p.discard()))
	}
	return p, nil
}

// writeAll writes a message that fits into the buffer of a fresh socket.
func writeAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// pollInterval is how often a wait for a starting interpreter checks its
// context.
const pollInterval = 20 * time.Millisecond

var errStartTimeout = errors.New("the interpreter did not become ready in time")

// initError says why the init code of a configuration failed.
type initError struct{ traceback string }

func (e *initError) Error() string { return "the init code failed:\n" + e.traceback }

// waitReady waits for the message that an interpreter is ready.
func (p *interpreter) waitReady(ctx context.Context, deadline time.Time) error {
	for {
		m, err := p.nextMessage()
		if err != nil {
			return err
		}
		if m != nil {
			switch text(m, "t") {
			case "ready":
			case "failed":
				return &initError{text(m, "error")}
			default:
				return fmt.Errorf("%w: %q before it was ready", errFrame, text(m, "t"))
			}
			p.version, p.executable = text(m, "version"), text(m, "executable")
			return nil
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		left := time.Until(deadline)
		if left <= 0 {
			return errStartTimeout
		}
		fds := []unix.PollFd{{Fd: int32(p.ctl), Events: unix.POLLIN}}
		_, err = unix.Poll(fds, int(min(left, pollInterval)/time.Millisecond)+1)
		if err != nil && err != unix.EINTR {
			return fmt.Errorf("wait for interpreter: %w", err)
		}
		if fds[0].Revents != 0 {
			if err := p.readControl(); err != nil {
				return err
			}
		}
	}
}

// errExited is the error of a closed control socket.
var errExited = errors.New("the interpreter ended")

// readControl reads the available bytes of the control socket.
func (p *interpreter) readControl() error {
	buf := buffers.Get().(*[readSize]byte)
	defer buffers.Put(buf)
	for {
		n, err := unix.Read(p.ctl, buf[:])
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return nil
		case err != nil || n == 0:
			return errExited
		}
		p.incoming = append(p.incoming, buf[:n]...)
		if n < len(buf) {
			return nil
		}
	}
}

// nextMessage removes the next whole message from the bytes read, or returns nil.
func (p *interpreter) nextMessage() (dict, error) {
	if len(p.incoming) < 4 {
		return nil, nil
	}
	n := int(binary.LittleEndian.Uint32(p.incoming))
	if n > maxFrame {
		return nil, fmt.Errorf("%w: %d bytes long", errFrame, n)
	}
	if len(p.incoming) < 4+n {
		return nil, nil
	}
	v, err := decodeValue(p.incoming[4 : 4+n])
	if err != nil {
		return nil, err
	}
	m, ok := v.(dict)
	if !ok {
		return nil, fmt.Errorf("%w: it is a %T", errFrame, v)
	}
	rest := p.incoming[4+n:]
	if len(rest) == 0 {
		p.incoming = nil // what the message points to is its own from now on
	} else {
		p.incoming = rest
	}
	return m, nil
}

// takeStack returns the stacks that the interpreter dumped since the last call.
func (p *interpreter) takeStack() string {
	info := unix.Stat_t{}
	if err := unix.Fstat(p.dump, &info); err != nil || info.Size == 0 {
		return ""
	}
	b := make([]byte, min(info.Size, 64<<10))
	n, err := unix.Pread(p.dump, b, 0)
	if err != nil {
		return ""
	}
	_ = unix.Ftruncate(p.dump, 0)              // the next one begins
	_, _ = unix.Seek(p.dump, 0, unix.SEEK_SET) // at the beginning
	return strings.ToValidUTF8(string(b[:n]), "\uFFFD")
}

// oomKills returns how many processes the kernel has killed because memory was
// exhausted.
func oomKills() int64 {
	b, err := os.ReadFile("/proc/vmstat")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "oom_kill "); ok {
			var n int64
			_, _ = fmt.Sscan(rest, &n) // zero if it is no number
			return n
		}
	}
	return 0
}

// startInterpreter starts an interpreter for a run and waits until it is ready.
func (e *Engine) startInterpreter(ctx context.Context, l *launchSpec) (*interpreter, error) {
	select {
	case e.starting <- struct{}{}:
		defer func() { <-e.starting }()
	case <-ctx.Done():
		return nil, &spool.StartError{Reason: engine.StartOther, Err: context.Cause(ctx)}
	}
	deadline := time.Now().Add(millisOr(l.cfg.StartTimeoutMs, DefaultStartTimeout))
	if info, err := os.Stat(l.cwd); err != nil {
		return nil, &spool.StartError{Reason: engine.StartBadCwd, Hint: "create the working directory or choose another", Err: err}
	} else if !info.IsDir() {
		return nil, &spool.StartError{Reason: engine.StartBadCwd, Hint: "choose a directory", Err: &os.PathError{Op: "chdir", Path: l.cwd, Err: unix.ENOTDIR}}
	}
	list, vain, err := candidates(l.cfg.Interpreter, l.cwd, l.env)
	if err != nil {
		return nil, &spool.StartError{Reason: engine.StartNotFound, Hint: "name an interpreter that exists, or omit it to search for one", Err: fmt.Errorf("interpreter %s: %w", l.cfg.Interpreter, err)}
	}
	var tried []string
	for _, c := range list {
		if known, ok := e.resolved(c, l); ok {
			c = known
		}
		p, err := e.startCandidate(ctx, c, l, deadline)
		if err == nil {
			e.remember(c, l, p)
			return p, nil
		}
		if ctx.Err() != nil {
			return nil, &spool.StartError{Reason: engine.StartOther, Err: context.Cause(ctx)}
		}
		if refused := (*spool.StartError)(nil); errors.As(err, &refused) { // the isolation
			return nil, refused
		}
		if failed := (*initError)(nil); errors.As(err, &failed) {
			return nil, &spool.StartError{Reason: engine.StartInvalid, Hint: "correct the init code", Err: failed}
		}
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.ENFILE) {
			return nil, &spool.StartError{Reason: engine.StartLimit, Hint: "stop other runs, or raise the limit", Err: err}
		}
		if errors.Is(err, launch.ErrNoMemoryLimit) || errors.Is(err, launch.ErrNoCPULimit) {
			return nil, &spool.StartError{Reason: engine.StartUnsupported, Hint: engine.NoLimitHint, Err: err}
		}
		tried = append(tried, fmt.Sprintf("%s (%s): %v", c.path, c.from, err))
	}
	for _, m := range vain {
		tried = append(tried, m.String())
	}
	return nil, errNoInterpreter(tried)
}

// startCandidate starts an interpreter from a zygote if it can, or else plainly.
func (e *Engine) startCandidate(ctx context.Context, c candidate, l *launchSpec, deadline time.Time) (*interpreter, error) {
	if z := e.zygote(ctx, c, l, deadline); z != nil {
		p, err := z.fork(ctx, l, deadline)
		if err == nil {
			return p, nil
		}
		if failed := (*initError)(nil); ctx.Err() != nil || errors.As(err, &failed) {
			return nil, err
		}
	}
	p, err := e.startProcess(c, l)
	if err != nil {
		return nil, err
	}
	if err := p.waitReady(ctx, deadline); err != nil {
		if said := p.discard(); said != "" {
			err = fmt.Errorf("%w: %s", err, said)
		}
		return nil, err
	}
	e.prepareZygote(c, p, l)
	return p, nil
}
