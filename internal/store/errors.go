package store

import (
	"errors"
	"fmt"

	"github.com/spool-run/spool"
)

// ErrReadOnly is returned by a journal that was opened for reading.
var ErrReadOnly = errors.New("journal is read-only")

// errTorn means that a file ends within a record: a write was interrupted, or is
// in progress in a live file.
var errTorn = errors.New("torn")

// CorruptError means that the bytes of a run are not the ones that were written.
// It concerns that run only.
type CorruptError struct {
	Run    spool.RunID
	File   string // path of the segment
	Offset int64  // of the record in it
	Err    error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("run %s is corrupt at offset %d of %s: %v", e.Run, e.Offset, e.File, e.Err)
}

// Damaged reports that the rest of the log cannot be read, now or later.
func (e *CorruptError) Damaged() bool { return true }

// Unwrap returns the cause.
func (e *CorruptError) Unwrap() error { return e.Err }
