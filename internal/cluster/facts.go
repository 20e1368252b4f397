package cluster

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/spool-run/spool"
)

// Fact is something that the store holds, at one moment.
type Fact struct {
	Key  string
	Rev  uint64 // grows with every write of the store; zero if there is none
	Data []byte
}

// Facts is the store of the cluster. It decides who has what; what runs did is not in
// it. The whole cluster is written against these four calls.
type Facts interface {
	// Get reads a fact. It may be an old one: no decision is made on it. The
	// error is [ErrNoFact] if there is none.
	Get(ctx context.Context, key string) (Fact, error)
	// Put writes a fact if its revision is still the expected one; zero means
	// that there is none yet. It tries until the answer is certain: [ErrConflict]
	// is said only of a write that did not and will not happen, and
	// [ErrUndecided] if the context ended before. A fact leaves the store by
	// itself after the time that keep says; zero means never. The data must be
	// different for every write, so that a writer recognizes its own.
	Put(ctx context.Context, f Fact, expect uint64, keep time.Duration) (rev uint64, err error)
	// All yields every fact whose key begins with a prefix, in no order.
	All(ctx context.Context, prefix string) iter.Seq2[Fact, error]
	// Watch calls saw with every fact of a prefix that is written from now on. It
	// may miss some, which All finds.
	Watch(prefix string, saw func(Fact)) (stop func(), err error)
}

// Errors of [Facts].
var (
	ErrNoFact    = errors.New("no such fact")
	ErrConflict  = errors.New("somebody else was faster")
	ErrUndecided = errors.New("the store of the cluster gave no certain answer: it may have no majority now")
	// ErrBehind is an ErrUndecided of a store that has an older revision than the
	// expected one.
	ErrBehind = fmt.Errorf("the store of the cluster has an older revision: %w", ErrUndecided)
)

// Prefixes of keys.
const (
	nodePrefix = "node."
	runPrefix  = "run."
	namePrefix = "name."
)

// nodeState is what a node is for the cluster.
type nodeState string

// The states of a node.
const (
	nodeUp       nodeState = "up"
	nodeDraining nodeState = "draining" // takes no new runs
	nodeLost     nodeState = "lost"     // fenced: it did not renew its lease
	nodeGone     nodeState = "gone"     // left in good order
)

// nodeRecord is the fact about a node, and its lease.
type nodeRecord struct {
	Version int       `json:"v"`
	Name    string    `json:"node"`
	ID      string    `json:"id"` // of the machine
	Epoch   uint64    `json:"epoch"`
	Lost    uint64    `json:"lost,omitempty"` // the highest epoch that was fenced
	State   nodeState `json:"state"`
	Beat    uint64    `json:"beat"`
	Nonce   string    `json:"nonce"`
	By      string    `json:"by,omitempty"` // who fenced it
	Reason  string    `json:"reason,omitempty"`

	Addr    string            `json:"addr"`             // where other nodes connect; empty if they cannot
	Relays  []string          `json:"relays,omitempty"` // then they connect through these nodes
	Control bool              `json:"control,omitempty"`
	Build   string            `json:"build,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	Engines []string          `json:"engines,omitempty"` // nil if they are not known
	Cores   int               `json:"cores,omitempty"`
	Memory  int64             `json:"memory_bytes,omitempty"` // zero if it is not known
	Free    int64             `json:"memory_free_bytes,omitempty"`
	Slots   int               `json:"slots"` // live runs at once
	Live    int               `json:"live"`
	Joined  time.Time         `json:"joined,omitzero"`

	// Generation is that of the store, as the node knows it, and High how far its
	// parts were, so that all nodes notice when it goes back in time.
	Generation uint64            `json:"generation,omitempty"`
	High       map[string]uint64 `json:"high,omitempty"`
}

// isFenced reports whether a run that was claimed in an epoch may have ended without
// anybody knowing it.
func (n *nodeRecord) isFenced(epoch uint64) bool { return n.Lost >= epoch && epoch > 0 }

// holds reports whether the node holds its lease.
func (n *nodeRecord) holds() bool { return n.State == nodeUp || n.State == nodeDraining }

// runState is how far the fact about a run is.
type runState string

// The states of the fact about a run.
const (
	runClaimed runState = "claimed" // a node is about to start it
	runHeld    runState = "held"    // it was started
	runClosed  runState = "closed"  // it ended
	runFailed  runState = "failed"  // it was never started
	// runSuperseded says that its node was lost and another run takes its place.
	runSuperseded runState = "superseded"
)

// runRecord is the fact about a run: who has it.
type runRecord struct {
	Version int         `json:"v"`
	ID      spool.RunID `json:"id"`
	Node    string      `json:"node"`
	Epoch   uint64      `json:"epoch"`
	State   runState    `json:"state"`
	Nonce   string      `json:"nonce"`
	Next    spool.RunID `json:"next,omitempty"`   // the run that takes its place
	Mirror  string      `json:"mirror,omitempty"` // the node that copies its log
	Info    spool.Info  `json:"info"`             // as of this write
	// Generation is that of the store in which it was claimed.
	Generation uint64 `json:"generation,omitempty"`
}

// isOpen reports whether the run has not ended as far as the fact says.
func (r *runRecord) isOpen() bool { return r.State == runClaimed || r.State == runHeld }

// wasStarted reports whether the fact says that the run was started.
func (r *runRecord) wasStarted() bool {
	return r.State == runHeld || r.State == runClosed || r.State == runSuperseded
}

// nameRecord is the fact about the name of a live run.
type nameRecord struct {
	Version int         `json:"v"`
	Run     spool.RunID `json:"run"`
	Node    string      `json:"node"`
	Nonce   string      `json:"nonce"`
}

// newNonce returns a text that nobody else has.
func newNonce() string {
	var b [10]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// encode returns the JSON of a record.
func encode(record any) []byte {
	b, err := json.Marshal(record)
	if err != nil { // plain fields always encode
		panic(err)
	}
	return b
}

// nameKey is the key of the fact about a name of a subject's run.
func nameKey(subject, name string) string {
	return namePrefix + hex.EncodeToString([]byte(subject)) + "-" + hex.EncodeToString([]byte(name))
}

// CheckNode returns an error for a text that cannot be the name of a node.
func CheckNode(name string) error {
	bad := strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-'
	})
	if name == "" || len(name) > maxNodeName || bad {
		return errors.New("the name of a node has up to 63 of a-z, 0-9 and -")
	}
	return nil
}

// maxNodeName is how long the name of a node may be: that of a host.
const maxNodeName = 63

// Bounds of what the fact about a run repeats of its description.
const (
	recordArgv   = 4 << 10
	recordLabels = 16 << 10
)

// recordInfo returns what the fact about a run says of it.
func recordInfo(i *spool.Info) spool.Info {
	info := spool.Info{
		ID: i.ID, Name: i.Name, Engine: i.Engine, Cwd: i.Cwd, TTY: i.TTY, Pid: i.Pid, Owner: i.Owner, Created: i.Created, Ended: i.Ended,
		State: i.State, Outcome: i.Outcome, Last: i.Last, Bytes: i.Bytes, Title: i.Title,
	}
	left := recordArgv
	for _, a := range i.Argv {
		if left -= len(a); left < 0 {
			info.Argv = append(info.Argv, "…")
			break
		}
		info.Argv = append(info.Argv, a)
	}
	left = recordLabels
	for k, v := range i.Labels {
		if left -= len(k) + len(v); left < 0 {
			break
		}
		if info.Labels == nil {
			info.Labels = make(map[string]string, len(i.Labels))
		}
		info.Labels[k] = v
	}
	return info
}
