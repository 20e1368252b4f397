package runproto

import (
	"encoding/json"
	"errors"
	"syscall"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// CodeNotFound says that a run, blob, file or handle does not exist.
const CodeNotFound = -32004

// errorNames are the names of our sentinel errors on the wire, with the code
// that each is sent with. An error that is several of them is sent as the
// first: the narrower ones come before the wider ones.
var errorNames = []struct {
	name     string
	sentinel error
	code     int
}{
	{"not_asked", spool.ErrNotAsked, rpc.CodeInternal},
	{"not_retyped", spool.ErrNotRetyped, rpc.CodeInternal},
	{"input_closed", spool.ErrInputClosed, rpc.CodeInternal},
	{"ended", spool.ErrEnded, rpc.CodeInternal},
	{"exists", spool.ErrExists, rpc.CodeInternal},
	{"ambiguous", spool.ErrAmbiguous, rpc.CodeInternal},
	{"not_found", spool.ErrNotFound, CodeNotFound},
	{"busy", spool.ErrBusy, rpc.CodeInternal},
	{"denied", spool.ErrDenied, rpc.CodeInternal},
	{"closed", spool.ErrClosed, rpc.CodeInternal},
	{"lost", spool.ErrLost, rpc.CodeInternal},
	{"unsupported", spool.ErrUnsupported, rpc.CodeInternal},
	{"invalid", spool.ErrInvalid, rpc.CodeInvalidParams},
}

// errorData is what our errors carry in the data member.
type errorData struct {
	Name  string `json:"name,omitempty"`
	Start string `json:"start,omitempty"`
	Hint  string `json:"hint,omitempty"`
	Cause string `json:"cause,omitempty"` // of a StartError, or the second one of another error
	Errno int    `json:"errno,omitempty"`
}

// EncodeError turns an error of the backend into one for the wire.
func EncodeError(err error) error {
	var re *rpc.Error
	if err == nil || errors.As(err, &re) {
		return err
	}
	e := &rpc.Error{Code: rpc.CodeInternal, Message: err.Error()}
	var data errorData
	for _, n := range errorNames {
		if errors.Is(err, n.sentinel) {
			data.Name, e.Code = n.name, n.code
			break
		}
	}
	var se *spool.StartError
	if errors.As(err, &se) {
		data.Start, data.Hint = se.Reason, se.Hint
		if se.Err != nil {
			data.Cause = se.Err.Error()
		}
	} else if second := secondCause(err); second != nil && data.Name != "" {
		data.Cause = second.Error()
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		data.Errno = int(errno)
	}
	if data != (errorData{}) {
		e.Data, _ = json.Marshal(data) // plain fields always encode
	}
	return e
}

// DecodeError turns an error from the wire back into what the backend
// returned, as far as a caller can branch on it.
func DecodeError(err error) error {
	var e *rpc.Error
	if !errors.As(err, &e) {
		return err
	}
	var data errorData
	if len(e.Data) == 0 || json.Unmarshal(e.Data, &data) != nil {
		return err
	}
	remote := &remoteError{message: e.Message}
	for _, n := range errorNames {
		if n.name == data.Name {
			remote.sentinel = n.sentinel
		}
	}
	if data.Errno != 0 {
		remote.errno = syscall.Errno(data.Errno)
	}
	if remote.sentinel == nil && remote.errno == nil && data.Start == "" {
		return err // nothing in it that we know
	}
	if data.Start != "" {
		remote.message = data.Cause
		return &spool.StartError{Reason: data.Start, Hint: data.Hint, Err: remote}
	}
	if data.Cause != "" {
		remote.cause = errors.New(data.Cause)
	}
	return remote
}

// secondCause returns the last of the causes of an error that has several, or nil.
func secondCause(err error) error {
	var several interface{ Unwrap() []error }
	if !errors.As(err, &several) {
		return nil
	}
	if errs := several.Unwrap(); len(errs) > 1 {
		return errs[len(errs)-1]
	}
	return nil
}

// Answered reports whether an error is an answer of the other end, as opposed
// to the lack of one: an errno in it is that of the other end.
func Answered(err error) bool {
	var remote *remoteError
	return errors.As(err, &remote)
}

// remoteError has the text of the other end and the identity of our errors.
type remoteError struct {
	message  string
	sentinel error
	errno    error
	cause    error // a second one
}

func (e *remoteError) Error() string { return e.message }

func (e *remoteError) Unwrap() []error {
	var errs []error
	if e.sentinel != nil {
		errs = append(errs, e.sentinel)
	}
	if e.errno != nil {
		errs = append(errs, e.errno)
	}
	if e.cause != nil {
		errs = append(errs, e.cause)
	}
	return errs
}
