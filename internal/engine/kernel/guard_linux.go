package kernel

import (
	"maps"
	"slices"
	"time"
)

// guardGroup has the zygote kill a control group if this process dies: processes in
// it may have left the process group that the system kills then.
func (z *zygote) guardGroup(group string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.ready && !z.dropped && z.sock != nil && group != "" {
		_ = z.sock.SetWriteDeadline(time.Now().Add(time.Second))
		_ = sendFiles(z.sock, appendValue(nil, dict{"guard": group}), nil) // if it fails, the next host sweeps the group
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

// guardGroup has every zygote guard a control group.
func (e *Engine) guardGroup(group string) {
	e.mu.Lock()
	list := slices.Collect(maps.Values(e.zygotes))
	e.mu.Unlock()
	for _, z := range list {
		z.guardGroup(group)
	}
}
