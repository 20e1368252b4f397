// Package tail keeps the end of what a process writes to its standard error,
// or both ends, for the error that tells of its failure.
package tail

import (
	"bytes"
	"sync"
)

// Buffer keeps the last Max bytes that are written to it. It is safe for
// concurrent use.
type Buffer struct {
	Max int

	mu sync.Mutex
	b  []byte
}

// Write implements [io.Writer].
func (t *Buffer) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if over := len(t.b) - t.Max; over > 0 {
		t.b = append(t.b[:0], t.b[over:]...)
	}
	return len(p), nil
}

// String returns the kept bytes without white space around them.
func (t *Buffer) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.b))
}
