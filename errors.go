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
)

// StartReason says why a run could not start.
type StartReason string

// The reasons a start can fail for.
const (
	StartInvalid       StartReason = "invalid"        // the spec makes no sense
	StartNotFound      StartReason = "not_found"      // no such program
	StartNotExecutable StartReason = "not_executable" // found, but may not be executed
	StartBadFormat     StartReason = "bad_format"     // not a program for this machine
	StartBadCwd        StartReason = "bad_cwd"        // the working directory is missing or no directory
	StartLimit         StartReason = "limit"          // processes, descriptors or memory ran out
	StartPTY           StartReason = "pty"            // no terminal could be had
	StartUnsupported   StartReason = "unsupported"    // this backend cannot do what was asked
	StartOther         StartReason = "other"
)

// StartError explains why nothing was started and what to do about it.
type StartError struct {
	Reason StartReason
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
	return target == ErrInvalid && e.Reason == StartInvalid || target == ErrUnsupported && e.Reason == StartUnsupported
}
