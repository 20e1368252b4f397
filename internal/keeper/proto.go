package keeper

import (
	"github.com/spool-run/spool"
)

// Protocol is the version of the protocol between keepers and servers. A server
// also talks to the keepers of older builds until their runs have ended, so
// members are only ever added, and a server tolerates a method that a keeper
// does not know. It starts runs only through a keeper of its own build and
// version.
//
// Version 3 made starts and the first update of a run binary messages. Version
// 4 made the error of a start one too, put the kind first in all of them, and
// has durations in milliseconds. Version 5 has binary requests for updates; a server
// asks older keepers with the method await.
const Protocol = 5

// newsProtocol is the first version with binary requests for updates.
const newsProtocol = 5

// The methods of a keeper.
const (
	methodHello   = "hello"
	methodStat    = "stat"
	methodLive    = "live"
	methodAwait   = "await"
	methodWatch   = "watch"
	methodSend    = "send"
	methodControl = "control"
	methodLease   = "lease"
	methodLeased  = "leased"
	methodRelease = "release"
	methodHold    = "hold"
	methodForget  = "forget"
	methodRename  = "rename"
	methodInspect = "inspect"
)

type helloResult struct {
	Protocol int    `json:"protocol"`
	Build    string `json:"build"`
	Host     string `json:"host"`
	Pid      int    `json:"pid"`
}

// awaitParams ask for an update once there is an event after the cursor.
type awaitParams struct {
	Run   spool.RunID `json:"run"`
	After spool.Seq   `json:"after"`
}

// watchParams ask for the runs that changed after a version, or only for the version
// now. The result is a [host.Changes].
type watchParams struct {
	After uint64 `json:"after,omitempty"`
	Now   bool   `json:"now,omitempty"`
}

// label is one label of a run.
type label struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// leaseParams name the runs of a lease, by their label, and how long they stay
// without a holder.
type leaseParams struct {
	Label label `json:"label"`
	TTLMs int64 `json:"ttl_ms,omitempty"`
}

// liveResult describes the runs that are starting or not closed.
type liveResult struct {
	Runs []spool.Info `json:"runs"`
}

// forgetParams name finished runs whose logs were deleted.
type forgetParams struct {
	Runs []spool.RunID `json:"runs"`
}

// renameParams are the new name of a run.
type renameParams struct {
	Run  spool.RunID `json:"run"`
	Name string      `json:"name"`
}

type leasedResult struct {
	Leased bool `json:"leased"`
}

// An update carries its events up to these bounds; beyond them the reader takes
// them from the files.
const (
	inlineEvents = 16
	inlineBytes  = 8 << 10
)
