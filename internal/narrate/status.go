package narrate

import (
	"fmt"
	"time"

	"github.com/spool-run/spool/internal/visible"
)

// How long an agent may be silent before the status says so: while it thinks, and
// while it starts or one of its actions runs, which may be quiet for good reason.
const (
	QuietThinking = 20 * time.Second
	QuietActing   = 60 * time.Second
)

// Status returns what the agent does now, for one line, when nothing was heard of
// it for some time. It is empty if no turn is under way. Stalled reports that the
// agent was silent for longer than usual.
func (n *Narrator) Status(quiet time.Duration) (text string, stalled bool) {
	now := n.at.Add(quiet)
	began := now
	for _, t := range n.turns {
		if t.Before(began) {
			began = t
		}
	}
	limit := QuietThinking
	switch {
	case len(n.turns) == 0:
		return "", false
	case len(n.asked) > 0:
		return fmt.Sprintf("waiting for an answer %s", seconds(quiet)), false
	case len(n.order) > 0:
		limit = QuietActing
		oldest := n.open[n.order[0]]
		text = fmt.Sprintf("%s %s", oldest.title, seconds(now.Sub(oldest.since)))
		if more := len(n.order) - 1; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
	case !n.ready:
		limit = QuietActing
		text = fmt.Sprintf("starting %s %s", visible.Line(n.Agent), seconds(now.Sub(began)))
	default:
		text = "working " + seconds(now.Sub(began))
	}
	if quiet >= limit {
		return fmt.Sprintf("no output for %s · %s", seconds(quiet), text), true
	}
	if n.tokens > 0 {
		text += fmt.Sprintf(" · %d tokens", n.tokens)
	}
	return text, false
}

// seconds formats a duration for a line that changes every second.
func seconds(d time.Duration) string { return max(d, 0).Truncate(time.Second).String() }
