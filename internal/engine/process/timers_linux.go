package process

import (
	"fmt"
	"time"
)

// handleTimers takes the requests of other goroutines and acts on expired limits.
func (p *pump) handleTimers() {
	p.requests = p.s.takeRequests()
	p.appendNotices()
	p.appendAsks()
	now := time.Now()
	l := &p.s.limits
	switch {
	case !p.requests.killAt.IsZero(): // the run is stopping
		if p.requests.forceAt.IsZero() && !now.Before(p.requests.killAt) {
			_ = p.s.kill() // adds a notice if it fails
			p.requests = p.s.takeRequests()
			p.appendNotices()
		}
	case l.Wall > 0 && now.Sub(p.started) >= l.Wall:
		p.timeOut(NoticeTimeout, fmt.Sprintf("timed out after %v", l.Wall))
		return
	case l.Idle > 0 && now.Sub(p.lastOutput) >= l.Idle:
		p.timeOut(NoticeIdleTimeout, fmt.Sprintf("timed out after %v without output", l.Idle))
		return
	default:
		return
	}
	if p.exited && !p.treeEmpty && !now.Before(p.nextCount) {
		p.countTree(now)
	}
	if force := p.requests.forceAt; !force.IsZero() && !now.Before(force) && !p.forcedClose {
		p.forcedClose = true
		if p.exited && !p.treeEmpty {
			p.treeEmpty = true
			p.notice(NoticeKillFailed, "some processes did not end after SIGKILL")
		}
		if p.open > 0 {
			p.notice(NoticeStreamsHeld, "a process that could not be killed kept the output streams open; they were closed")
			for i := range p.streams {
				p.drain(i)
				p.closeStream(i)
			}
			p.flush()
		}
	}
}

// timeOut stops the run because of a time limit.
func (p *pump) timeOut(code, reason string) {
	p.limit = reason
	p.notice(code, reason)
	_ = p.s.stop(p.s.limits.Grace) // an error does not matter: a kill follows
}

// countTree counts the processes of a tree that is being stopped. Those in the
// process group got SIGTERM and have until the end of the grace; those outside got
// no signal and are killed once the group is empty.
func (p *pump) countTree(now time.Time) {
	m, err := p.s.tree.Count()
	switch killed := !p.requests.forceAt.IsZero(); {
	case err != nil || m.None():
		p.treeEmpty = true
		if p.open > 0 && !killed {
			_ = p.s.kill() // so that the streams are closed in time
		}
	case m.Group == 0 && !killed:
		_ = p.s.kill() // adds a notice if it fails
	}
	p.countInterval = min(max(2*p.countInterval, firstCount), maxCountInterval)
	p.nextCount = now.Add(p.countInterval)
}

// nextTimer is when tend has something to do, or zero.
func (p *pump) nextTimer() time.Time {
	var next time.Time
	sooner := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	l := &p.s.limits
	if p.requests.killAt.IsZero() {
		if l.Wall > 0 {
			sooner(p.started.Add(l.Wall))
		}
		if l.Idle > 0 {
			sooner(p.lastOutput.Add(l.Idle))
		}
		return next
	}
	if p.requests.forceAt.IsZero() {
		sooner(p.requests.killAt)
	} else if !p.forcedClose {
		sooner(p.requests.forceAt)
	}
	if p.exited && !p.treeEmpty {
		sooner(p.nextCount)
	}
	return next
}
