package process

import (
	"fmt"
	"time"
)

// tend does what was asked for and what has become due.
func (p *pump) tend() {
	p.req = p.s.take()
	p.notices()
	now := time.Now()
	l := &p.s.limits
	switch {
	case !p.req.killAt.IsZero(): // ending already
		if p.req.forceAt.IsZero() && !now.Before(p.req.killAt) {
			_ = p.s.kill() // leaves a notice if it failed
			p.req = p.s.take()
			p.notices()
		}
	case l.Wall > 0 && now.Sub(p.started) >= l.Wall:
		p.notice(NoticeTimeout, fmt.Sprintf("the run is ended after %v", l.Wall))
		_ = p.s.stop(l.Grace) // killed in the end, whatever the signal did
		return
	case l.Idle > 0 && now.Sub(p.output) >= l.Idle:
		p.notice(NoticeIdleTimeout, fmt.Sprintf("the run is ended after %v without output", l.Idle))
		_ = p.s.stop(l.Grace)
		return
	default:
		return
	}
	if p.exited && !p.gone && !now.Before(p.check) {
		p.count(now)
	}
	if force := p.req.forceAt; !force.IsZero() && !now.Before(force) && !p.forced {
		p.forced = true
		if p.exited && !p.gone {
			p.gone = true
			p.notice(NoticeKillFailed, "some processes did not end when they were killed")
		}
		if p.open > 0 {
			p.notice(NoticeStreamsHeld, "somebody who could not be ended held the streams; they were closed")
			for i := range p.streams {
				p.drain(i)
				p.end(i)
			}
			p.flush()
		}
	}
}

// count looks at what is left of a tree that should end. Those in the process
// group were asked to and get their time; the others were not and get none.
func (p *pump) count(now time.Time) {
	m, err := p.s.tree.Count()
	switch killed := !p.req.forceAt.IsZero(); {
	case err != nil || m.None():
		p.gone = true
		if p.open > 0 && !killed {
			_ = p.s.kill() // only to have the streams given up in time
		}
	case m.Group == 0 && !killed:
		_ = p.s.kill() // leaves a notice if it failed
	}
	p.pause = min(max(2*p.pause, firstCheck), lastCheck)
	p.check = now.Add(p.pause)
}

// deadline is when tend has something to do, or zero.
func (p *pump) deadline() time.Time {
	var next time.Time
	sooner := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	l := &p.s.limits
	if p.req.killAt.IsZero() {
		if l.Wall > 0 {
			sooner(p.started.Add(l.Wall))
		}
		if l.Idle > 0 {
			sooner(p.output.Add(l.Idle))
		}
		return next
	}
	if p.req.forceAt.IsZero() {
		sooner(p.req.killAt)
	} else if !p.forced {
		sooner(p.req.forceAt)
	}
	if p.exited && !p.gone {
		sooner(p.check)
	}
	return next
}
