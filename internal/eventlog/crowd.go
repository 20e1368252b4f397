package eventlog

import "time"

// A crowd of followers is not woken for every event, nor all at once: that
// would be all the machine does, the writer's work included. It is split into
// groups that are woken one after the other, with pauses that grow with the
// number of those who wait.
const (
	crowdSize   = 64 // followers that are a crowd
	crowdGroups = 32
	crowdEach   = 10 * time.Microsecond // between rounds, for each who waits
)

// crowd is what a log has only while many follow it. Its fields are guarded by
// the log's mu.
type crowd struct {
	groups  [crowdGroups]chan struct{} // closed to wake a group; nil while nobody in it waits
	arrived int
	pages   pages
	over    chan struct{} // closed when they are few again
}

// shares returns the pages of the tier that the crowd shares, or nil.
func (c *crowd) shares() *pages {
	if c == nil {
		return nil
	}
	return &c.pages
}

// join returns what somebody who waits listens to.
func (c *crowd) join() chan struct{} {
	g := c.arrived % crowdGroups
	c.arrived++
	if c.groups[g] == nil {
		c.groups[g] = make(chan struct{})
	}
	return c.groups[g]
}

// mayBorrow is how much memory the log may have beyond its own. The last of a
// crowd comes late, and going to the disk a thousand times for the same event
// would make it later. Callers hold l.mu.
func (l *Log) mayBorrow() int {
	if l.crowd != nil {
		return maxLentCrowd
	}
	return maxLent
}

// enter counts a follower.
func (l *Log) enter() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.follows++
	if l.follows < crowdSize || l.crowd != nil {
		return
	}
	l.crowd = &crowd{over: make(chan struct{})}
	// Those who wait already must join it: nobody leads any more.
	if l.wake != nil {
		close(l.wake)
		l.wake = nil
	}
	go l.tour(l.crowd)
}

// leave does the opposite of enter.
func (l *Log) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.follows--
	if l.follows >= crowdSize || l.crowd == nil {
		return
	}
	close(l.crowd.over)
	for _, g := range l.crowd.groups {
		if g != nil {
			close(g)
		}
	}
	l.crowd = nil
}

// tour wakes the groups of a crowd, round by round, while it is one.
func (l *Log) tour(c *crowd) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-l.kick:
		case <-c.over:
			return
		}
		for g := range c.groups {
			l.mu.Lock()
			wake := c.groups[g]
			pause := time.Duration(l.waiting) * crowdEach / crowdGroups
			if l.crowd != c { // the groups were woken for good
				l.mu.Unlock()
				return
			}
			c.groups[g] = nil
			if l.sealed {
				pause = 0
			}
			l.mu.Unlock()
			if wake == nil {
				continue
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
