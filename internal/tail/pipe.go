package tail

import (
	"io"
	"os"
)

// Pipe keeps the end of what is written to a pipe, such as the standard error of a
// process.
type Pipe struct {
	Buffer
	ended chan struct{}
}

// NewPipe returns a pipe of which the last bytes are kept, and its end to write to,
// which the caller closes.
func NewPipe(most int) (*Pipe, *os.File, error) {
	out, in, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	p := &Pipe{Buffer: Buffer{Max: most}, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		defer out.Close()
		_, _ = io.Copy(&p.Buffer, out) // it is read for what it says until it ends
	}()
	return p, in, nil
}

// Wait waits until no process has the end to write to.
func (p *Pipe) Wait() { <-p.ended }
