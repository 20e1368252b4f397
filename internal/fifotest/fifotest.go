// Package fifotest lets a test and a command meet at a named pipe, so that
// neither has to sleep. A command says `echo >path` where the test waits, and
// `read _ <path` where it is to wait.
package fifotest

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// FIFO is a named pipe. Both ends stay open here, so that the command never
// blocks in open or sees the end of the stream.
type FIFO struct {
	Path string
	f    *os.File
}

// New makes a pipe in a directory. It is closed with the test.
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

// Line returns the line that a command writes, when it has.
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

// Wait returns when the command has written a line.
func (f *FIFO) Wait(ctx context.Context) error {
	_, err := f.Line(ctx)
	return err
}

// Release lets the command go on.
func (f *FIFO) Release() error {
	_, err := f.f.Write([]byte("\n"))
	return err
}
