package host

import (
	"fmt"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/record"
)

// auditEngine is the engine of audit logs. Each server has one, and they have the
// same name.
const auditEngine = "audit"

// checkName returns an error if a run cannot start because of its name. The caller
// holds h.mu.
func (h *Host) checkName(spec *spool.Spec) error {
	if err := h.nameTaken(spec.ID, spec.Name, spec.Engine, spec.Labels); err != nil {
		return &spool.StartError{
			Reason: engine.StartNameTaken, Err: err,
			Hint: `choose another name, stop that run with "spool kill", or replace it with --replace`,
		}
	}
	return nil
}

// nameTaken returns an error if a run is to get the name of another live run of the
// same subject; subjects do not see the names of each other's runs. The caller holds h.mu until the run has the name, so that of two
// runs that get one at once one fails.
func (h *Host) nameTaken(id spool.RunID, name, engineName string, labels map[string]string) error {
	if name == "" || engineName == auditEngine {
		return nil
	}
	for other, r := range h.runs {
		if other == id {
			continue
		}
		r.mu.Lock()
		same := r.info.Name == name && r.info.Engine != auditEngine && r.info.Labels[record.LabelSubject] == labels[record.LabelSubject]
		r.mu.Unlock()
		if !same || r.host == nil || r.isDone() || r.Info().State == spool.StateClosed {
			continue
		}
		return fmt.Errorf("%w: the live run %s has the name %q", spool.ErrExists, other, name)
	}
	return nil
}

// setName gives a live run another name.
func (h *Host) setName(r *run, name string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.mu.Lock()
	info := r.info
	r.mu.Unlock()
	if r.Info().State != spool.StateClosed {
		if err := h.nameTaken(info.ID, name, info.Engine, info.Labels); err != nil {
			return fmt.Errorf("rename run %s: %w", info.ID, err)
		}
	}
	r.mu.Lock()
	r.info.Name = name
	r.mu.Unlock()
	return nil
}
