package pyodide

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/fdpass"
	"github.com/spool-run/spool/internal/seccomp"
)

// canFork says that processes can be forked from outside on this architecture.
const canFork = true

// forkFlags are those of the clone that the zygote is made to execute. With
// CLONE_PARENT its copies are our children, as it is itself.
const forkFlags = unix.CLONE_PARENT | uint32(unix.SIGCHLD)

// zygote is a process that waits in read, stopped for good. What it waits for
// never comes; copies of it are made that wait for the same and get it.
//
// All methods must be called on the thread that made it, which is its tracer.
type zygote struct {
	pid  int
	wait unix.PtraceRegs // in the read, before its result is looked at
	room uint64          // a page in its memory, and in that of its copies
	page []byte          // what is in it
	data int64           // bytes of writable memory that it has
	mark uint64          // address of the byte that interrupts a script

	inherited []descriptor // that its copies get anew
}

// The layout of the page: a message header for one byte and two descriptors,
// and behind it the filter of the copies.
const (
	roomSize    = 16 << 10
	atIovec     = 64
	atByte      = 128
	atNull      = 192 // the path of the null device
	atControl   = 256
	controlSize = 24 // CMSG_SPACE of two descriptors
	atFilter    = 512
	atProgram   = 528
)

// stopTime bounds how long a process may take to get to its wait. Its other threads may
// compile until then.
const stopTime = 30 * time.Second

// newZygote stops a process that is about to read from fd and prepares it.
// give sends a descriptor to the other end of fd.
func newZygote(proc *os.File, pid, fd int, mark byte, program seccomp.Program, give func(*os.File) error) (*zygote, error) {
	m := &zygote{pid: pid}
	if err := unix.PtraceSeize(pid); err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	if err := m.stop(fd); err != nil {
		return nil, fmt.Errorf("stop: %w", err)
	}
	if err := m.freeze(proc); err != nil {
		return nil, fmt.Errorf("stop its threads: %w", err)
	}
	const options = unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEVFORK | unix.PTRACE_O_EXITKILL
	if err := unix.PtraceSetOptions(pid, options); err != nil {
		return nil, fmt.Errorf("set options: %w", err)
	}
	if err := m.doFork(proc); err != nil {
		return nil, err
	}
	// Standard error was for messages while loading. Scripts must not
	// write there.
	if _, err := m.call(pid, unix.SYS_DUP3, 0, stderrFD, 0); err != nil {
		return nil, fmt.Errorf("take away standard error: %w", err)
	}
	if err := m.makeRoom(program); err != nil {
		return nil, fmt.Errorf("make room: %w", err)
	}
	m.mark, _ = findMark(proc, pid, mark) // without it there is no way to interrupt, but all else
	if err := m.share(proc, fd, give); err != nil {
		return nil, fmt.Errorf("share its memory: %w", err)
	}
	if err := m.cleanRoom(); err != nil {
		return nil, err
	}
	var err error
	if m.inherited, err = inherited(proc, pid, fd); err != nil {
		return nil, fmt.Errorf("list its descriptors: %w", err)
	}
	m.data, err = dataSize(proc, pid)
	return m, err
}

// stop stops the process in its read.
func (m *zygote) stop(fd int) error {
	deadline := time.Now().Add(stopTime)
	for {
		if err := unix.PtraceInterrupt(m.pid); err != nil {
			return err
		}
		ws, err := waitFor(m.pid)
		if err != nil {
			return err
		}
		if !ws.Stopped() {
			return fmt.Errorf("the process ended: %v", ws)
		}
		if err := unix.PtraceGetRegs(m.pid, &m.wait); err != nil {
			return err
		}
		if m.wait.Orig_rax == unix.SYS_READ && m.wait.Rdi == uint64(fd) && restarts(m.wait.Rax) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the process is in system call %d and not in read", int64(m.wait.Orig_rax))
		}
		signal := 0
		if s := ws.StopSignal(); s != unix.SIGTRAP {
			signal = int(s)
		}
		if err := unix.PtraceCont(m.pid, signal); err != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// freeze stops the other threads, each where it waits for something to do.
// They are not copied: what one of them holds in the moment of a fork, such as
// the lock of the allocator, the copy would wait for in vain.
func (m *zygote) freeze(proc *os.File) error {
	threads, err := threads(proc, m.pid)
	if err != nil {
		return err
	}
	deadline := time.Now().Add(stopTime)
	for _, tid := range threads {
		if tid == m.pid {
			continue
		}
		if err := unix.PtraceSeize(tid); err != nil {
			return err
		}
		for {
			if err := unix.PtraceInterrupt(tid); err != nil {
				return err
			}
			ws, err := waitFor(tid)
			if err != nil {
				return err
			}
			var r unix.PtraceRegs
			if !ws.Stopped() {
				break // it is gone, which will do
			} else if err := unix.PtraceGetRegs(tid, &r); err != nil {
				return err
			}
			if waits(r.Orig_rax) && restarts(r.Rax) {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("thread %d is in system call %d and does not become idle", tid, int64(r.Orig_rax))
			}
			if err := unix.PtraceCont(tid, 0); err != nil {
				return err
			}
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

// waits says that a call is one in which a thread waits for work.
func waits(nr uint64) bool {
	switch nr {
	case unix.SYS_FUTEX, unix.SYS_EPOLL_WAIT, unix.SYS_EPOLL_PWAIT, unix.SYS_POLL, unix.SYS_PPOLL, unix.SYS_READ, unix.SYS_RT_SIGTIMEDWAIT:
		return true
	}
	return false
}

// restarts says that a call was interrupted and would be made again.
func restarts(result uint64) bool {
	const eintr, errRestartSys, errRestartBlock = int64(unix.EINTR), 512, 516
	n := -int64(result)
	return n == eintr || n >= errRestartSys && n <= errRestartBlock
}

// errEnded says that a process ended instead.
var errEnded = errors.New("the process ended in a system call")

// call has a stopped process execute one system call, and returns its result.
func (m *zygote) call(pid int, nr uintptr, args ...uint64) (uint64, error) {
	r := m.wait
	r.Rip -= 2 // the syscall instruction it waits in
	r.Rax, r.Orig_rax = uint64(nr), ^uint64(0)
	into := [...]*uint64{&r.Rdi, &r.Rsi, &r.Rdx, &r.R10, &r.R8, &r.R9}
	for i, a := range args {
		*into[i] = a
	}
	if err := unix.PtraceSetRegs(pid, &r); err != nil {
		return 0, err
	}
	for {
		if err := unix.PtraceSingleStep(pid); err != nil {
			return 0, err
		}
		ws, err := waitFor(pid)
		if err != nil {
			return 0, err
		}
		if !ws.Stopped() {
			return 0, fmt.Errorf("%w: %w", errEnded, statusError(ws))
		}
		if uint32(ws)>>16 == 0 { // not the news of a clone
			break
		}
	}
	if err := unix.PtraceGetRegs(pid, &r); err != nil {
		return 0, err
	}
	if n := int64(r.Rax); n < 0 && n > -4096 {
		return 0, unix.Errno(-n)
	}
	return r.Rax, nil
}

// doFork undoes what V8 does to keep its memory from being inherited.
func (m *zygote) doFork(proc *os.File) error {
	list, err := regions(proc, m.pid)
	if err != nil {
		return err
	}
	for _, r := range list {
		if !r.kept {
			continue
		}
		if _, err := m.call(m.pid, unix.SYS_MADVISE, r.low, r.high-r.low, unix.MADV_DOFORK); err != nil {
			return fmt.Errorf("madvise: %w", err)
		}
	}
	return nil
}

func (m *zygote) makeRoom(program seccomp.Program) error {
	at, err := m.call(m.pid, unix.SYS_MMAP, 0, roomSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, ^uint64(0), 0)
	if err != nil {
		return err
	}
	if atProgram+8*len(program) > roomSize {
		return errors.New("the filter is too long")
	}
	b := make([]byte, atProgram, roomSize)
	word := func(i int, v uint64) { binary.LittleEndian.PutUint64(b[i:], v) }
	word(16, at+atIovec) // msg_iov
	word(24, 1)
	word(32, at+atControl) // msg_control
	word(40, controlSize)
	word(atIovec, at+atByte)
	word(atIovec+8, 1)
	copy(b[atNull:], "/dev/null\x00")
	word(atFilter, uint64(len(program)))
	word(atFilter+8, at+atProgram)
	for _, i := range program {
		b = binary.LittleEndian.AppendUint16(b, i.Code)
		b = append(b, i.Jt, i.Jf)
		b = binary.LittleEndian.AppendUint32(b, i.K)
	}
	m.room, m.page = at, b
	return m.cleanRoom()
}

// cleanRoom restores the page to what it was before a message was received.
func (m *zygote) cleanRoom() error {
	_, err := unix.PtracePokeData(m.pid, uintptr(m.room), m.page)
	return err
}

// fork makes a copy. Its fd and its standard error are the descriptors that
// pass sends to the other end of the zygote's fd. before is called with its pid while it stands still.
func (m *zygote) fork(fd int, pass func() error, before func(pid int) error) (pid int, err error) {
	child, err := m.call(m.pid, unix.SYS_CLONE, uint64(forkFlags), 0, 0, 0, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, errEnded) {
		return 0, fmt.Errorf("%w: %w", errNoZygote, err)
	} else if err != nil {
		return 0, fmt.Errorf("clone: %w", err)
	}
	pid = int(child)
	defer func() {
		if err != nil {
			_ = unix.Kill(pid, unix.SIGKILL)
			_, _ = waitFor(pid)
		}
	}()
	if ws, err := waitFor(pid); err != nil || !ws.Stopped() {
		return 0, fmt.Errorf("stop the copy: %v, %w", ws, err)
	}
	own, err := m.receive(pid, fd, pass)
	if err != nil {
		return 0, err
	}
	for i, to := range []uint64{uint64(fd), stderrFD} {
		if _, err := m.call(pid, unix.SYS_DUP3, own[i], to, 0); err != nil {
			return 0, fmt.Errorf("move connection: %w", err)
		}
		if _, err := m.call(pid, unix.SYS_CLOSE, own[i]); err != nil {
			return 0, fmt.Errorf("move connection: %w", err)
		}
	}
	if err := m.replaceDescriptors(pid); err != nil {
		return 0, err
	}
	if _, err := m.call(pid, unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, m.room+atFilter); err != nil {
		return 0, fmt.Errorf("install seccomp filter: %w", err)
	}
	if err := before(pid); err != nil {
		return 0, err
	}
	r := m.wait
	r.Rip -= 2
	r.Rax, r.Orig_rax = unix.SYS_READ, ^uint64(0)
	if err := unix.PtraceSetRegs(pid, &r); err != nil {
		return 0, err
	}
	return pid, unix.PtraceDetach(pid)
}

// stderrFD is where a process says why it crashes.
const stderrFD = 2

// receive has a stopped process take the descriptors, two at most, that pass
// sends to the other end of its fd.
func (m *zygote) receive(pid, fd int, pass func() error) ([2]uint64, error) {
	var own [2]uint64
	if err := pass(); err != nil {
		return own, fmt.Errorf("pass descriptors: %w", err)
	}
	n, err := m.call(pid, unix.SYS_RECVMSG, uint64(fd), m.room, 0)
	if err != nil {
		return own, fmt.Errorf("%w: %w", errDescriptorLost, err)
	}
	var got [controlSize]byte
	if _, err := unix.PtracePeekData(pid, uintptr(m.room+atControl), got[:]); err != nil {
		return own, fmt.Errorf("receive descriptors: %w", err)
	}
	fds, err := fdpass.Parse(got[:])
	if err != nil || n != 1 || len(fds) == 0 || len(fds) > len(own) {
		return own, fmt.Errorf("%w: %d bytes, %d descriptors, %w", errDescriptorLost, n, len(fds), err)
	}
	for i, fd := range fds {
		own[i] = uint64(fd)
	}
	return own, nil
}
