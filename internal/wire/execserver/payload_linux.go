package execserver

import (
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/wire/rpc"
)

// canWait is whether a connection can wait for its client without a payload.
const canWait = true

// writeParts writes head and a payload as far as the client has room, pauses the
// payload while it waits for more room, and goes on.
func (c *watchedConn) writeParts(head []byte, p rpc.Payload) error {
	sent, stepped, size := 0, 0, len(head)+p.Size()
	var failed error
	err := c.raw.Write(func(fd uintptr) bool {
		for sent < size {
			b, err := p.Load()
			if err != nil {
				failed = err
				return true
			}
			var n int
			if sent < len(head) {
				n, err = unix.Writev(int(fd), [][]byte{head[sent:], b})
			} else {
				n, err = unix.Write(int(fd), b[sent-len(head):])
			}
			switch {
			case err == unix.EINTR:
				continue
			case err == unix.EAGAIN:
				p.Pause()
				return false
			case err == nil && n == 0:
				err = io.ErrShortWrite
			}
			if err != nil {
				failed = fmt.Errorf("write: %w", err)
				return true
			}
			sent += n
			stepped = c.progress(sent, stepped)
		}
		return true
	})
	if err == nil {
		err = failed
	}
	return err
}
