package cli

import (
	"errors"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// typing is what an open prompt needs of the terminal.
type typing int

const (
	typeLine   typing = iota // a line, which the user can edit
	typeSecret               // a line that is not shown
	typeKey                  // one key
)

// console is the terminal on which a user answers. While a prompt is open, the
// console owns the mode of the terminal and reads what is typed.
type console struct {
	terminal *os.File

	mu     sync.Mutex
	open   bool
	mode   typing
	prompt string
	undo   func() // restores the mode of the terminal; nil if nothing changed
	reader *typedReader
}

// begin shows a prompt and returns what the user types: lines, or in mode typeKey
// what each key sends. The channel is closed if the terminal is gone.
func (c *console) begin(mode typing, prompt string) (<-chan string, error) {
	reader, err := newTypedReader(c.terminal)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	discardTyped(c.terminal) // keys typed before the prompt are not its answer
	c.open, c.mode, c.prompt, c.reader = true, mode, prompt, reader
	c.take()
	go reader.read()
	return reader.typed, nil
}

// end writes text after the prompt and gives the terminal back.
func (c *console) end(text string) {
	c.mu.Lock()
	c.open = false
	c.give()
	reader := c.reader
	c.mu.Unlock()
	reader.close()
	c.show(text)
}

// take sets the mode of the terminal and shows the prompt.
func (c *console) take() {
	if c.undo == nil {
		c.undo = setTyping(c.terminal, c.mode)
	}
	c.show(c.prompt)
}

func (c *console) give() {
	if c.undo != nil {
		c.undo()
		c.undo = nil
	}
}

// suspend gives the terminal back before the process stops.
func (c *console) suspend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open {
		c.give()
		c.show("\n")
	}
}

// resume takes the terminal again and repeats an open prompt.
func (c *console) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open {
		c.give() // a shell may have changed the mode
		c.take()
	}
}

// show writes to the terminal. It drops errors: reading from a terminal that is
// gone fails too.
func (c *console) show(text string) { _, _ = io.WriteString(c.terminal, text) }

// typedReader reads from a terminal until close.
type typedReader struct {
	terminal   *os.File
	typed      chan string
	stop, wake *os.File // a pipe: closing wake ends read
	ended      chan struct{}
}

func newTypedReader(terminal *os.File) (*typedReader, error) {
	stop, wake, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	return &typedReader{terminal: terminal, typed: make(chan string), stop: stop, wake: wake, ended: make(chan struct{})}, nil
}

// close ends read and waits for its end.
func (r *typedReader) close() {
	_ = r.wake.Close() // nothing was written
	for {
		select {
		case <-r.typed: // of a prompt that is over
		case <-r.ended:
			_ = r.stop.Close()
			return
		}
	}
}

// read sends what is typed until close.
func (r *typedReader) read() {
	defer close(r.ended)
	defer close(r.typed)
	fds := []unix.PollFd{{Fd: int32(r.terminal.Fd()), Events: unix.POLLIN}, {Fd: int32(r.stop.Fd()), Events: unix.POLLIN}}
	buf := make([]byte, 4096)
	for {
		if _, err := unix.Poll(fds, -1); errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil || fds[1].Revents != 0 {
			return
		}
		n, err := unix.Read(int(r.terminal.Fd()), buf)
		switch {
		case errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN):
		case err != nil || n == 0:
			return
		default:
			r.typed <- string(buf[:n])
		}
	}
}
