package tail

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
)

// Lines keeps the first and the last lines that it reads. It is safe for
// concurrent use.
type Lines struct {
	First, Last int // how many lines are kept of the beginning and of the end
	MaxLine     int // bytes that are kept of one line

	mu      sync.Mutex
	head    []string
	ring    []string // a ring once it is full
	next    int
	dropped int
}

// Read reads lines until the stream ends. Empty lines are left out.
func (t *Lines) Read(r io.Reader) {
	in := bufio.NewReaderSize(r, 32<<10)
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		if room := t.MaxLine - len(line); room > 0 {
			line = append(line, part[:min(len(part), room)]...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if s := strings.TrimRight(string(line), "\r\n"); s != "" {
			t.add(s)
		}
		line = line[:0]
		if err != nil {
			return
		}
	}
}

func (t *Lines) add(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case len(t.head) < t.First:
		t.head = append(t.head, line)
	case len(t.ring) < t.Last:
		t.ring = append(t.ring, line)
	default:
		t.ring[t.next] = line
		t.next = (t.next + 1) % t.Last
		t.dropped++
	}
}

// String returns the kept lines in valid UTF-8, with the number of lines left
// out between them.
func (t *Lines) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := append([]string(nil), t.head...)
	if t.dropped > 0 {
		lines = append(lines, fmt.Sprintf("… %d lines left out …", t.dropped))
	}
	lines = append(lines, t.ring[t.next:]...)
	lines = append(lines, t.ring[:t.next]...)
	return strings.ToValidUTF8(strings.Join(lines, "\n"), "\uFFFD")
}
