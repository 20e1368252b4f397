package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
)

// pastDeadline is a deadline that ends a blocked write.
var pastDeadline = time.Unix(1, 0)

// input is the engine's end of the standard input of a process. For a terminal it
// is a second descriptor of the terminal.
type input struct {
	tty bool

	mu   sync.Mutex
	fd   int      // -1 if closed, or without standard input
	file *os.File // owns fd from the first write on
}

// checkOpen returns [spool.ErrInputClosed] if the input is closed.
func (in *input) checkOpen() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.fd < 0 {
		return spool.ErrInputClosed
	}
	return nil
}

// open returns the file to write to.
func (in *input) open() (*os.File, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.fd < 0 {
		return nil, spool.ErrInputClosed
	}
	if in.file == nil { // most processes are never written to
		in.file = os.NewFile(uintptr(in.fd), "stdin")
	}
	return in.file, nil
}

// write writes all of b, or waits until it can, the input is closed, or ctx
// ends.
func (in *input) write(ctx context.Context, b []byte) error {
	f, err := in.open()
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if len(b) == 0 {
		return nil
	}
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = f.SetWriteDeadline(pastDeadline)
		close(woken)
	})
	_, err = f.Write(b)
	if !stop() { // the deadline must not outlive this call
		<-woken
		_ = f.SetWriteDeadline(time.Time{})
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, os.ErrClosed), errors.Is(err, unix.EPIPE), errors.Is(err, unix.EIO):
		return spool.ErrInputClosed
	}
	return fmt.Errorf("write stdin: %w", err)
}

// sendEOF ends the input.
func (in *input) sendEOF(ctx context.Context) error {
	if !in.tty {
		if !in.close() {
			return spool.ErrInputClosed
		}
		return nil
	}
	eof := byte(4) // ^D
	err := in.ioctl(func(fd int) error {
		if t, err := unix.IoctlGetTermios(fd, unix.TCGETS); err == nil && t.Cc[unix.VEOF] != 0 {
			eof = t.Cc[unix.VEOF]
		}
		return nil
	})
	if err != nil {
		return spool.ErrInputClosed
	}
	return in.write(ctx, []byte{eof})
}

// ioctl calls f with the descriptor, or returns [spool.ErrEnded].
func (in *input) ioctl(f func(fd int) error) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.fd < 0 {
		return spool.ErrEnded
	}
	return f(in.fd)
}

// close closes the input and wakes a write that waits. It reports whether the
// input was open.
func (in *input) close() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch {
	case in.fd < 0:
		return false
	case in.file != nil:
		_ = in.file.Close()
	default:
		_ = unix.Close(in.fd)
	}
	in.fd, in.file = -1, nil
	return true
}
