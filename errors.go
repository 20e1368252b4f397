package spool

import (
	"errors"
	"fmt"
)

// Errors a caller may branch on.
var (
	ErrNotFound    = errors.New("not found") // a run or a blob
	ErrAmbiguous   = errors.New("more than one run matches")
	ErrExists      = errors.New("run already exists")
	ErrInputClosed = errors.New("the run takes no input")
	ErrEnded       = errors.New("the run has ended")
	ErrUnsupported = errors.New("not supported")
	ErrClosed      = errors.New("backend is closed")
	ErrInvalid     = errors.New("invalid request")
	ErrBusy        = errors.New("busy")   // it would work later
	ErrDenied      = errors.New("denied") // by a policy or by access rights
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
