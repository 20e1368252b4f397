package acpapi

import (
	"encoding/json"
	"errors"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// errorOf is an error of a backend as one of the protocol.
func errorOf(err error) *rpc.Error {
	e := &rpc.Error{Code: rpc.CodeInternal, Message: err.Error()}
	var start *spool.StartError
	switch {
	case errors.As(err, &start):
		e.Data = encode(map[string]string{"reason": start.Reason, "hint": start.Hint})
		if start.Hint != "" { // clients show the message alone
			e.Message += " (" + start.Hint + ")"
		}
		if errors.Is(err, spool.ErrInvalid) {
			e.Code = rpc.CodeInvalidParams
		}
	case errors.Is(err, spool.ErrNotFound):
		e.Code = codeNotFound
	case errors.Is(err, spool.ErrInvalid), errors.Is(err, spool.ErrUnsupported):
		e.Code = rpc.CodeInvalidParams
	}
	return e
}

// encode encodes plain data.
func encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic("acpapi: encode: " + err.Error()) // maps and structs of plain values
	}
	return b
}

// The reasons for which a prompt stops.
const (
	stopEnd       = "end_turn"
	stopTokens    = "max_tokens"
	stopRequests  = "max_turn_requests"
	stopRefusal   = "refusal"
	stopCancelled = "cancelled"
)

// stopReason says why a turn stopped. It is empty for a turn that failed, which is an
// error of its prompt.
func stopReason(d *spool.Done) string {
	switch d.Outcome {
	case spool.TurnOK:
		return stopEnd
	case spool.TurnInterrupted, spool.TurnCancelled, spool.TurnKilled:
		return stopCancelled
	case agent.TurnBudget, agent.TurnMaxTurns:
		return stopRequests
	case spool.TurnRefused:
		if d.ErrorClass == agent.ClassPermission {
			return stopCancelled // by its user: clients forget a prompt that was refused
		}
		return stopRefusal
	}
	if d.ErrorClass == agent.ClassContext {
		return stopTokens
	}
	return ""
}
