//go:build amd64 || arm64

package pyodide

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/fdpass"
)

// serve makes processes until there will be no more orders.
func (w *supervisor) serve() error {
	w.queue = make(chan birth, maxBirths)
	go func() {
		err := w.listen()
		if !w.plan.rooted() {
			w.killAll()
		}
		// The host is gone: abandon the process that is being made.
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}()
	for b := range w.queue {
		err := w.make(b)
		if errors.Is(err, errDescriptorLost) || errors.Is(err, errNoZygote) {
			return err
		} else if err != nil {
			w.forget(b.ID)
			if err := w.tell(report{What: isRefused, ID: b.ID, Do: b.Do, Text: err.Error()}); err != nil {
				return err
			}
		}
	}
	return nil
}

// birth is an order to make a process, which takes its time.
type birth struct {
	order
	conn *os.File
}

// maxBirths bounds how many wait. The host has to wait with more.
const maxBirths = 1024

// listen takes orders until the host is gone. All but births are carried out
// at once: an end does not wait for a beginning.
func (w *supervisor) listen() error {
	buf, oob := make([]byte, maxControl), make([]byte, unix.CmsgSpace(4))
	for {
		n, on, _, _, err := unix.Recvmsg(fdControl, buf, oob, unix.MSG_CMSG_CLOEXEC)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("receive order: %w", err)
		case n == 0:
			return nil
		}
		conn, err := received(oob[:on])
		if err != nil {
			return err
		}
		var o order
		if err := json.Unmarshal(buf[:n], &o); err != nil {
			return fmt.Errorf("decode order: %w", err)
		}
		if conn != nil {
			w.mu.Lock()
			w.unborn[o.ID] = wanted
			w.mu.Unlock()
			w.queue <- birth{o, conn}
			continue
		}
		if err = w.carryOut(o); err != nil {
			err = w.tell(report{What: isRefused, ID: o.ID, Do: o.Do, Text: err.Error()})
		} else if o.Do == doInterrupt {
			err = w.tell(report{What: isAlarmed, ID: o.ID})
		}
		if err != nil {
			return err
		}
	}
}

// make makes a process, unless the host has cancelled the order.
func (w *supervisor) make(b birth) error {
	defer b.conn.Close()
	w.mu.Lock()
	fate := w.unborn[b.ID]
	w.mu.Unlock()
	if fate == unwanted {
		w.forget(b.ID)
		return w.tell(report{What: isExited, ID: b.ID, Signal: int(unix.SIGKILL)})
	}
	return w.begin(b.order, b.conn)
}

// The fates of what is not born yet.
const (
	wanted   = "wanted"
	unwanted = "unwanted"
)

func (w *supervisor) forget(id uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.unborn, id)
}

// errDescriptorLost says that a connection may be where the next interpreter finds
// it instead of its own.
var errDescriptorLost = errors.New("a descriptor was lost in transfer")

// errNoZygote says that there is nothing to fork from any more.
var errNoZygote = errors.New("the process to fork from is gone")

func received(oob []byte) (*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	fds, err := fdpass.Exactly(oob, 1)
	if err != nil {
		return nil, fmt.Errorf("receive descriptor: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "connection"), nil
}

// carryOut does what takes no time.
func (w *supervisor) carryOut(o order) error {
	// The lock keeps the process from being reaped, so that its pid
	// cannot be reused.
	w.mu.Lock()
	defer w.mu.Unlock()
	pid, ok := w.procs[o.ID]
	if !ok {
		if _, ok := w.unborn[o.ID]; ok && o.Do == doKill {
			w.unborn[o.ID] = unwanted
		}
		return nil // or it is gone, and the host has been told
	}
	switch o.Do {
	case doKill:
		return unix.Kill(pid, unix.SIGKILL)
	case doInterrupt:
		if w.zygote == nil || w.zygote.mark == 0 {
			return errors.New("cannot interrupt")
		}
		return poke(w.in.Proc, pid, w.zygote.mark, []byte{byte(unix.SIGINT)})
	case doSeal:
		return w.seal(pid, o.Memory)
	case doMeasure:
		if w.in.Proc == nil {
			return errors.New("cannot measure")
		}
		size, err := privateSize(w.in.Proc, pid)
		if err != nil {
			return err
		}
		return w.tell(report{What: isMeasured, ID: o.ID, Private: size})
	}
	return fmt.Errorf("no order %q", o.Do)
}

// begin makes an interpreter's process.
func (w *supervisor) begin(o order, conn *os.File) error {
	said, stderr, err := sayings()
	if err != nil {
		return err
	}
	var pid int
	switch {
	case o.Do == doStart:
		pid, err = w.startNode(conn, stderr.Fd())
	case w.zygote == nil:
		err = errors.New("no process to fork from")
	default:
		pid, err = w.zygote.fork(fdRunner, func() error { return w.give(conn, stderr) }, func(pid int) error {
			if err := noProcesses(pid); err != nil {
				return err
			}
			if o.Memory <= 0 {
				return nil
			}
			return bound(pid, w.zygote.data+o.Memory)
		})
	}
	_ = stderr.Close()
	if err != nil {
		_ = said.Close()
		return err
	}
	return w.watch(o.ID, pid, said)
}

// sayings makes the standard error of a process: where it says why it falls
// over, if it does. The host does not read until then, so this must not block.
func sayings() (r, w *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, nil, fmt.Errorf("make standard error: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "stderr"), os.NewFile(uintptr(fds[1]), "stderr"), nil
}

// maxSaid bounds what is told of it.
const maxSaid = 2 << 10

// last is what a process said before it ended.
func last(said *os.File) string {
	b := make([]byte, maxSaid)
	n, err := unix.Read(int(said.Fd()), b)
	if err != nil || n < 0 {
		return ""
	}
	return strings.ToValidUTF8(strings.Trim(string(b[:n]), "\n #"), "?")
}

// seal takes from a started process what it only needed to start.
func (w *supervisor) seal(pid int, memory int64) error {
	if err := noProcesses(pid); err != nil {
		return err
	}
	if memory <= 0 || w.in.Proc == nil {
		return nil
	}
	data, err := dataSize(w.in.Proc, pid)
	if err != nil {
		return err
	}
	return bound(pid, data+memory)
}

// watch tells the host when a process is gone.
func (w *supervisor) watch(id uint64, pid int, said *os.File) error {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		_ = said.Close()
		_ = unix.Kill(pid, unix.SIGKILL)
		_, _ = waitFor(pid)
		return fmt.Errorf("watch process: %w", err)
	}
	w.mu.Lock()
	w.procs[id] = pid
	if w.unborn[id] == unwanted {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	delete(w.unborn, id)
	w.mu.Unlock()
	f := os.NewFile(uintptr(fd), "process")
	go func() {
		defer f.Close()
		defer said.Close()
		r := report{What: isExited, ID: id}
		if err := w.reap(f, id, pid, &r); err != nil {
			r.Text = err.Error()
		}
		r.Said = last(said)
		_ = w.tell(r) // or there is no host any more
	}()
	return nil
}

func (w *supervisor) reap(f *os.File, id uint64, pid int, r *report) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	ready := func(uintptr) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		var ws unix.WaitStatus
		var usage unix.Rusage
		got, werr := unix.Wait4(pid, &ws, unix.WNOHANG|unix.WALL, &usage)
		if werr == nil && got == 0 || errors.Is(werr, unix.EINTR) {
			return false
		}
		err = werr
		delete(w.procs, id)
		if ws.Signaled() {
			r.Signal = int(ws.Signal())
		} else {
			r.Code = ws.ExitStatus()
		}
		r.MaxRSS = usage.Maxrss << 10
		r.User, r.System = usage.Utime.Nano()/1000, usage.Stime.Nano()/1000
		return true
	}
	return errors.Join(conn.Read(ready), err)
}
