package torture

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"

	"github.com/spool-run/spool"
)

// event is one event of a run in either dialect. An event that is neither
// output nor an end is an empty output.
type event struct {
	seq    uint64
	kind   spool.Kind // output, exited or closed
	stream spool.Stream
	bytes  []byte
	code   int // of exited
}

// fromLog converts an event of a log.
func fromLog(e *spool.Event, tty bool) event {
	v := event{seq: uint64(e.Seq), kind: e.Kind}
	switch e.Kind {
	case spool.KindExited:
		if o, ok := e.Outcome(); ok {
			v.code = o.Code
		}
	case spool.KindClosed:
	case spool.KindOutput:
		v.stream, v.bytes = e.Stream, e.Bytes
	default:
		v.kind, v.stream = spool.KindOutput, spool.Stdout
		if tty {
			v.stream = spool.PTY
		}
	}
	return v
}

// history holds the events that a client received of one run, in order.
type history struct {
	check  *checker
	last   uint64
	exited bool
	closed bool
	code   int
	bytes  int64
	notes  int // empty outputs, with which a server reports a problem
	digest hash.Hash
}

func newHistory(p *Plan) *history {
	return &history{check: newChecker(p), digest: sha256.New()}
}

// add adds the next event.
func (h *history) add(e event) {
	switch {
	case e.seq <= h.last:
		h.check.violate(Repeated, "event %d came after event %d", e.seq, h.last)
		return
	case e.seq > h.last+1:
		h.check.violate(Lost, "events %d to %d", h.last+1, e.seq-1)
	}
	h.last = e.seq
	note(h.digest, e)
	if h.closed {
		h.check.violate(Invented, "event %d (%s) came after the run was closed", e.seq, e.kind)
	}
	switch e.kind {
	case spool.KindExited:
		if h.exited {
			h.check.violate(Repeated, "event %d is a second exit", e.seq)
		}
		h.exited, h.code = true, e.code
	case spool.KindClosed:
		h.closed = true
	default:
		h.bytes += int64(len(e.bytes))
		if len(e.bytes) == 0 {
			h.notes++
		}
		h.check.output(e.stream, e.bytes)
	}
}

// note adds an event to a digest.
func note(d hash.Hash, e event) {
	head := fmt.Appendf(nil, "%d %s %s %d ", e.seq, e.kind, e.stream, e.code)
	head = binary.LittleEndian.AppendUint64(head, uint64(len(e.bytes)))
	d.Write(head) // a hash never fails
	d.Write(e.bytes)
}

// sum is the digest of all added events.
func (h *history) sum() [sha256.Size]byte { return [sha256.Size]byte(h.digest.Sum(nil)) }

// verdict holds the facts about the end of the run.
type verdict struct {
	failure string // the server's reason for an unknown outcome
	excused bool   // a fault excuses an unknown outcome
	killed  bool   // the worker was killed, directly or through the server
	ledger  *ledger
	acked   uint32 // number of acknowledged inputs
}

// finish performs the final checks and returns all violations.
func (h *history) finish(v verdict) []Violation {
	c := h.check
	want := c.plan.code()
	switch {
	case !h.closed:
		c.violate(NeverEnded, "the last event is %d", h.last)
		return c.found
	case h.exited && v.failure != "" && !v.excused:
		c.violate(WrongExit, "the run exited with %d and also failed: %s", h.code, v.failure)
	case !h.exited && v.failure == "":
		c.violate(WrongExit, "closed without an exit and without a failure")
	case !h.exited && !v.excused:
		c.violate(Unknown, "%s", v.failure)
	}
	natural := h.exited && h.code == want && c.plan.Shape != Endless
	switch {
	case !h.exited || natural:
	case v.killed && h.code == killedCode:
	case v.killed:
		c.violate(WrongExit, "exit code %d; the worker was killed, or exited with %d", h.code, want)
	default:
		c.violate(WrongExit, "exit code %d instead of %d", h.code, want)
	}
	// A fault excuses a loss only if the server reports it.
	lost := v.excused && (v.failure != "" || h.notes > 0)
	c.finish(ending{
		whole: natural && !lost && (!v.killed || want != killedCode), killed: v.killed,
		lost: lost, ledger: v.ledger, acked: v.acked,
	})
	return c.found
}

// killedCode is the exit code of a process that SIGKILL ended.
const killedCode = 128 + 9
