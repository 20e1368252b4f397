package agents

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine/agents/talk"
	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/internal/launch"
	"github.com/spool-run/spool/internal/tail"
)

// osChild is a child that really runs.
type osChild struct {
	*feeder
	tree  *launch.Tree
	lease *isolate.Lease     // nil if it is not isolated
	tell  func(spool.Notice) // takes what its network carried
	out   *os.File
	err   *os.File

	chunks chan chunk
	exits  chan talk.Exit
	quiet  chan struct{}
	asked  int        // how often to abandon the streams
	said   tail.Lines // on standard error
	wg     sync.WaitGroup
}

// startProcess starts a program with pipes on its three streams.
func startProcess(l *launch.Launcher, c launch.Command, stdin []byte, open bool) (*osChild, error) {
	ours, theirs, err := pipes()
	if err != nil {
		return nil, err
	}
	for _, fd := range theirs {
		c.Files = append(c.Files, uintptr(fd))
	}
	tree, err := l.Start(c)
	for _, fd := range theirs {
		_ = unix.Close(fd)
	}
	if err != nil {
		for _, f := range ours {
			_ = f.Close()
		}
		return nil, err
	}
	p := &osChild{feeder: newFeeder(ours[0]), tree: tree, out: ours[1], err: ours[2],
		chunks: make(chan chunk, 16), exits: make(chan talk.Exit, 1), quiet: make(chan struct{}),
		said: tail.Lines{First: StderrHead, Last: StderrTail, MaxLine: MaxStderrLine}}
	p.wg.Go(func() { readLines(p.out, MaxLine, p.chunks) })
	p.wg.Go(func() {
		defer close(p.quiet)
		p.said.Read(p.err)
	})
	p.wg.Go(p.wait)
	if len(stdin) > 0 {
		p.Write(stdin)
	}
	if !open {
		p.CloseInput()
	}
	return p, nil
}

// pipes makes our ends, which do not block, and the child's, which do.
func pipes() (ours []*os.File, theirs []int, err error) {
	for i, name := range []string{"stdin", "stdout", "stderr"} {
		var fd [2]int
		if err = unix.Pipe2(fd[:], unix.O_CLOEXEC); err != nil {
			break
		}
		mine, other := fd[0], fd[1]
		if i == 0 {
			mine, other = other, mine
		}
		theirs = append(theirs, other)
		err = unix.SetNonblock(mine, true)
		ours = append(ours, os.NewFile(uintptr(mine), name))
		if err != nil {
			break
		}
	}
	if err == nil {
		return ours, theirs, nil
	}
	for _, f := range ours {
		_ = f.Close()
	}
	for _, fd := range theirs {
		_ = unix.Close(fd)
	}
	return nil, nil, fmt.Errorf("make pipes: %w", err)
}

func (p *osChild) pid() int                 { return p.tree.Pid() }
func (p *osChild) lines() <-chan chunk      { return p.chunks }
func (p *osChild) exited() <-chan talk.Exit { return p.exits }
func (p *osChild) drained() <-chan struct{} { return p.quiet }
func (p *osChild) stderr() string           { return p.said.String() }

// killTime is how long a kill may wait for its effect. The system does not tell
// when the last process of a tree is gone.
const killTime = 10 * time.Second

// kill ends the whole tree, and returns when it is gone: when a turn is done,
// no process of it runs.
func (p *osChild) kill() error {
	err := p.tree.Kill()
	for until := time.Now().Add(killTime); err == nil && p.members() > 0 && time.Now().Before(until); {
		time.Sleep(time.Millisecond)
	}
	return err
}

// wait reaps the leader. A poll of its descriptor costs no thread.
func (p *osChild) wait() {
	if fd, err := unix.FcntlInt(uintptr(p.tree.PidFD()), unix.F_DUPFD_CLOEXEC, 3); err == nil {
		if unix.SetNonblock(fd, true) == nil {
			f := os.NewFile(uintptr(fd), "pidfd")
			if c, err := f.SyscallConn(); err == nil {
				_ = c.Read(ended)
			}
			_ = f.Close()
		} else {
			_ = unix.Close(fd)
		}
	}
	status, err := p.tree.Reap()
	x := talk.Exit{Code: status.ExitStatus()}
	switch {
	case err != nil:
		x = talk.Exit{Code: -1}
	case status.Signaled():
		x = talk.Exit{Code: 128 + int(status.Signal()), Signal: unix.SignalName(status.Signal())}
	}
	x.OutOfMemory = p.tree.MemoryKills() > 0
	x.Refused, x.Throttled = p.tree.Refused(), p.tree.Throttled()
	x.Used = p.tree.Used()
	p.exits <- x
}

// ended reports whether a pidfd's process has.
func ended(fd uintptr) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
}

func (p *osChild) signal(sig syscall.Signal) error { return p.tree.SignalGroup(sig) }

func (p *osChild) members() int {
	m, err := p.tree.Count()
	if err != nil {
		return 0
	}
	return m.Group + m.Escaped
}

// patience is how often abandon spares a process that writes without end.
const patience = 5

func (p *osChild) abandon() {
	if unread(p.out) || unread(p.err) {
		if p.members() == 0 { // what is there is all there will be
			return
		}
		if p.asked++; p.asked <= patience {
			return
		}
	}
	p.hangUp()
}

// unread reports whether there is something in a pipe.
func unread(f *os.File) bool {
	c, err := f.SyscallConn()
	if err != nil {
		return false
	}
	n := 0
	err = c.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return err == nil && n > 0
}

func (p *osChild) hangUp() {
	_ = p.out.Close()
	_ = p.err.Close()
}

// close is called once the leader is reaped, or cannot be.
func (p *osChild) close() error {
	err := p.kill()
	p.stop()
	p.hangUp()
	for range p.chunks { // lets the reader end
	}
	p.wg.Wait()
	p.tree.Release()
	if p.lease != nil {
		if n := p.lease.Network(); n != nil {
			if notice, ok := n.Close(); ok {
				p.tell(notice)
			}
		}
		p.lease.Release()
	}
	return err
}
