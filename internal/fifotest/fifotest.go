// Package fifotest synchronizes a test and a command with a named pipe, so that
// neither has to sleep. The command runs `echo >path` to wake the test, and
// `read _ <path` to wait for it.
package fifotest

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// FIFO is a named pipe. The test keeps both ends open, so that the command
// never blocks in open or reads the end of the stream.
type FIFO struct {
	Path string
	f    *os.File
}

// New makes a pipe in a directory. The end of the test closes it.
func New(tb testing.TB, dir, name string) *FIFO {
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
	return &FIFO{Path: path, f: f}
}

// Line waits for a line from the command and returns it.
func (f *FIFO) Line(ctx context.Context) (string, error) {
	if err := f.f.SetReadDeadline(time.Time{}); err != nil {
		return "", err
	}
	stop := context.AfterFunc(ctx, func() { _ = f.f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var line []byte
	b := make([]byte, 1)
	for {
		if _, err := f.f.Read(b); err != nil {
			if ctx.Err() != nil {
				return "", ctx.Err()
			}
			return "", err
		}
		if b[0] == '\n' {
			return string(line), nil
		}
		line = append(line, b[0])
	}
}

// Wait waits for a line from the command.
func (f *FIFO) Wait(ctx context.Context) error {
	_, err := f.Line(ctx)
	return err
}

// Release writes a line, which wakes the command.
func (f *FIFO) Release() error {
	_, err := f.f.Write([]byte("\n"))
	return err
}
