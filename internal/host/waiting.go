package host

import (
	"bytes"
	"maps"
	"slices"

	"github.com/spool-run/spool"
)

// namedAsks is how many open asks the description of a run names.
const namedAsks = 16

// beginsTurn reports whether an input event begins a turn.
func beginsTurn(e *spool.Event) bool {
	return !bytes.Contains(e.Data[:min(len(e.Data), 200)], []byte(`"kind":"answer"`))
}

// beginTurn adds a turn after those that the run still has to do. The engine gets
// its input later, so it has not ended.
func (r *run) beginTurn(turn spool.Seq) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turns = append(r.turns, turn)
	r.noteTurns()
	r.tell()
}

// tell has watchers look at the description, which changed after the event that
// changed it.
func (r *run) tell() {
	if r.host != nil {
		r.host.news.mark(r)
	}
}

// endTurn removes a turn. Turns run in the order of their inputs, but one that waits
// may be cancelled. The caller holds r.mu.
func (r *run) endTurn(turn spool.Seq) {
	if i := slices.Index(r.turns, turn); i >= 0 {
		r.turns = slices.Delete(r.turns, i, i+1)
	}
	r.noteTurns()
}

// noteTurns updates the description. The caller holds r.mu.
func (r *run) noteTurns() {
	r.info.Turn = 0
	if len(r.turns) > 0 && r.info.Outcome == nil {
		r.info.Turn = r.turns[0]
	}
}

// noteAsks updates the description with the open asks.
func (r *run) noteAsks(open map[spool.Seq]openAsk) {
	var asks *spool.OpenAsks
	if len(open) > 0 {
		seqs := slices.Sorted(maps.Keys(open))
		asks = &spool.OpenAsks{Open: seqs[:min(len(seqs), namedAsks)], Count: len(seqs)}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.info.Outcome == nil {
		r.info.Asks = asks
		r.tell()
	}
}
