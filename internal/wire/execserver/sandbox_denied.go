package execserver

import (
	"bytes"
	"context"

	"github.com/spool-run/spool"
)

// deniedTexts are what processes say, in small letters, when a sandbox stops
// them. Those of codex come first; the others are of a network that is not there.
var deniedTexts = [][]byte{
	[]byte("operation not permitted"), []byte("permission denied"), []byte("read-only file system"),
	[]byte("seccomp"), []byte("sandbox"), []byte("landlock"), []byte("failed to write file"),
	[]byte("network is unreachable"), []byte("could not resolve host"), []byte("temporary failure in name resolution"),
}

const (
	// deniedBytes is how much of the output of a process is searched.
	deniedBytes = 1 << 20
	// exitSIGSYS is the code of a process that a system call filter killed.
	exitSIGSYS = 128 + 31
)

// isIsolated reports whether a run is in a sandbox.
func isIsolated(info spool.Info) bool {
	return info.Isolation != nil && info.Isolation.Profile != "" && info.Isolation.Profile != "none"
}

// denied reports whether the sandbox seems to be why a process failed. Like codex
// it searches the output.
func (c *conn) denied(ctx context.Context, p *process, o spool.Outcome) bool {
	if o.Kind != spool.Exited || o.Code == 0 {
		return false
	}
	if o.Code == exitSIGSYS {
		return true
	}
	p.mu.Lock()
	known := p.denial
	p.mu.Unlock()
	if known != nil {
		return *known
	}
	found, err := c.searchOutput(ctx, p.run)
	if err != nil {
		return false // the next answer searches again
	}
	p.mu.Lock()
	p.denial = &found
	p.mu.Unlock()
	return found
}

// searchOutput searches the output of a run for [deniedTexts].
func (c *conn) searchOutput(ctx context.Context, run spool.RunID) (bool, error) {
	const overlap = 64 // longer than every text
	var text []byte
	q := spool.Query{MaxBytes: 64 << 10}
	for size := 0; size < deniedBytes; {
		page, err := c.backend.Read(ctx, run, q)
		if err != nil {
			return false, err
		}
		for i := range page.Events {
			e := &page.Events[i]
			if e.Kind != spool.KindOutput {
				continue
			}
			size += len(e.Bytes)
			text = append(text, bytes.ToLower(e.Bytes)...)
			for _, want := range deniedTexts {
				if bytes.Contains(text, want) {
					return true, nil
				}
			}
			text = append(text[:0], text[max(0, len(text)-overlap):]...)
		}
		if len(page.Events) == 0 || page.Next >= page.Info.Last {
			return false, nil
		}
		q.After = page.Next
	}
	return false, nil
}
