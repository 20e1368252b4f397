package guest

import "encoding/json"

// Reply is what an ask comes back with: a value or an error.
type Reply struct {
	Value json.RawMessage `json:"value,omitempty"`
	Error *ReplyError     `json:"error,omitempty"`
}

// ReplyError is an error that the guest raises.
type ReplyError struct {
	// Code is the name of an errno, such as "ENOENT", or one of the codes
	// below.
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Codes of errors that are no errno.
const (
	CodeTimedOut = "ERR_TIMED_OUT" // no answer in time; TimeoutError
	CodeDenied   = "ERR_DENIED"    // it was not offered; PermissionError
	CodeFailed   = "ERR_FAILED"    // anything else; RuntimeError
)

// Encode returns the JSON form of a reply.
func (r Reply) Encode() []byte {
	b, err := json.Marshal(r)
	if err != nil { // the value is not JSON
		b, _ = json.Marshal(Reply{Error: &ReplyError{Code: CodeFailed, Message: "the answer is not JSON"}})
	}
	return b
}
