package eventlog

import "time"

// Waking a thousand followers for each event would keep all CPUs busy and leave
// none to the writer. A crowd of followers is therefore split into groups that
// are woken one after the other, with pauses that grow with the number of
// waiting readers.
const (
	crowdSize   = 64 // followers that make a crowd
	crowdGroups = 32
	crowdEach   = 10 * time.Microsecond // pause per waiting reader and round
)

// crowd is the state of a waker while a log has many followers. The waker's mu
// guards it.
type crowd struct {
	groups [crowdGroups]chan struct{} // closed to wake a group; nil while none of it waits
	joined int
	over   chan struct{} // closed when the crowd ends
}

// join adds a reader to a group and returns the channel that wakes it.
func (c *crowd) join() chan struct{} {
	g := c.joined % crowdGroups
	c.joined++
	if c.groups[g] == nil {
		c.groups[g] = make(chan struct{})
	}
	return c.groups[g]
}

// startCrowd tells the waker that the log has many followers.
func (w *waker) startCrowd() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.crowd = &crowd{over: make(chan struct{})}
	if w.wake != nil { // readers that wait must join the crowd
		close(w.wake)
		w.wake = nil
	}
	go w.wakeGroups(w.crowd)
}

// endCrowd tells the waker that the log has few followers again.
func (w *waker) endCrowd() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.crowd.over)
	for _, g := range w.crowd.groups {
		if g != nil {
			close(g)
		}
	}
	w.crowd = nil
}

// wakeGroups wakes the groups of a crowd, one round per signal, until the crowd
// ends.
func (w *waker) wakeGroups(c *crowd) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-w.signal:
		case <-c.over:
			return
		}
		for g := range c.groups {
			w.mu.Lock()
			if w.crowd != c { // endCrowd woke all groups
				w.mu.Unlock()
				return
			}
			wake := c.groups[g]
			c.groups[g] = nil
			w.mu.Unlock()
			if wake == nil {
				continue
			}
			pause := time.Duration(w.waiting.Load()) * crowdEach / crowdGroups
			if _, sealed := w.log.Last(); sealed {
				pause = 0
			}
			close(wake)
			timer.Reset(pause)
			select {
			case <-timer.C:
			case <-c.over:
				return
			}
		}
	}
}
