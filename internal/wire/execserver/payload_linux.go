package execserver

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/wire/rpc"
)

// canWait is whether a connection can wait for its client without a payload.
const canWait = true

// filed is a payload whose bytes may be in a file; see [part.File].
type filed interface {
	File() (*os.File, int64)
}

// partWriter writes head and a payload to a socket. The bytes of the payload come from
// memory at first, and from their file, if they are in one, once the client had no room.
type partWriter struct {
	head    []byte
	payload rpc.Payload
	sent    int // of both

	file   *os.File // nil if the bytes come from memory
	offset int64    // of the payload in it
	noFile bool     // there is none, or it cannot be used
}

// writeParts writes head and a payload as far as the client has room, drops or pauses
// the payload while it waits for more room, and goes on.
func (c *watchedConn) writeParts(head []byte, p rpc.Payload) error {
	w := partWriter{head: head, payload: p}
	defer w.close()
	size, stepped := len(head)+p.Size(), 0
	var failed error
	err := c.raw.Write(func(fd uintptr) bool {
		for w.sent < size {
			n, err := w.write(int(fd))
			switch {
			case errors.Is(err, unix.EINTR):
				continue
			case errors.Is(err, unix.EAGAIN):
				w.wait()
				return false
			case err == nil && n == 0:
				err = io.ErrShortWrite
			}
			if err != nil {
				failed = err
				return true
			}
			w.sent += n
			stepped = c.progress(w.sent, stepped)
		}
		return true
	})
	if err == nil {
		err = failed
	}
	return err
}

// write writes as much as the client has room for.
func (w *partWriter) write(fd int) (n int, err error) {
	switch done := w.sent - len(w.head); {
	case w.file == nil:
		b, err := w.payload.Load()
		if err != nil {
			return 0, err
		}
		if done < 0 {
			n, err = unix.Writev(fd, [][]byte{w.head[w.sent:], b})
		} else {
			n, err = unix.Write(fd, b[done:])
		}
		return n, writeError(err)
	case done < 0:
		n, err = unix.Write(fd, w.head[w.sent:])
	default:
		offset := w.offset + int64(done)
		n, err = unix.Sendfile(fd, int(w.file.Fd()), &offset, w.payload.Size()-done)
		if err == unix.EINVAL || err == unix.ENOSYS { // a file system without it
			w.close()
			w.noFile = true
			return 0, unix.EINTR // once more
		}
	}
	return n, writeError(err)
}

// tryWrite writes what there is room for now, and returns how much.
func tryWrite(fd int, p []byte) int {
	n, err := unix.Write(fd, p)
	if err != nil {
		return 0
	}
	return n
}

func writeError(err error) error {
	if err != nil {
		err = fmt.Errorf("write: %w", err)
	}
	return err
}

// wait prepares for the time until the client has room again. With a file no bytes are
// held, and the message can be completed even if the log is removed meanwhile.
func (w *partWriter) wait() {
	if f, ok := w.payload.(filed); ok && w.file == nil && !w.noFile {
		w.file, w.offset = f.File()
		w.noFile = w.file == nil
	}
	if w.file == nil {
		w.payload.Pause()
		return
	}
	w.payload.Drop()
}

func (w *partWriter) close() {
	if w.file != nil {
		_ = w.file.Close() // it was only read
		w.file = nil
	}
}
