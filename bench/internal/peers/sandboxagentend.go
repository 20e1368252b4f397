package peers

import (
	"context"
	"time"
)

// sandboxAgentEnd is how a command ended; valid when over is closed.
type sandboxAgentEnd struct {
	over chan struct{}
	exit Exit
	err  error
}

// end returns the end of the command. All readers share the questions for it.
func (j *sandboxAgentJob) end() *sandboxAgentEnd {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.last != nil {
		select {
		case <-j.last.over:
		default:
			return j.last
		}
		if j.last.err == nil {
			return j.last
		}
	}
	e := &sandboxAgentEnd{over: make(chan struct{})}
	j.last = e
	go func() {
		defer close(e.over)
		for {
			var now struct {
				Status   string
				ExitCode *int
			}
			if e.err = j.s.Call(context.Background(), "GET", "processes/"+j.ID, nil, &now); e.err != nil {
				return // at the latest when the server ends
			}
			if now.Status != "running" {
				if now.ExitCode != nil {
					e.exit = Exit{true, *now.ExitCode}
				}
				return
			}
			time.Sleep(2 * time.Millisecond)
		}
	}()
	return e
}
