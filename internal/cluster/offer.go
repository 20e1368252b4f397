package cluster

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/mirror"
)

// CopiesPath is before the path at which other nodes find the copies of this one.
const CopiesPath = "/copies"

// offer is what a node tells another one: which of its runs that one copies.
//
// The owner of a run tells, and it tells all of it again every second: so a node that was
// restarted, cut off or chosen a moment ago is told as any other, and the answer says how
// far it is. A node that would watch the facts of all runs instead would hear of every run
// of the cluster, and could not answer.
type offer struct {
	Node string    `json:"node"`
	Runs []offered `json:"runs"` // at most offerRuns
}

// offerRuns is how many runs an offer has at most.
const offerRuns = 1000

// offered is a run in an offer.
type offered struct {
	ID   spool.RunID `json:"id"`
	Last spool.Seq   `json:"last"` // last event that its node knows of
}

// taken is the answer to an offer.
type taken struct {
	Runs []takenRun `json:"runs"`
}

// takenRun is how far the copy of a run is.
type takenRun struct {
	ID       spool.RunID `json:"id"`
	Last     spool.Seq   `json:"last"`
	Complete bool        `json:"complete,omitempty"`
	Stopped  string      `json:"stopped,omitempty"` // why it does not go on
}

// Copies are the copies that a node has of runs of others, for the other nodes. They are
// read as runs are, and an offer is a question about the first of its runs: so it goes the
// way of all requests between nodes, through relays, too.
type Copies struct {
	*mirror.Reader
	copying *copying
}

var _ spool.Inspector = (*Copies)(nil)

// Inspect implements [spool.Inspector]: it takes an offer.
func (c *Copies) Inspect(_ context.Context, _ spool.RunID, question json.RawMessage) (json.RawMessage, error) {
	var o offer
	if err := json.Unmarshal(question, &o); err != nil || len(o.Runs) > offerRuns {
		return nil, fmt.Errorf("copy runs of a node: %w: it asks for %d", spool.ErrInvalid, len(o.Runs))
	}
	return json.Marshal(c.copying.take(&o))
}

// offerTo makes an offer over a connection.
func offerTo(ctx context.Context, to spool.Inspector, o *offer) (t taken, err error) {
	question, err := json.Marshal(o)
	if err != nil {
		return t, err
	}
	answer, err := to.Inspect(ctx, o.Runs[0].ID, question)
	if err != nil {
		return t, err
	}
	return t, json.Unmarshal(answer, &t)
}
