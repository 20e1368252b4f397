//go:build amd64 || arm64

package pyodide

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/internal/tail"
)

// group is the host's side of a supervisor and the processes of its
// interpreters.
type group struct {
	first  *isolate.First // the supervisor
	conn   *net.UnixConn
	stderr *tail.Pipe
	loaded chan struct{} // closed when up, ready and err are set
	up     report
	ready  *readyInfo
	rss    int64
	gone   chan struct{} // closed when all its processes have ended

	loadTime time.Duration // of a process that loads the distribution itself

	mu    sync.Mutex
	err   error // why it failed
	last  uint64
	procs map[uint64]*process
}

// process is the process of one interpreter.
type process struct {
	group  *group
	id     uint64
	conn   *net.UnixConn
	frames *frames
	exited chan struct{} // closed when exit is set
	exit   report
	info   *readyInfo // what it says of its own load; nil if it was forked

	measured chan int64
	alarmed  chan struct{} // filled by the answer to doInterrupt
	alarming sync.Mutex    // held for one such order at a time
}

// loaded is what was measured when the distribution was loaded, in the process
// itself or in the one that it was forked from.
func (p *process) loaded() *readyInfo {
	if p.info != nil {
		return p.info
	}
	return p.group.ready
}

// errGone means that a group has ended.
var errGone = errors.New("the processes of the interpreters have ended")

// startGroup starts a supervisor, which sets up the protections and, if the plan
// is to fork, loads the process to fork from.
func (b *Backend) startGroup(ctx context.Context, p plan, snapshot *os.File) (*group, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make control socket: %w", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "control")
	defer theirs.Close()
	conn, err := fileConn(fds[0])
	if err != nil {
		return nil, err
	}
	if snapshot == nil {
		if snapshot, err = os.Open(os.DevNull); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		defer snapshot.Close()
	}
	arg, err := json.Marshal(p)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	n := &group{
		conn: conn, procs: make(map[uint64]*process),
		loaded: make(chan struct{}), gone: make(chan struct{}), loadTime: b.opts.LoadTime,
	}
	if err := n.start(ctx, b, string(arg), p.places(), theirs, snapshot); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", Role, err), conn.Close())
	}
	theirs.Close()
	go n.listen()
	late := time.NewTimer(b.opts.LoadTime)
	defer late.Stop()
	select {
	case <-n.loaded:
	case <-ctx.Done():
		n.kill() // the supervisor listens when it has loaded, and not before
		n.close()
		return nil, ctx.Err()
	case <-late.C:
		n.kill()
		n.close()
		return nil, fmt.Errorf("the interpreter was not ready after %v", b.opts.LoadTime)
	}
	if err := n.failure(); err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

// start starts the supervisor, with nothing of this process but its descriptors.
func (n *group) start(ctx context.Context, b *Backend, arg string, places []isolate.Place, control, snapshot *os.File) error {
	pattern, err := b.cell(ctx)
	if err != nil {
		return err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	stderr, in, err := tail.NewPipe(maxTail)
	if err != nil {
		return err
	}
	files := []uintptr{null.Fd(), null.Fd(), in.Fd(), control.Fd(), snapshot.Fd()}
	n.stderr = stderr
	n.first, err = pattern.With(places).Start(b.opts.Self, []string{"spool", Role, verbSupervise, arg}, &syscall.ProcAttr{Env: []string{}, Files: files})
	_ = in.Close()
	if err != nil {
		stderr.Wait()
	}
	return err
}

// fileConn makes a connection of a descriptor, which it takes.
func fileConn(fd int) (*net.UnixConn, error) {
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("use socket: %w", err)
	}
	return c.(*net.UnixConn), nil
}

// listen takes reports until there will be none.
func (n *group) listen() {
	defer close(n.gone)
	buf := make([]byte, maxControl)
	var err error
	for {
		var got int
		if got, err = n.conn.Read(buf); err != nil || got == 0 {
			break
		}
		var r report
		if err = json.Unmarshal(buf[:got], &r); err != nil {
			break
		}
		n.take(r)
	}
	_ = n.conn.Close()
	werr := n.first.Wait()
	n.stderr.Wait()
	n.fail(errors.Join(errGone, werr))
	n.mu.Lock()
	left := n.procs
	n.procs = nil
	n.mu.Unlock()
	for id, p := range left {
		p.exit = report{What: isExited, ID: id, Signal: int(unix.SIGKILL)}
		close(p.exited)
	}
}

func (n *group) take(r report) {
	switch r.What {
	case isUp:
		n.up = r
		if !r.Forks {
			close(n.loaded)
		}
	case isReady:
		n.ready, n.rss = r.Ready, r.RSS
		close(n.loaded)
	case isFailed:
		n.fail(errors.New(r.Text))
	case isRefused, isExited:
		n.mu.Lock()
		p := n.procs[r.ID]
		n.mu.Unlock()
		switch {
		case p == nil:
		case r.What == isExited:
			p.exit = r
			n.remove(p)
		case r.Do == doFork || r.Do == doStart: // there is no process
			p.exit = r
			n.remove(p)
			_ = p.conn.SetReadDeadline(time.Unix(1, 0)) // the other end is closed
		case r.Do == doSeal: // one without its bounds is not wanted
			p.kill()
		case r.Do == doInterrupt:
			p.answerAlarm()
		}
	case isAlarmed:
		n.mu.Lock()
		p := n.procs[r.ID]
		n.mu.Unlock()
		if p != nil {
			p.answerAlarm()
		}
	case isMeasured:
		n.mu.Lock()
		p := n.procs[r.ID]
		n.mu.Unlock()
		if p != nil {
			select {
			case p.measured <- r.Private:
			default: // no measurement is pending
			}
		}
	}
}

// remove takes a process whose exit is set off the list.
func (n *group) remove(p *process) {
	n.mu.Lock()
	delete(n.procs, p.id)
	n.mu.Unlock()
	close(p.exited)
}

func (n *group) fail(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.err != nil {
		return
	}
	if text := strings.TrimSpace(n.stderr.String()); text != "" {
		err = fmt.Errorf("%w: %s", err, text)
	}
	n.err = err
	select {
	case <-n.loaded:
	default:
		close(n.loaded)
	}
}

func (n *group) failure() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.err
}

// forks says whether interpreters are forked.
func (n *group) forks() bool { return n.ready != nil && n.ready.Kind == kindPyodide }

// living says how many processes there are.
func (n *group) living() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.procs)
}

// begin makes an interpreter's process, by doFork or doStart.
func (n *group) begin(do string, memory int64) (*process, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make a connection: %w", err)
	}
	defer unix.Close(fds[1])
	conn, err := fileConn(fds[0])
	if err != nil {
		return nil, err
	}
	p := &process{group: n, conn: conn, frames: newFrames(conn), exited: make(chan struct{}), measured: make(chan int64, 1), alarmed: make(chan struct{}, 1)}
	n.mu.Lock()
	if n.procs == nil {
		n.mu.Unlock()
		return nil, errors.Join(n.failure(), conn.Close())
	}
	n.last++
	p.id = n.last
	n.procs[p.id] = p
	n.mu.Unlock()
	if err := n.order(order{Do: do, ID: p.id, Memory: memory}, fds[1]); err != nil {
		n.mu.Lock()
		delete(n.procs, p.id)
		n.mu.Unlock()
		return nil, errors.Join(err, conn.Close())
	}
	return p, nil
}

// order tells the supervisor what to do; fd comes along unless it is negative.
func (n *group) order(o order, fd int) error {
	b, err := json.Marshal(o)
	if err != nil {
		return err
	}
	var oob []byte
	if fd >= 0 {
		oob = unix.UnixRights(fd)
	}
	_ = n.conn.SetWriteDeadline(time.Now().Add(orderTime)) // or it is closed
	if _, _, err := n.conn.WriteMsgUnix(b, oob, nil); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			n.kill()
		}
		return fmt.Errorf("%w: %w", errGone, err)
	}
	return nil
}

// What a supervisor may take.
const (
	orderTime = 10 * time.Second // to take an order, of which many may wait
	closeTime = 5 * time.Second  // to end when it is not wanted any more
)

// close ends all processes of the group and waits for them.
func (n *group) close() {
	_ = n.conn.Close() // the supervisor sees it, and is the first process of its namespace
	late := time.AfterFunc(closeTime, n.kill)
	defer late.Stop()
	<-n.gone
}

// kill kills all processes of the group without asking the supervisor.
func (n *group) kill() {
	n.first.Kill()
	_ = n.conn.Close()
}

// kill ends the process. It returns at once; exited says when it is gone.
func (p *process) kill() {
	select {
	case <-p.exited:
	default:
		_ = p.group.order(order{Do: doKill, ID: p.id}, -1) // or all of them are gone
	}
}

// isGone reports whether the process has ended.
func (p *process) isGone() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// used returns what a process that is gone used, nil if that is not known.
func (p *process) used() *spool.ProcessUse {
	switch {
	case p.exit.What == isRefused: // there was none
		return &spool.ProcessUse{}
	case p.exit.MaxRSS == 0: // its supervisor ended, too
		return nil
	}
	return &spool.ProcessUse{UserUs: p.exit.User, SystemUs: p.exit.System, PeakMemory: p.exit.MaxRSS}
}

// end kills the process and lets go of its connection.
func (p *process) end() {
	p.kill()
	_ = p.conn.Close()
}

// alarm has the interpreter see an interrupt, and returns when it can see it. A wait of
// the script that ended before would have Python look too early.
func (p *process) alarm() error {
	p.alarming.Lock()
	defer p.alarming.Unlock()
	if err := p.group.order(order{Do: doInterrupt, ID: p.id}, -1); err != nil {
		return err
	}
	late := time.NewTimer(orderTime)
	defer late.Stop()
	select {
	case <-p.alarmed:
		return nil
	case <-p.exited:
		return nil
	case <-late.C:
		return fmt.Errorf("interrupt an interpreter: no answer after %v", orderTime)
	}
}

// answerAlarm lets alarm return.
func (p *process) answerAlarm() {
	select {
	case p.alarmed <- struct{}{}:
	default: // it waits no longer
	}
}

// private asks how much memory the process has for itself.
func (p *process) private(ctx context.Context) (int64, error) {
	if err := p.group.order(order{Do: doMeasure, ID: p.id}, -1); err != nil {
		return 0, err
	}
	select {
	case n := <-p.measured:
		return n, nil
	case <-p.exited:
		return 0, os.ErrProcessDone
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// maxTail bounds what is kept of the standard error of a process.
const maxTail = 8 << 10
