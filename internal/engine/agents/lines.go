package agents

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// chunk is one line of standard output without its end, or so many bytes of
// one that was too long.
type chunk struct {
	line    []byte
	skipped int64
}

// readLines sends every line until the stream ends. Lines end with LF only:
// other line ends are legal within JSON. What follows the last LF counts as a
// line, too.
func readLines(r io.Reader, most int, out chan<- chunk) {
	defer close(out)
	in := bufio.NewReaderSize(r, 64<<10)
	var long []byte   // a line that does not fit the reader
	var skipped int64 // of a line that does not fit at all
	for {
		part, err := in.ReadSlice('\n')
		whole := err == nil
		switch {
		case skipped > 0:
			skipped += int64(len(part))
		case len(long)+len(part) > most:
			skipped = int64(len(long) + len(part))
			long = long[:min(len(long), MaxStderrLine)]
		case whole && len(long) == 0:
			send(out, bytes.Clone(part))
			continue
		default:
			long = append(long, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if skipped > 0 {
			out <- chunk{line: long, skipped: skipped}
		} else if len(long) > 0 {
			send(out, long)
		}
		long, skipped = nil, 0
		if !whole {
			return // the stream has ended, or it was closed
		}
	}
}

// send drops blank lines.
func send(out chan<- chunk, line []byte) {
	if line = bytes.TrimRight(line, "\r\n"); len(bytes.TrimSpace(line)) > 0 {
		out <- chunk{line: line}
	}
}
