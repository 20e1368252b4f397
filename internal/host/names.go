package host

import (
	"fmt"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/record"
)

// checkName returns an error if a process is to get the name of a live run of
// the same subject; subjects do not see the names of each other's runs. The
// caller holds h.mu, so that of two starts at once one fails.
//
// Only processes are checked: commands that start a kernel with the same session
// name at once agree on one of them.
func (h *Host) checkName(spec *spool.Spec) error {
	if spec.Name == "" || spec.Engine != spool.EngineProcess {
		return nil
	}
	for id, r := range h.runs {
		if id == spec.ID {
			continue
		}
		r.mu.Lock()
		same := r.info.Name == spec.Name && r.info.Labels[record.LabelSubject] == spec.Labels[record.LabelSubject]
		r.mu.Unlock()
		if !same || r.host == nil || r.isDone() || r.Info().State == spool.StateClosed {
			continue
		}
		return &spool.StartError{
			Reason: engine.StartNameTaken,
			Hint:   `choose another name, stop that run with "spool kill", or replace it with --replace`,
			Err:    fmt.Errorf("%w: the live run %s has the name %q", spool.ErrExists, id, spec.Name),
		}
	}
	return nil
}
