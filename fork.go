package spool

import (
	"context"
	"encoding/json"
	"fmt"
)

// Fork starts a run with a copy of this one's state as it is between two
// turns, if its engine can do that; the kernel engine can. What the spec does
// not say is as in a fresh run of that engine. A run that cannot be copied
// now gives a [*StartError] with the reason.
func (r *Run) Fork(ctx context.Context, spec Spec) (*Run, error) {
	info, err := r.Info(ctx)
	if err != nil {
		return nil, err
	}
	config := make(map[string]json.RawMessage)
	if len(spec.Config) > 0 {
		if err := json.Unmarshal(spec.Config, &config); err != nil {
			return nil, fmt.Errorf("fork run %s: %w: config: %w", r.id, ErrInvalid, err)
		}
	}
	if config["fork"], err = json.Marshal(r.id); err != nil {
		return nil, fmt.Errorf("fork run %s: %w", r.id, err)
	}
	if spec.Config, err = json.Marshal(config); err != nil {
		return nil, fmt.Errorf("fork run %s: %w", r.id, err)
	}
	spec.Engine = info.Engine
	return Start(ctx, r.backend, spec)
}
