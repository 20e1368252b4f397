package torture

import (
	"slices"

	"github.com/spool-run/spool"
)

// inbox orders the events from a connection, as a client of the codex dialect
// must: notifications may be late or missing, and process/read returns the
// rest.
type inbox struct {
	hist    *history
	pending map[uint64]event
	failure string

	// Events pushed on the current connection, to detect repetitions.
	pushed  map[uint64]struct{}
	highest uint64
	late    int // pushes after one with a higher seq
}

func newInbox(h *history) *inbox {
	return &inbox{hist: h, pending: make(map[uint64]event), pushed: make(map[uint64]struct{})}
}

// reconnect resets the state of the connection.
func (in *inbox) reconnect() {
	clear(in.pushed)
	in.highest = 0
}

// push adds a notification.
func (in *inbox) push(e event) {
	if _, again := in.pushed[e.seq]; again {
		in.hist.check.violate(Repeated, "event %d was pushed twice on one connection", e.seq)
		return
	}
	in.pushed[e.seq] = struct{}{}
	if e.seq < in.highest {
		in.late++
	}
	in.highest = max(in.highest, e.seq)
	if e.seq > in.hist.last { // otherwise a read returned it before
		in.pending[e.seq] = e
	}
	in.drain()
}

func (in *inbox) drain() {
	for {
		e, ok := in.pending[in.hist.last+1]
		if !ok {
			return
		}
		delete(in.pending, e.seq)
		in.hist.add(e)
	}
}

// chunk is a chunk of a process/read result.
type chunk struct {
	Seq    uint64       `json:"seq"`
	Stream spool.Stream `json:"stream"`
	Chunk  []byte       `json:"chunk"`
}

// readResult is the result of process/read.
type readResult struct {
	Chunks   []chunk `json:"chunks"`
	NextSeq  uint64  `json:"nextSeq"`
	Exited   bool    `json:"exited"`
	ExitCode *int    `json:"exitCode"`
	Closed   bool    `json:"closed"`
	Failure  *string `json:"failure"`
}

// read adds the answer to a process/read without a limit. It holds all events
// after the cursor; the numbers it skips are the exit and the end. read reports
// whether there is a gap before events pushed meanwhile, so that the caller
// must read again.
func (in *inbox) read(after uint64, res *readResult) (gap bool) {
	if res.NextSeq <= after {
		in.hist.check.violate(Lost, "the log ends at event %d, and event %d was delivered", res.NextSeq-1, after)
		return false
	}
	if res.Failure != nil {
		in.failure = *res.Failure
	}
	for _, c := range res.Chunks {
		e := event{seq: c.Seq, kind: spool.KindOutput, stream: c.Stream, bytes: c.Chunk}
		if e.seq > in.hist.last {
			in.pending[e.seq] = e
		}
	}
	exited, closed := in.hist.exited, in.hist.closed
	var missing []uint64
	for seq := in.hist.last + 1; seq < res.NextSeq; seq++ {
		e, ok := in.pending[seq]
		if !ok {
			missing = append(missing, seq)
		}
		exited = exited || e.kind == spool.KindExited
		closed = closed || e.kind == spool.KindClosed
	}
	if last := len(missing) - 1; last >= 0 && res.Closed && !closed && missing[last] == res.NextSeq-1 {
		in.pending[missing[last]] = event{seq: missing[last], kind: spool.KindClosed}
		missing = missing[:last]
	}
	if len(missing) > 0 && res.Exited && res.ExitCode != nil && !exited {
		// Evicted chunks, if any, are older.
		last := len(missing) - 1
		in.pending[missing[last]] = event{seq: missing[last], kind: spool.KindExited, code: *res.ExitCode}
		missing = missing[:last]
	}
	in.drain()
	if len(missing) > 0 {
		// The history reports them as lost; continue behind them.
		seqs := make([]uint64, 0, len(in.pending))
		for seq := range in.pending {
			seqs = append(seqs, seq)
		}
		slices.Sort(seqs)
		for _, seq := range seqs {
			if seq < res.NextSeq && seq > in.hist.last {
				in.hist.add(in.pending[seq])
				delete(in.pending, seq)
			}
		}
		in.drain()
	}
	return len(in.pending) > 0
}
