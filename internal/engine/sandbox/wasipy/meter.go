package wasipy

import (
	"runtime"
	"time"
)

// meter counts the processor time of the goroutine that executes a script in a worker,
// which executes several at a time. The goroutine has a thread of its own meanwhile. A
// script that waits has one anyway: see [hottest]. A nil meter counts nothing.
type meter struct {
	began time.Duration // of the thread's clock
	used  time.Duration
}

func startMeter() *meter {
	m := new(meter)
	m.begin()
	return m
}

func (m *meter) begin() {
	runtime.LockOSThread()
	m.began = threadTime()
}

// stop returns what was used.
func (m *meter) stop() time.Duration {
	m.used += threadTime() - m.began
	runtime.UnlockOSThread()
	return m.used
}

// yield lets other goroutines have their turn, which on a thread of its own would take
// two switches of threads.
func (m *meter) yield() {
	if m != nil {
		m.stop()
		defer m.begin()
	}
	runtime.Gosched()
}
