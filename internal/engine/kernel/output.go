package kernel

import (
	"bytes"
	"fmt"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/tail"
)

// meter holds the output of a turn to its limit. Each turn begins anew, and so
// does what comes between turns.
type meter struct {
	limits  spool.Limits
	logged  int64
	total   int64
	limited bool
	open    bool // writers need not wait: what is too much is dropped
	tail    tail.Tail
}

// reset begins a turn.
func (m *meter) reset() {
	m.logged, m.total, m.limited, m.open = 0, 0, false, false
	m.tail.Max = int(min(m.limits.OutputBytes/2, MaxTail))
	m.tail.Reset()
}

// room is how much may be read before the writers have to wait.
func (m *meter) room() int64 {
	if m.limits.OutputPolicy != "block" || m.open {
		return 1 << 62
	}
	return m.limits.OutputBytes - m.logged
}

// take splits output into what is logged and what is held back. It reports
// whether the limit was passed just now.
func (m *meter) take(stream spool.Stream, b []byte) (logged []byte, passed bool) {
	m.total += int64(len(b))
	head := m.limits.OutputBytes
	if m.limits.OutputPolicy == "truncate" {
		head -= int64(m.tail.Max)
	}
	keep := int(min(int64(len(b)), max(0, head-m.logged)))
	m.logged += int64(keep)
	if rest := b[keep:]; len(rest) > 0 {
		if m.limits.OutputPolicy == "truncate" {
			m.tail.Write(stream, rest)
		} else {
			m.tail.Drop(stream, len(rest))
		}
	}
	passed = m.total > m.limits.OutputBytes && !m.limited
	m.limited = m.limited || passed
	return bytes.Clone(b[:keep]), passed
}

// limitText says what happens beyond the limit.
func (m *meter) limitText() string {
	n := m.limits.OutputBytes
	switch m.limits.OutputPolicy {
	case "stop":
		return fmt.Sprintf("the output is longer than %d bytes; the cell is ended", n)
	case "block":
		return fmt.Sprintf("the output has reached %d bytes; it is not read any further in this turn", n)
	}
	return fmt.Sprintf("the output is longer than %d bytes; of the rest only the last %d are kept", n, m.tail.Max)
}
