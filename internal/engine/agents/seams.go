package agents

import (
	"context"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
)

// locker keeps two turns from working in one session at once. Whoever came
// first is first.
type locker interface {
	// lock waits until the session is free or ctx ends. The key is the
	// agent's name, a colon, and the full id of the session.
	lock(ctx context.Context, key string) (lease, error)
}

// lease is the right to work in a session. A turn holds it until it is done.
type lease interface {
	// stamp counts those who held the session before. A process that lives
	// on from turn to turn does not know what others said in between: if
	// the stamp shows that there was somebody, it is started anew.
	stamp() uint64
	// contested reports whether somebody waits behind.
	contested() bool
	release()
}

// judge answers asks before anybody is asked.
type judge interface {
	// decide says what to answer and by which rule, or false if somebody
	// has to be asked.
	decide(a spool.Ask) (d agent.Decision, by string, ok bool)
}

// ledger remembers what sessions have used, so that totals become
// differences, also in a later process.
type ledger interface {
	total(key string) *agent.Spend // nil if nobody knows
	note(key string, total agent.Spend)
}
