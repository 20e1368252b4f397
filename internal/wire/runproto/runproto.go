// Package runproto is what the run/* methods say on the wire: their params
// and results, the framing of binary events, and how errors keep their
// identity. Server and client share it and nothing else.
package runproto

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/wire/rpc"
	"github.com/spool-run/spool/search"
)

// RunParams names a run.
type RunParams struct {
	Run spool.RunID `json:"run"`
}

// ListParams select runs. A server may answer with fewer runs than the filter
// selects; the rest is asked for with the cursor of the last one as its After.
type ListParams struct {
	Filter spool.Filter `json:"filter,omitzero"`
	// Count asks for the number of runs that the filter selects instead of a
	// list.
	Count bool `json:"count,omitempty"`
}

// ListResult is one page of run/list.
type ListResult struct {
	Runs []spool.Info `json:"runs"`
	More bool         `json:"more,omitempty"` // the filter selects more
	// Errors are those of runs that cannot be read. They come with the page on
	// which the run would be, or with the first.
	Errors []*rpc.Error `json:"errors,omitempty"`
	// Counts are the numbers of runs by their state, if ListParams.Count asks
	// for them. An older server lists the runs in any case.
	Counts map[spool.State]int `json:"counts,omitempty"`
}

// SearchParams are the params of run/search.
type SearchParams struct {
	search.Query
}

// SearchResult is one page of run/search. There are more if Next is set, with or
// without hits in this one.
type SearchResult struct {
	Hits   []search.Hit `json:"hits"`
	Next   string       `json:"next,omitempty"`
	Bytes  int64        `json:"read_bytes,omitempty"` // of logs
	Errors []*rpc.Error `json:"errors,omitempty"`     // of runs that cannot be read
}

// ReadParams are the params of run/read.
type ReadParams struct {
	Run      spool.RunID `json:"run"`
	After    spool.Seq   `json:"after,omitempty"`
	MaxBytes int         `json:"max_bytes,omitempty"`
	WaitMs   int64       `json:"wait_ms,omitempty"`
}

// ReadResult is a page of events.
type ReadResult struct {
	Events []spool.Event `json:"events"`
	Next   spool.Seq     `json:"next"`
	Info   spool.Info    `json:"info"`
}

// AppendJSON appends the JSON form in one pass: pages are large.
func (r ReadResult) AppendJSON(dst []byte) []byte {
	size := 1 << 10
	for i := range r.Events {
		size += r.Events[i].Size() + 128
	}
	dst = slices.Grow(dst, size+size/8)
	dst = append(dst, `{"events":[`...)
	for i := range r.Events {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = r.Events[i].AppendJSON(dst)
	}
	dst = append(dst, `],"next":`...)
	dst = strconv.AppendUint(dst, uint64(r.Next), 10)
	dst = append(dst, `,"info":`...)
	return append(r.Info.AppendJSON(dst), '}')
}

// Subprotocol is what a client asks for in the WebSocket handshake to get
// events as binary records. A codex client asks for none.
const Subprotocol = "spool.v1"

// FollowParams are the params of run/follow. The client chooses Follow, which
// names the stream of events from then on, unique among those open on the
// connection. The server sends events worth at most about Window bytes ahead of
// what run/ack acknowledged; each is worth the size of its record.
type FollowParams struct {
	Follow uint32      `json:"follow"`
	Run    spool.RunID `json:"run"`
	After  spool.Seq   `json:"after,omitempty"`
	Window int64       `json:"window_bytes,omitempty"`
}

// StartFollowParams are the params of run/start_follow, which is run/start and, after
// its answer, run/follow from the beginning. It saves a client that will probably
// follow what it starts a request. The client has not asked for the events yet, so
// the server sends at most about Ahead bytes of them until run/ack says more. With
// ClosedEnds the closed event ends the follow, and no run/end comes after it.
type StartFollowParams struct {
	Spec   json.RawMessage `json:"spec"` // a [spool.Spec]
	Follow uint32          `json:"follow"`
	Window int64           `json:"window_bytes,omitempty"`
	Ahead  int64           `json:"ahead_bytes,omitempty"`

	ClosedEnds bool `json:"closed_ends,omitempty"`
}

// AppendJSON appends the JSON form. The spec is in it as it is.
func (p StartFollowParams) AppendJSON(dst []byte) []byte {
	dst = append(append(dst, `{"spec":`...), p.Spec...)
	dst = strconv.AppendUint(append(dst, `,"follow":`...), uint64(p.Follow), 10)
	dst = strconv.AppendInt(append(dst, `,"window_bytes":`...), p.Window, 10)
	dst = strconv.AppendInt(append(dst, `,"ahead_bytes":`...), p.Ahead, 10)
	if p.ClosedEnds {
		dst = append(dst, `,"closed_ends":true`...)
	}
	return append(dst, '}')
}

// UnfollowParams are the params of a run/unfollow notification, which ends a
// follow.
type UnfollowParams struct {
	Follow uint32 `json:"follow"`
}

// AckParams acknowledge that Bytes of a follow were consumed.
type AckParams struct {
	Follow uint32 `json:"follow"`
	Bytes  int64  `json:"bytes"`
}

// EventParams are the params of a run/event notification.
type EventParams struct {
	Follow uint32      `json:"follow"`
	Event  spool.Event `json:"event"`
}

// AppendJSON appends the JSON form.
func (p EventParams) AppendJSON(dst []byte) []byte {
	dst = strconv.AppendUint(append(dst, `{"follow":`...), uint64(p.Follow), 10)
	return append(p.Event.AppendJSON(append(dst, `,"event":`...)), '}')
}

// EndParams are the params of a run/end notification: the follow is over.
type EndParams struct {
	Follow uint32     `json:"follow"`
	Error  *rpc.Error `json:"error,omitempty"`
}

// WatchParams are the params of run/watch. The client chooses Follow as that of
// run/follow; run/ack, run/unfollow and run/end are about a watch, too.
type WatchParams struct {
	Follow uint32       `json:"follow"`
	Filter spool.Filter `json:"filter,omitzero"`
	Window int64        `json:"window_bytes,omitempty"`
	// Asks asks for asks/changed notifications with all open asks of those runs;
	// only /v1/rpc of the HTTP API has them.
	Asks bool `json:"asks,omitempty"`
}

// ChangedParams are the params of a run/changed notification of a watch. It is worth
// the size of its JSON form. Without an info and an error it says that all runs that
// the filter selects were sent.
type ChangedParams struct {
	Follow uint32      `json:"follow"`
	Info   *spool.Info `json:"info,omitempty"`
	Error  *rpc.Error  `json:"error,omitempty"` // of a run that cannot be read
}

// SendParams are the params of run/send.
type SendParams struct {
	Run   spool.RunID `json:"run"`
	Input spool.Input `json:"input"`
}

// ControlParams are the params of run/control.
type ControlParams struct {
	Run     spool.RunID   `json:"run"`
	Control spool.Control `json:"control"`
}

// BlobParams ask for a part of a blob of a run.
type BlobParams struct {
	Run    spool.RunID  `json:"run"`
	Digest spool.Digest `json:"digest"`
	Offset int64        `json:"offset,omitempty"`
	Max    int          `json:"max_bytes,omitempty"`
}

// BlobResult is a part of a blob.
type BlobResult struct {
	Bytes []byte `json:"base64"`
	EOF   bool   `json:"eof"`
}

// RemoveParams are the params of run/remove, whose result is a
// [spool.Removal].
type RemoveParams struct {
	Runs []spool.RunID `json:"runs"`
	// Dry deletes nothing: the result is what would be deleted.
	Dry bool `json:"dry,omitempty"`
}

// StorageParams are the params of run/storage, whose result is a
// [spool.Storage].
type StorageParams struct {
	// By asks for groups: engine, day or label=NAME.
	By string `json:"by,omitempty"`
}

// RenameParams are the params of run/rename, whose result is a [spool.Info].
type RenameParams struct {
	Run  spool.RunID `json:"run"`
	Name string      `json:"name"`
}

// InspectParams are the params of run/inspect, whose result is the answer.
type InspectParams struct {
	Run      spool.RunID     `json:"run"`
	Question json.RawMessage `json:"question"`
}

// ChangesParams are the params of run/changes, whose result is a [spool.ChangePage].
type ChangesParams struct {
	Run      spool.RunID `json:"run"`
	Patch    bool        `json:"patch,omitempty"`
	After    []byte      `json:"after_base64,omitempty"` // a path, which may not be UTF-8
	MaxBytes int         `json:"max_bytes,omitempty"`
}

// ApplyParams are the params of run/apply.
type ApplyParams struct {
	Run   spool.RunID `json:"run"`
	Paths []string    `json:"paths,omitempty"`
	Bytes [][]byte    `json:"paths_base64,omitempty"` // those that are not UTF-8
	Dry   bool        `json:"dry,omitempty"`
}

// ApplyResult is the result of run/apply. Error is set if there are conflicts, which
// the changes say.
type ApplyResult struct {
	spool.ChangePage
	Error *rpc.Error `json:"error,omitempty"`
}

// MeasureParams are the params of run/measure.
type MeasureParams struct {
	Runs []spool.RunID `json:"runs,omitempty"` // none means all live runs
}

// MeasureResult is the result of run/measure.
type MeasureResult struct {
	Runs []spool.Resources `json:"runs"`
}

// BinaryEvents begins a binary message that carries records of one follow:
// this byte, the follow as four little-endian bytes, then records.
const BinaryEvents = 1

// BinaryHeader is the length of what comes before the records.
const BinaryHeader = 5

// DefaultWindow is how far a follow may be ahead of its acknowledgements.
const DefaultWindow = 4 << 20
