package agents

import (
	"github.com/spool-run/spool/internal/engine/agents/talk"
	"os"
	"sync"
	"syscall"
)

// child is a process of an agent with everything it starts.
type child interface {
	talk.Wire
	pid() int
	// lines is closed when the output has ended or is given up.
	lines() <-chan chunk
	// exited gives the wait status, once.
	exited() <-chan talk.Exit
	stderr() string
	// drained is closed when standard error has ended or is given up.
	drained() <-chan struct{}
	// signal goes to the process group of the leader.
	signal(sig syscall.Signal) error
	// kill ends the whole tree.
	kill() error
	// members counts the processes of the tree.
	members() int
	// abandon closes streams that another process still holds open, unless
	// there is unread output in them: then it has to be called again.
	abandon()
	// close ends what is left and releases it.
	close() error
}

// maxUnwritten is what may wait for an agent that does not read. Prompts and
// answers are small beside it.
const maxUnwritten = 32 << 20

// feeder writes to a process without waiting for it. It does not report that a
// process is gone: the exit status does.
type feeder struct {
	file *os.File

	mu      sync.Mutex
	queue   [][]byte
	bytes   int
	closing bool
	wake    chan struct{} // has room for one
	done    chan struct{}
}

func newFeeder(f *os.File) *feeder {
	w := &feeder{file: f, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go w.run()
	return w
}

func (w *feeder) Write(b []byte) {
	w.mu.Lock()
	if !w.closing && w.bytes+len(b) <= maxUnwritten {
		w.queue = append(w.queue, b)
		w.bytes += len(b)
	}
	w.mu.Unlock()
	w.poke()
}

// CloseInput closes standard input after what was written.
func (w *feeder) CloseInput() {
	w.mu.Lock()
	w.closing = true
	w.mu.Unlock()
	w.poke()
}

// stop closes it now, whatever was not written.
func (w *feeder) stop() {
	w.mu.Lock()
	w.closing, w.queue = true, nil
	w.mu.Unlock()
	_ = w.file.Close() // wakes a write that waits
	w.poke()
	<-w.done
}

func (w *feeder) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *feeder) run() {
	defer close(w.done)
	for {
		w.mu.Lock()
		var b []byte
		if len(w.queue) > 0 {
			b, w.queue = w.queue[0], w.queue[1:]
			w.bytes -= len(b)
		}
		end := b == nil && w.closing
		w.mu.Unlock()
		switch {
		case end:
			_ = w.file.Close()
			return
		case b == nil:
			<-w.wake
		default:
			if _, err := w.file.Write(b); err != nil {
				w.mu.Lock() // the process closed its input: accept no more
				w.closing, w.queue, w.bytes = true, nil, 0
				w.mu.Unlock()
			}
		}
	}
}
