// Package meter holds output to its limit: it says what of the output is to be
// logged, keeps the end of what is not, and counts what is dropped.
package meter

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/spool-run/spool"
)

// The values of [spool.Limits.OutputPolicy].
const (
	Truncate = "truncate" // keep the head and the tail
	Block    = "block"    // stop reading, so that the writer blocks
	Stop     = "stop"     // stop the run or the turn
)

const (
	// MaxTail bounds what [Truncate] keeps of the end of the
	// output: half of the limit, but no more than this.
	MaxTail = 1 << 20
	// tailEvent is the most bytes of an event of the kept end.
	tailEvent = 64 << 10
)

// Meter measures the output of a run or a turn. It is not safe for concurrent
// use.
type Meter struct {
	limit  int64
	policy string

	total    int64 // bytes of output
	logged   int64 // of these, bytes to be logged
	exceeded bool  // the limit, and the caller knows it
	tail     tail
}

// Reset begins a new measurement with the limits.
func (m *Meter) Reset(l *spool.Limits) {
	*m = Meter{limit: l.OutputBytes, policy: l.OutputPolicy}
	if m.policy == Truncate {
		m.tail.max = int(min(m.limit/2, MaxTail))
	}
}

// Room is how much output may be read before its writers have to wait, under
// [Block].
func (m *Meter) Room() int64 {
	if m.policy != Block || m.exceeded {
		return math.MaxInt64
	}
	return m.limit - m.logged
}

// Exceed records that the caller stops reading at the limit, as it does under
// [Block]. What is read nevertheless is dropped.
func (m *Meter) Exceed() { m.exceeded = true }

// Add counts output. The first n bytes of b are to be logged; the meter keeps
// or drops the others. It reports whether this call exceeds the limit; under
// [Block] it is up to the caller to say so.
func (m *Meter) Add(stream spool.Stream, b []byte) (n int, exceeds bool) {
	m.total += int64(len(b))
	n = int(min(int64(len(b)), max(0, m.limit-int64(m.tail.max)-m.logged)))
	m.logged += int64(n)
	if rest := b[n:]; len(rest) > 0 {
		if m.policy == Truncate {
			m.tail.write(stream, rest)
		} else {
			m.tail.drop(stream, len(rest))
		}
	}
	if m.total <= m.limit || m.exceeded || m.policy == Block {
		return n, false
	}
	m.exceeded = true
	return n, true
}

// Flush logs the truncated event, if anything was dropped, and the end of the
// output that was kept. The meter then has to be reset.
func (m *Meter) Flush(log func(spool.Event)) {
	if len(m.tail.dropped) > 0 {
		log(Truncated(m.limit, m.tail.dropped))
	}
	for {
		stream, b := m.tail.next(tailEvent)
		if b == nil {
			break
		}
		log(spool.Event{Kind: spool.KindOutput, Stream: stream, Bytes: b})
	}
	m.tail = tail{max: m.tail.max}
}

// Truncated returns the event that says how many bytes were dropped.
func Truncated(limit int64, dropped map[spool.Stream]int64) spool.Event {
	b, err := json.Marshal(spool.Truncation{DroppedBytes: dropped, LimitBytes: limit})
	if err != nil { // plain structs always encode
		b = nil
	}
	return spool.Event{Kind: spool.KindTruncated, Data: b}
}

// Text says for a notice that the limit was reached and what happens now to the
// rest of the output of the unit, a run or a cell.
func (m *Meter) Text(unit string) string {
	switch m.policy {
	case Stop:
		return fmt.Sprintf("the output is longer than %d bytes; the %s is stopped", m.limit, unit)
	case Block:
		return fmt.Sprintf("the output has reached %d bytes; no more output of this %s is read", m.limit, unit)
	}
	return fmt.Sprintf("the output is longer than %d bytes; only the last %d bytes of the rest are kept", m.limit, m.tail.max)
}
