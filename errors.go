package spool

import (
	"errors"
	"fmt"
)

// Errors that a caller may branch on, by [errors.Is]. They are the same in
// process, behind a keeper and over every wire; [Backend] says which method
// returns which.
var (
	ErrNotFound    = errors.New("not found") // a run or a blob
	ErrAmbiguous   = errors.New("more than one run matches")
	ErrExists      = errors.New("run already exists")
	ErrInputClosed = errors.New("the run takes no input")
	ErrEnded       = errors.New("the run has ended")
	ErrBusy        = errors.New("busy") // later it may work
	ErrDenied      = errors.New("denied")
	ErrUnsupported = errors.New("not supported")
	ErrInvalid     = errors.New("invalid request")
	ErrClosed      = errors.New("backend is closed")
	// ErrLost is the end of a log whose machine is lost: nobody knows what became
	// of the run.
	ErrLost = errors.New("the machine of the run is lost")
)

// StartError explains why nothing was started and what to do about it. Its
// Reason is one of
//
//	invalid         the spec makes no sense; the error is ErrInvalid
//	not_found       no such program
//	not_executable  the program may not be executed
//	bad_format      the file is no program for this machine
//	bad_cwd         the working directory is missing or no directory
//	limit           processes, descriptors or memory ran out
//	pty             no terminal could be had
//	name_taken      a live run has the name; the error is ErrExists
//	unsupported     the backend cannot do what was asked; the error is ErrUnsupported
//	other           another reason
type StartError struct {
	Reason string
	Hint   string // for a person; may be empty
	Err    error  // the cause, with its errno where there is one
}

func (e *StartError) Error() string {
	if e.Hint == "" {
		return fmt.Sprintf("start: %v", e.Err)
	}
	return fmt.Sprintf("start: %v (%s)", e.Err, e.Hint)
}

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// Is makes the reasons that have a sentinel error match it.
func (e *StartError) Is(target error) bool {
	return target == ErrInvalid && e.Reason == "invalid" || target == ErrUnsupported && e.Reason == "unsupported"
}
