// Package workspace keeps what a run changes in its working directory apart.
//
// A workspace is a directory in the state directory, one for each run:
//
//	workspace.json  what the workspace is of, and when it was made
//	upper/, work/   of an overlay: what the run changed, and the kernel's own
//	before          of a snapshot: the files of the base when the run began
//	ended           the changes, and the files of the base, when the run ended
//	apply.json      an apply that is under way, or was interrupted
//
// An overlay is mounted by package isolate, in namespaces of the run. Everything
// here works on its upper directory, where a file of the run stands for a changed
// file of the base, a device with the number zero for a deleted one, and an
// attribute for a directory that was replaced. Changes are the differences from
// the base as it is now: what was applied is no change any more.
//
// Symbolic links are never followed, neither in the base nor in the upper
// directory, which the run wrote.
package workspace

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spool-run/spool"
)

// The kinds of workspaces.
const (
	Overlay  = "overlay"
	Snapshot = "snapshot"
	Auto     = "auto" // of a request only
)

// The limits of workspaces.
const (
	// DefaultBytes is how much disk space the changes of a run may take.
	DefaultBytes = 4 << 30
	// MaxNames is how many changed paths a notice with [NoticeChanges] names.
	MaxNames = 50
	// MaxSnapshot is how many files a directory may have of which a snapshot is
	// made.
	MaxSnapshot = 1_000_000
	// MaxPage is how many changes a page of changes has, and MaxPageBytes about
	// how large it is. A single change may be larger.
	MaxPage      = 16_000
	MaxPageBytes = 8 << 20
	// MaxPatchFile is how large a file may be whose difference is shown.
	MaxPatchFile = 4 << 20
)

// The operations of changes.
const (
	Added    = "added"
	Modified = "modified"
	Deleted  = "deleted"
)

// NoticeChanges is the code of the notice at the end of a run, or of a turn of an
// agent, that says what the run changed, and NoticeLimit that of the one before it is
// killed because it changed too much.
const (
	NoticeChanges = "workspace_changes"
	NoticeLimit   = "workspace_limit"
)

// ErrDiscarded means that the changes of a run were discarded.
var ErrDiscarded = errors.New("its changes were discarded")

// ErrNone means that a run has no workspace.
var ErrNone = fmt.Errorf("%w: the run has no workspace", spool.ErrUnsupported)

// Check returns an error for a request that makes no sense.
func Check(w *spool.Workspace) error {
	switch w.Kind {
	case Overlay, Snapshot, Auto:
	default:
		return fmt.Errorf("no kind of workspace %q: there are %s, %s, %s", w.Kind, Overlay, Snapshot, Auto)
	}
	if w.MaxBytes < 0 {
		return fmt.Errorf("the limit of a workspace is negative: %d", w.MaxBytes)
	}
	return nil
}

// Summary is the data of a notice with [NoticeChanges].
type Summary struct {
	Kind     string         `json:"kind"`
	Added    int            `json:"added"`
	Modified int            `json:"modified"`
	Deleted  int            `json:"deleted"`
	Bytes    int64          `json:"bytes"`             // on disk, of an overlay
	Changes  []spool.Change `json:"changes,omitempty"` // the first ones
	More     int            `json:"more,omitempty"`    // how many others there are
}

// Notice returns the summary as a notice.
func (s *Summary) Notice() spool.Notice {
	data, err := json.Marshal(s)
	if err != nil { // plain fields always encode
		data = nil
	}
	return spool.Notice{Code: NoticeChanges, Text: s.Text(), Data: data}
}

// Text is the summary in words.
func (s *Summary) Text() string {
	if s.Added+s.Modified+s.Deleted == 0 {
		return "the run changed nothing in its workspace"
	}
	return fmt.Sprintf("the run changed its workspace: %d added, %d modified, %d deleted", s.Added, s.Modified, s.Deleted)
}
