package reactor

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// maxBlocking is how many reactors of a poller wait in a system call at once. Until the
// runtime notices it, such a call also holds one of the processors that goroutines run
// on: half of them are left for what is to be done with the output.
var maxBlocking = int32(max(1, runtime.GOMAXPROCS(0)/2))

// Poller is what the reactors of an engine share. It has one descriptor, an epoll
// instance in the runtime's poller, and one goroutine, which wakes those that are parked.
type Poller struct {
	blocking atomic.Int32 // reactors that wait in a system call

	fd   int
	file *os.File // owns fd
	wg   sync.WaitGroup

	mu       sync.Mutex
	reactors map[int32]*Reactor // that have been parked, by number
	last     int32              // the number that was given last
}

// NewPoller returns a poller, which must be closed after its reactors.
func NewPoller() (*Poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create epoll descriptor: %w", err)
	}
	_ = unix.SetNonblock(fd, true) // cannot fail on a descriptor we own
	p := &Poller{fd: fd, file: os.NewFile(uintptr(fd), "poller"), reactors: make(map[int32]*Reactor)}
	p.wg.Go(p.run)
	return p, nil
}

// Close ends the poller.
func (p *Poller) Close() {
	_ = p.file.Close() // it was only read
	p.wg.Wait()
}

// run wakes reactors until the poller is closed.
func (p *Poller) run() {
	conn, err := p.file.SyscallConn()
	if err != nil {
		return // closed already
	}
	var events [64]unix.EpollEvent
	for {
		var n int
		err := conn.Read(func(uintptr) bool {
			n, _ = unix.EpollWait(p.fd, events[:], 0) // it fails only if interrupted
			return n > 0
		})
		if err != nil {
			return
		}
		for _, e := range events[:n] {
			p.mu.Lock()
			r := p.reactors[e.Pad]
			p.mu.Unlock()
			if r != nil {
				r.fire(e.Fd)
			}
		}
	}
}

// add gives a reactor a number.
func (p *Poller) add(r *Reactor) int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.last++; p.last <= 0 || p.reactors[p.last] != nil; p.last++ {
	}
	p.reactors[p.last] = r
	return p.last
}

func (p *Poller) remove(number int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.reactors, number)
}

// take reports whether a reactor may wait in a system call.
func (p *Poller) take() bool {
	if p.blocking.Add(1) <= maxBlocking {
		return true
	}
	p.blocking.Add(-1)
	return false
}

func (p *Poller) give() { p.blocking.Add(-1) }
