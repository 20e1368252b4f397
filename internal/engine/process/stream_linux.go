package process

import (
	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
)

// stream is one of the two outputs, or the terminal.
type stream struct {
	name         spool.Stream
	fd           int // -1 once it ended
	tty          bool
	grown        bool // the pipe has been enlarged, or cannot be
	capacity     int  // what fits into it
	lastReadFull bool // the last read filled its buffer
}

// grow enlarges a pipe that is used a lot, if the system lets us.
func (st *stream) grow() {
	st.grown = true
	for _, size := range []int{pipeSize, smallPipeSize} {
		if n, err := unix.FcntlInt(uintptr(st.fd), unix.F_SETPIPE_SZ, size); err == nil {
			st.capacity = n
			return
		}
	}
}

// read reads once from a pipe. A terminal gives 4 KiB at a time, so it is read
// until there is no more.
func (st *stream) read(buf []byte) (n int, ended bool) {
	for n < len(buf) {
		k, err := unix.Read(st.fd, buf[n:])
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return n, false
		case err != nil || k == 0: // a terminal ends with EIO
			return n, true
		}
		n += k
		if !st.tty {
			break
		}
	}
	return n, false
}

func hungUp(fd int) bool {
	poll := []unix.PollFd{{Fd: int32(fd)}}
	n, err := unix.Poll(poll, 0)
	return err == nil && n > 0 && poll[0].Revents&unix.POLLHUP != 0
}
