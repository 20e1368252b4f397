package kernel

import (
	"maps"
	"slices"
	"time"
)

// guardGroup has the zygote end a control group should this process die: what is in
// it may have left the process group that dies with us.
func (z *zygote) guardGroup(group string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.ready && !z.dropped && z.sock != nil && group != "" {
		_ = z.sock.SetWriteDeadline(time.Now().Add(time.Second))
		_ = sendFiles(z.sock, appendValue(nil, dict{"guard": group}), nil) // else the next host sweeps it
	}
}

// groups are the control groups of the interpreters.
func (e *Engine) groups() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var list []string
	for s := range e.sessions {
		s.mu.Lock()
		list = append(list, s.group)
		s.mu.Unlock()
	}
	return list
}

// guardGroup has every zygote look after a control group.
func (e *Engine) guardGroup(group string) {
	e.mu.Lock()
	list := slices.Collect(maps.Values(e.zygotes))
	e.mu.Unlock()
	for _, z := range list {
		z.guardGroup(group)
	}
}
