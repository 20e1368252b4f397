package codextest

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// fifo is a named pipe at which a test and a command meet. A command says
// `echo >path` where the test waits, and `read _ <path` where it is to wait.
// Both ends stay open here, so that the command never blocks in open or sees
// the end of the stream.
type fifo struct {
	path string
	f    *os.File
}

func newFIFO(tb testing.TB, dir, name string) *fifo {
	tb.Helper()
	path := filepath.Join(dir, name)
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		tb.Fatalf("make fifo: %v", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		tb.Fatalf("open fifo: %v", err)
	}
	tb.Cleanup(func() { f.Close() })
	return &fifo{path: path, f: f}
}

// wait returns when the command has written its line.
func (f *fifo) wait(ctx context.Context) error {
	if err := f.f.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { f.f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	b := make([]byte, 1)
	for {
		if _, err := f.f.Read(b); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return err
		}
		if b[0] == '\n' {
			return nil
		}
	}
}

// release lets the command go on.
func (f *fifo) release() error {
	_, err := f.f.Write([]byte("\n"))
	return err
}
