package pyodide

import (
	"errors"
	"io"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// spinWait is how long a read asks again and again before it leaves the
// waiting to the runtime's poller. A script that makes one file call after the
// other is back before that could wake anybody.
const spinWait = 50 * time.Microsecond

// hotReader reads from a connection of which more is expected soon.
type hotReader struct{ raw syscall.RawConn }

// newHotReader returns a reader of the connection: itself, if it has no
// descriptor to ask.
func newHotReader(r io.Reader) io.Reader {
	c, ok := r.(syscall.Conn)
	if !ok {
		return r
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return r
	}
	return hotReader{raw}
}

// Read implements [io.Reader].
func (h hotReader) Read(p []byte) (n int, err error) {
	var began time.Time
	waitErr := h.raw.Read(func(fd uintptr) bool {
		for {
			n, err = unix.Read(int(fd), p)
			switch {
			case errors.Is(err, unix.EINTR):
				continue
			case !errors.Is(err, unix.EAGAIN):
				return true
			}
			if now := time.Now(); began.IsZero() {
				began = now
			} else if now.Sub(began) > spinWait {
				return false
			}
		}
	})
	n = max(n, 0)
	switch {
	case waitErr != nil:
		return n, waitErr
	case err == nil && n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return n, err
}
