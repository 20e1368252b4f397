package spool

import (
	"context"
	"iter"
)

// Remover is a [Backend] that can delete finished runs. The backends of packages
// local and client are Removers, unless the server is an older one.
type Remover interface {
	// Remove deletes the logs of finished runs, and the blobs to which no
	// other run refers. With dry it deletes nothing and returns what it
	// would delete. A reader in the middle of a deleted log reads one
	// truncated event in place of the rest.
	//
	// The error is [ErrBusy] if one of the runs has not finished; then none
	// is deleted.
	Remove(ctx context.Context, ids []RunID, dry bool) (Removal, error)
	// Storage describes what runs take on disk.
	Storage(ctx context.Context) (Storage, error)
}

// Retainer is a [Backend] that deletes finished runs by itself. The backends of
// package local are Retainers.
type Retainer interface {
	// Due yields the runs that the backend would delete now, and why. It
	// deletes nothing.
	Due(ctx context.Context) iter.Seq2[Due, error]
}

// Due is a run that is to be deleted.
type Due struct {
	Run RunID  `json:"run"`
	Why string `json:"why"` // for people
}

// Removal is what [Remover.Remove] has deleted, or would delete.
type Removal struct {
	Runs  []RunID `json:"runs"`
	Blobs int     `json:"blobs"`
	Bytes int64   `json:"bytes"` // of logs and blobs
}

// Storage is what the runs of a backend take on disk.
type Storage struct {
	LiveRuns      int   `json:"live_runs"`
	LiveBytes     int64 `json:"live_bytes"` // of their logs
	FinishedRuns  int   `json:"finished_runs"`
	FinishedBytes int64 `json:"finished_bytes"` // of their logs and workspaces
	Blobs         int   `json:"blobs"`
	BlobBytes     int64 `json:"blob_bytes"`

	// FinishedRawBytes is the size of the logs of finished runs before
	// compression, WorkspaceBytes the part of FinishedBytes that is what runs
	// changed in their workspaces, and IndexBytes that of the index of runs.
	FinishedRawBytes int64 `json:"finished_raw_bytes"`
	WorkspaceBytes   int64 `json:"workspace_bytes"`
	IndexBytes       int64 `json:"index_bytes"`

	// By is what Groups divide the runs by, the largest first.
	By     string         `json:"by,omitempty"`
	Groups []StorageGroup `json:"groups,omitempty"`
}

// StorageGroup is what the logs of some runs, live and finished, take on disk.
type StorageGroup struct {
	Name     string `json:"name"` // an engine, the value of a label or a day; empty for runs without the label
	Runs     int    `json:"runs"`
	Bytes    int64  `json:"bytes"`
	RawBytes int64  `json:"raw_bytes"` // before compression
}

// StorageGrouper is a [Backend] that says what parts of its runs take on disk. The
// backends of packages local and client are StorageGroupers, unless the server is an
// older one.
type StorageGrouper interface {
	// StorageBy is [Remover.Storage] with groups: by engine, by day (of the
	// creation, in UTC) or by label=NAME.
	StorageBy(ctx context.Context, by string) (Storage, error)
}

// Renamer is a [Backend] that can give runs another name. The backends of packages
// local and client are Renamers, unless the server is an older one.
type Renamer interface {
	// Rename gives a run, live or finished, another name. The name of another
	// live run is [ErrExists] for a live one. A name that is too
	// long is [ErrInvalid].
	Rename(ctx context.Context, id RunID, name string) (Info, error)
}
