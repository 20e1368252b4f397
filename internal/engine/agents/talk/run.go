package talk

import (
	"io"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
)

// Outlet takes the events of a turn; every [engine.Sink] is one.
type Outlet interface {
	Append(e spool.Event) (spool.Seq, error)
	PutBlob(mime string, r io.Reader) (spool.Blob, error)
}

// Run is what the turns of a run have in common.
type Run struct {
	Out     Outlet
	Agent   string
	Cwd     string
	Deltas  bool
	KeepRaw bool

	Session string         // the id of the session, once known
	Started bool           // the started event was written
	actions map[string]int // how often the agent used each action id, so that ours are unique
	notes   int
	Spent   agent.Spend // by the turns before
	Bytes   int64       // of all events
	Err     error       // the log takes no more

	// OnSession is called when the id of the session is known, before any
	// reader of the log can know it. It may call [Turn.Hold].
	OnSession func(t *Turn, id string)
	// OnAsk writes an ask to the log. The answer comes back to
	// [Conversation.Answer] with the key.
	OnAsk func(e spool.Event, a spool.Ask, key string) error
	// OnWithdraw is called when the agent no longer waits for an answer.
	OnWithdraw func(t *Turn, key string)
	// Base is what the session had used when the turn began, if
	// that is known.
	Base         agent.Spend
	BaseKnown    bool
	AskTime      time.Duration // how long an ask stays open
	Pid          int           // of the process
	Transport    string
	Capabilities []string
}
