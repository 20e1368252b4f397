package kernel

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/fdpass"
	"github.com/spool-run/spool/internal/launch"
	"github.com/spool-run/spool/internal/spare"
	"github.com/spool-run/spool/python"
)

// zygote is a process that has imported the modules interpreters need. It forks
// interpreters as children of this process.
type zygote struct {
	engine *Engine
	key    string
	booted chan struct{} // closed once it is ready or failed

	// Set before boot is closed.
	tree       *launch.Tree
	log        int // a memory file with its output
	packages   time.Time
	executable string
	err        error

	mu       sync.Mutex
	sock     *os.File
	pending  map[int64]chan dict // forks without a reply, by number
	next     int64
	lastUsed time.Time
	ready    bool
	dropped  bool

	pids int // the limit of processes of the last interpreter, and so of spares

	spares spare.Pool[*interpreter] // forked in advance
}

// zygoteBootTimeout bounds how long a zygote imports.
const zygoteBootTimeout = 60 * time.Second

// zygoteKey names the zygote that fits: the same program in the same
// environment with the same modules.
func zygoteKey(c candidate, l *launchSpec) string {
	env := slices.Clone(c.activate(l.shared()))
	slices.Sort(env)
	sum := sha256.Sum256([]byte(c.path + "\x00" + strings.Join(l.cfg.Preload, ",") + "\x00" + strings.Join(env, "\x00")))
	return hex.EncodeToString(sum[:])
}

// packagesTime is when the packages of an interpreter last changed.
func packagesTime(c candidate) time.Time {
	var last time.Time
	dirs, err := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(c.path)), "lib", "python3*", "site-packages"))
	if err != nil {
		return last
	}
	for _, dir := range dirs {
		if info, err := os.Stat(dir); err == nil && info.ModTime().After(last) {
			last = info.ModTime()
		}
	}
	return last
}

// zygote returns one that is ready, or nil. With [python.ZygoteWait] it makes one and
// waits.
func (e *Engine) zygote(ctx context.Context, c candidate, l *launchSpec, deadline time.Time) *zygote {
	if l.cfg.Zygote == python.ZygoteOff || e.launcher.Guarantees().Kill != launch.KillCgroup || l.limited() || l.isolated() {
		return nil
	}
	var z *zygote
	if l.cfg.Zygote == python.ZygoteWait {
		z = e.makeZygote(c, l)
	} else {
		e.mu.Lock()
		z = e.zygotes[zygoteKey(c, l)]
		e.mu.Unlock()
	}
	if z == nil {
		return nil
	}
	if l.cfg.Zygote == python.ZygoteWait {
		timeout := time.NewTimer(time.Until(deadline))
		defer timeout.Stop()
		select {
		case <-z.booted:
		case <-ctx.Done():
		case <-timeout.C:
		}
	}
	select {
	case <-z.booted:
	default:
		return nil
	}
	if z.err != nil {
		return nil
	}
	if packagesTime(c) != z.packages { // something was installed since
		e.dropZygote(z)
		return nil
	}
	return z
}

// prepareZygote has a zygote made for the next start, if there is none.
func (e *Engine) prepareZygote(c candidate, p *interpreter, l *launchSpec) {
	if l.cfg.Zygote != python.ZygoteAuto || l.limited() || l.isolated() || e.launcher.Guarantees().Kill != launch.KillCgroup {
		return
	}
	e.makeZygote(c.resolvedTo(p.executable), l)
}

// makeZygote returns the zygote for a start, which may be booting, or nil if
// the engine is closed.
func (e *Engine) makeZygote(c candidate, l *launchSpec) *zygote {
	key := zygoteKey(c, l)
	e.mu.Lock()
	if z := e.zygotes[key]; z != nil || e.closed {
		e.mu.Unlock()
		return z
	}
	z := &zygote{engine: e, key: key, booted: make(chan struct{}), log: -1, pending: make(map[int64]chan dict), lastUsed: time.Now(), packages: packagesTime(c), pids: l.pids}
	z.spares.High, z.spares.Make, z.spares.Discard = 1, z.makeSpare, func(p *interpreter) { p.discard() }
	e.zygotes[key] = z
	var oldest *zygote
	if len(e.zygotes) > MaxZygotes {
		for _, other := range e.zygotes {
			if other != z && (oldest == nil || other.lastUse().Before(oldest.lastUse())) {
				oldest = other
			}
		}
	}
	e.work.Add(1)
	e.mu.Unlock()
	if oldest != nil {
		e.dropZygote(oldest)
	}
	go func() {
		defer e.work.Done()
		z.run(c, l)
	}()
	return z
}

func (z *zygote) lastUse() time.Time {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.lastUsed
}

// dropZygote ends a zygote. The interpreters it forked live on.
func (e *Engine) dropZygote(z *zygote) {
	e.mu.Lock()
	if e.zygotes[z.key] == z {
		delete(e.zygotes, z.key)
	}
	e.mu.Unlock()
	z.drop()
}

func (z *zygote) drop() {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.dropped = true
	if z.sock != nil {
		_ = z.sock.SetReadDeadline(time.Unix(1, 0)) // wakes run, which cleans up
	}
}

// run runs until the zygote has ended.
func (z *zygote) run(c candidate, l *launchSpec) {
	err := z.start(c, l)
	if err == nil {
		err = z.serve(l)
	}
	select {
	case <-z.booted:
	default:
		z.err = fmt.Errorf("zygote: %w", cmp.Or(err, errExited))
		close(z.booted)
	}
	z.engine.dropZygote(z)
	z.mu.Lock()
	for n, ch := range z.pending {
		delete(z.pending, n)
		close(ch)
	}
	if z.sock != nil {
		_ = z.sock.Close()
		z.sock = nil
	}
	z.mu.Unlock()
	if z.tree != nil {
		_ = z.tree.Kill() // the wait below shows whether it worked
		_, _ = z.tree.Reap()
		z.tree.Release()
	}
	z.spares.Close()
	if z.log >= 0 {
		_ = unix.Close(z.log)
	}
}

func (z *zygote) start(c candidate, l *launchSpec) error {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make socket: %w", err)
	}
	defer unix.Close(fds[1])
	if err := unix.SetNonblock(fds[0], true); err != nil {
		_ = unix.Close(fds[0])
		return fmt.Errorf("set non-blocking: %w", err)
	}
	z.mu.Lock()
	z.sock = os.NewFile(uintptr(fds[0]), "zygote")
	// Set before the zygote starts: a drop from here on replaces it and must not be undone.
	_ = z.sock.SetReadDeadline(time.Now().Add(zygoteBootTimeout)) // a socket always takes one
	gone := z.dropped
	z.mu.Unlock()
	if gone {
		return errExited
	}
	if z.log, err = unix.MemfdCreate("spool-zygote", unix.MFD_CLOEXEC); err != nil {
		return fmt.Errorf("make memory file: %w", err)
	}
	z.tree, err = z.engine.launcher.Start(launch.Command{
		Path: c.path, Argv: runnerArgs(c.path, "zygote", strings.Join(l.cfg.Preload, ",")), Env: c.activate(l.shared()), Dir: "/",
		Files: []uintptr{uintptr(z.engine.null), uintptr(z.log), uintptr(z.log), uintptr(fds[1]), uintptr(z.engine.lifePipe[0])},
	})
	return err
}

// serve handles the messages of the zygote until it ends or is dropped.
func (z *zygote) serve(l *launchSpec) error {
	buf := make([]byte, 64<<10)
	for {
		n, err := z.sock.Read(buf)
		if err != nil || n == 0 {
			if errors.Is(err, os.ErrDeadlineExceeded) && z.extendDeadline() {
				continue
			}
			return cmp.Or(err, errExited)
		}
		v, err := decodeValue(slices.Clone(buf[:n]))
		if err != nil {
			return err
		}
		m, _ := v.(dict)
		if text(m, "t") == "zygote" {
			z.mu.Lock()
			z.executable = text(m, "executable")
			z.ready = true
			z.mu.Unlock()
			z.extendDeadline()
			close(z.booted)
			for _, group := range z.engine.groups() {
				z.guardGroup(group)
			}
			z.spares.Fill()
			continue
		}
		z.mu.Lock()
		ch := z.pending[number(m, "n")]
		delete(z.pending, number(m, "n"))
		z.mu.Unlock()
		switch pid := int(number(m, "pid")); {
		case ch != nil:
			ch <- m
		case text(m, "t") == "born" && pid > 0: // its caller has stopped waiting
			_ = unix.Kill(pid, unix.SIGKILL) // our child, and not reaped: the pid is its own
			_, _ = unix.Wait4(pid, nil, 0, nil)
		}
	}
}

// extendDeadline sets the read deadline to the end of the idle time. It returns false
// if the zygote should end: it was dropped, did not boot in time, or was idle.
func (z *zygote) extendDeadline() bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	idle := time.Since(z.lastUsed)
	if z.dropped || !z.ready || idle >= ZygoteIdle {
		return false
	}
	_ = z.sock.SetReadDeadline(time.Now().Add(ZygoteIdle - idle)) // a socket always takes one
	return true
}

// fork returns a ready interpreter: a spare one, or else a new one. It then has a
// spare one forked for the next start.
func (z *zygote) fork(ctx context.Context, l *launchSpec, deadline time.Time) (*interpreter, error) {
	p := z.takeSpare(l.pids)
	if p == nil {
		var err error
		if p, err = z.spawn(l.pids, deadline); err != nil {
			return nil, fmt.Errorf("fork from zygote: %w", err)
		}
	}
	p.oomKills = oomKills()
	m := l.init()
	z.engine.limitMemory(p, l, m)
	err := writeAll(p.ctl, appendFrame(nil, m))
	if err == nil {
		err = p.waitReady(ctx, deadline)
	}
	if err != nil {
		if said := p.discard(); said != "" {
			err = fmt.Errorf("%w: %s", err, said)
		}
		return nil, fmt.Errorf("fork from zygote: %w", err)
	}
	z.spares.Fill()
	return p, nil
}

// takeSpare returns a spare interpreter with that limit of processes, or nil.
func (z *zygote) takeSpare(pids int) *interpreter {
	z.mu.Lock()
	z.lastUsed, z.pids = time.Now(), pids
	z.mu.Unlock()
	p, ok := z.spares.Take()
	if ok && p.pids != pids {
		z.engine.work.Go(func() { p.discard() }) // the engine waits for the start that is under way
		return nil
	}
	return p
}

// makeSpare forks a spare interpreter.
func (z *zygote) makeSpare() (*interpreter, error) {
	z.mu.Lock()
	pids, gone := z.pids, z.dropped
	z.mu.Unlock()
	if gone {
		return nil, errExited
	}
	return z.spawn(pids, time.Now().Add(DefaultStartTimeout))
}

// spawn has the zygote fork an interpreter, which waits for its init message.
func (z *zygote) spawn(pids int, deadline time.Time) (*interpreter, error) {
	group, err := z.engine.launcher.Reserve(pids)
	if err != nil {
		return nil, err
	}
	p, t, err := newInterpreter()
	if err != nil {
		group.Abandon()
		return nil, err
	}
	defer t.close()
	p.forked, p.executable, p.pids = true, z.executable, pids
	reply := make(chan dict, 1)
	fds := append([]int{t.out, t.err, t.ctl, z.engine.lifePipe[0], t.dump, group.Group()}, group.Tasks()...)
	n, err := z.requestFork(reply, fds, deadline)
	if err == nil {
		err = z.adoptForked(group, p, reply, deadline)
	}
	if err != nil {
		z.mu.Lock()
		delete(z.pending, n)
		z.mu.Unlock()
		group.Abandon()
		p.closeFiles()
		return nil, err
	}
	return p, nil
}

// requestFork asks the zygote for a fork with those descriptors.
func (z *zygote) requestFork(reply chan dict, fds []int, deadline time.Time) (int64, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.next++
	if z.dropped || z.sock == nil {
		return z.next, errExited
	}
	z.pending[z.next] = reply
	_ = z.sock.SetWriteDeadline(deadline) // a socket always takes one
	return z.next, sendFiles(z.sock, appendValue(nil, dict{"n": z.next}), fds)
}

// adoptForked waits for the reply of the zygote and adopts the child.
func (z *zygote) adoptForked(group *launch.Reservation, p *interpreter, reply chan dict, deadline time.Time) error {
	timeout := time.NewTimer(time.Until(deadline))
	defer timeout.Stop()
	select {
	case m, ok := <-reply:
		switch {
		case !ok:
			return errExited
		case text(m, "t") != "born":
			return errors.New(text(m, "error"))
		}
		tree, err := group.Adopt(int(number(m, "pid")))
		if err != nil {
			return err
		}
		p.tree = tree
		return nil
	case <-timeout.C:
		return errStartTimeout
	}
}

// sendFiles sends a message with descriptors.
func sendFiles(f *os.File, b []byte, fds []int) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = conn.Write(func(fd uintptr) bool {
		sent = fdpass.Send(int(fd), b, fds...)
		return sent != unix.EAGAIN
	})
	return errors.Join(err, sent)
}

// dropZygotes ends the zygotes of an interpreter whose packages have changed.
func (e *Engine) dropZygotes(executable string) {
	e.mu.Lock()
	var old []*zygote
	for _, z := range e.zygotes {
		select {
		case <-z.booted:
			if z.executable != executable {
				continue
			}
		default:
		}
		old = append(old, z)
	}
	e.mu.Unlock()
	for _, z := range old {
		e.dropZygote(z)
	}
}
