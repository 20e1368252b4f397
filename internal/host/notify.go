package host

import (
	"log/slog"
	"maps"
	"strconv"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
)

// notifyLabel is the label of a run that tells of the end of another, whose id is
// its value.
const notifyLabel = "spool.notify"

// notification returns the spec of the run that tells of the end of a run, or nil.
func notification(spec *spool.Spec) *spool.Spec {
	if len(spec.Notify) == 0 {
		return nil
	}
	labels := map[string]string{notifyLabel: string(spec.ID)}
	if subject := spec.Labels[record.LabelSubject]; subject != "" {
		labels[record.LabelSubject] = subject
	}
	return &spool.Spec{
		Engine: spool.EngineProcess, Argv: spec.Notify, Cwd: spec.Cwd, Env: spec.Env, EnvPolicy: spec.EnvPolicy, Labels: labels,
	}
}

// notify starts the command that tells of the end of the run.
func (r *run) notify() {
	if r.notification == nil {
		return
	}
	info := r.Info()
	spec := *r.notification
	r.notification = nil // it holds an environment
	spec.Env = maps.Clone(spec.Env)
	if spec.Env == nil {
		spec.Env = make(map[string]string)
	}
	outcome := spool.Outcome{Kind: spool.Unknown}
	if info.Outcome != nil {
		outcome = *info.Outcome
	}
	spec.Env["SPOOL_RUN"] = string(info.ID)
	spec.Env["SPOOL_STATUS"] = outcome.String()
	spec.Env["SPOOL_EXIT_CODE"] = strconv.Itoa(outcome.ExitCode())
	if _, err := r.host.Start(r.host.ctx, spec); err != nil {
		slog.Error("the command that tells of the end of a run did not start", "run", info.ID, "error", err)
	}
}
