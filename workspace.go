package spool

import "context"

// Workspace asks for a view of the working directory of a run in which its changes
// can be told apart, and in an [Info] says which one the run has. Processes, kernels
// and agents take one, on a backend with a state directory.
type Workspace struct {
	// Kind is one of
	//
	//	overlay   the run works on a copy-on-write view of its directory, which
	//	          itself stays as it is until the changes are applied
	//	snapshot  the run works in its directory, of which a list was made
	//	          before: changes can be reported, not undone
	//	auto      overlay, or snapshot where there are no overlays
	//
	// A start with overlay is refused with [ErrUnsupported] where this machine
	// has none. In an Info it is overlay or snapshot.
	Kind string `json:"kind"`
	// MaxBytes bounds the disk space of the changes in an overlay; zero means
	// 4 GiB. It is checked every second and at the end of the run: a run above
	// it is killed.
	MaxBytes int64 `json:"max_bytes,omitempty"`
	// Base is the directory, without symbolic links, in an Info.
	Base string `json:"base,omitempty"`
	// Reason is why a run that asked for auto has a snapshot, in an Info.
	Reason string `json:"reason,omitempty"`
}

// Workspaces is a [Backend] that keeps what runs changed in their workspaces, on the
// machine that they ran on. The backends of packages local and client are Workspaces,
// unless the server is an older one. The error is [ErrUnsupported] for a run without a
// workspace, and [ErrBusy] for a run that has not ended, except for Changes.
type Workspaces interface {
	// Changes lists what a run has changed and was not applied, sorted by the
	// bytes of the paths. It returns a page with at least one change, if there is
	// one after that of the query.
	Changes(ctx context.Context, id RunID, q ChangeQuery) (ChangePage, error)
	// Apply makes the changes of a run in its directory: those of the paths
	// and below, or all. All of them are made, or none. A change whose file has
	// changed since the run began has a Conflict, and then the error is
	// [ErrExists] and none is made. With dry none is made in any case. It returns
	// the changes that are, or would be, made: all, or as many as a page has,
	// those with a conflict first.
	//
	// A snapshot has nothing to apply.
	Apply(ctx context.Context, id RunID, paths []string, dry bool) (ChangePage, error)
	// Discard deletes the changes of a run. The error is [ErrUnsupported] for
	// a snapshot: its changes are in the directory, and cannot be undone.
	Discard(ctx context.Context, id RunID) error
}

// ChangeQuery says which changes of a run [Workspaces.Changes] lists.
type ChangeQuery struct {
	// Patch adds the texts of the differences.
	Patch bool
	// After is the path of the change before the first one: the last one of the
	// page before, or its Base64 if it has one.
	After string
	// MaxBytes is about how large the page may be; zero means 8 MiB, which is
	// also the most. A page has at most 16,000 changes.
	MaxBytes int
}

// ChangePage is a part of the changes of a run.
type ChangePage struct {
	Changes []Change `json:"changes"`
	More    int      `json:"more,omitempty"` // how many others there are
}

// Change is a file that a run has changed.
type Change struct {
	// Path is relative to the directory of the workspace. Base64 are the bytes
	// of a path that is not UTF-8.
	Path   string `json:"path"`
	Base64 []byte `json:"path_base64,omitempty"`
	Op     string `json:"op"`   // added, modified or deleted
	Type   string `json:"type"` // file, directory, symlink or other
	// OldType is what a modified file was, if it was something else.
	OldType string `json:"old_type,omitempty"`
	// OldMode and Mode are permissions in octal, of what was and what is there.
	OldMode string `json:"old_mode,omitempty"`
	Mode    string `json:"mode,omitempty"`
	Size    int64  `json:"size_bytes,omitempty"` // of a file, now
	Binary  bool   `json:"binary,omitempty"`     // has no Patch because it is no text, or too large
	Patch   string `json:"patch,omitempty"`      // a unified diff
	// Conflict is why the change cannot be applied.
	Conflict string `json:"conflict,omitempty"`
}
