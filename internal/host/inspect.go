package host

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
)

var _ spool.Inspector = (*Host)(nil)

// Inspect implements [spool.Inspector].
func (h *Host) Inspect(ctx context.Context, id spool.RunID, question json.RawMessage) (json.RawMessage, error) {
	r, err := h.findExisting(id)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	session := r.session
	r.mu.Unlock()
	switch {
	case r.Info().State == spool.StateClosed || session != nil && r.isDone():
		return nil, fmt.Errorf("run %s: %w", id, spool.ErrEnded)
	case session == nil:
		return nil, r.foreign()
	}
	inspector, ok := session.(engine.Inspector)
	if !ok {
		return nil, fmt.Errorf("run %s: inspect: %w by the engine %s", id, spool.ErrUnsupported, r.Info().Engine)
	}
	answer, err := inspector.Inspect(ctx, question)
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", id, err)
	}
	return answer, nil
}
