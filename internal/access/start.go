package access

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"strings"

	"github.com/spool-run/spool"
)

// Start implements [spool.Backend].
func (b *backend) Start(ctx context.Context, spec spool.Spec) (spool.Info, error) {
	return b.start(ctx, spec, b.inner.Start)
}

// Execute implements [spool.Executor].
func (b *backend) Execute(ctx context.Context, spec spool.Spec) (spool.Info, error) {
	e, ok := b.inner.(spool.Executor)
	if !ok {
		return spool.Info{}, fmt.Errorf("%w: a start that waits for the end", spool.ErrUnsupported)
	}
	if spec.ID == "" {
		spec.ID = spool.RunID(strings.ToLower(rand.Text()[:16])) // for the audit log, if the wait ends first
	}
	return b.start(ctx, spec, e.Execute)
}

// start starts a run of the subject with begin.
func (b *backend) start(ctx context.Context, spec spool.Spec, begin func(context.Context, spool.Spec) (spool.Info, error)) (spool.Info, error) {
	engine := cmp.Or(spec.Engine, spool.EngineProcess)
	if err := b.checkStart(ctx, engine, &spec); err != nil {
		return spool.Info{}, b.deny(ActStart, spec.ID, err)
	}
	undo, err := b.reserve(ctx, engine, &spec)
	if err != nil && b.exists(ctx, spec.ID) { // a repeated start needs no quota
		undo, err = func() {}, nil
	}
	if err != nil {
		return spool.Info{}, b.deny(ActStart, spec.ID, err)
	}
	if !b.subject.IsOwner() {
		labels := make(map[string]string, len(spec.Labels)+1)
		maps.Copy(labels, spec.Labels)
		maps.Copy(labels, b.subject.Labels)
		labels[LabelSubject] = b.subject.Name
		spec.Labels = labels
	}
	info, err := begin(ctx, spec)
	switch {
	case err == nil && (Label(&info) != b.subject.Name || !b.subject.Sees(&info)):
		err = fmt.Errorf("start run %s: %w", spec.ID, spool.ErrExists)
	case err != nil && ctx.Err() != nil && b.exists(context.WithoutCancel(ctx), spec.ID): // it goes on
		b.note(Entry{Act: ActStart, Run: spec.ID, What: engine})
		return spool.Info{}, err
	}
	if err != nil {
		undo()
		return spool.Info{}, err
	}
	b.note(Entry{Act: ActStart, Run: info.ID, What: engine})
	return info, nil
}

// checkStart checks what needs no knowledge of other runs of the subject.
func (b *backend) checkStart(ctx context.Context, engine string, spec *spool.Spec) error {
	if err := b.subject.Scopes.Require(StartOf(engine)); err != nil {
		return err
	}
	if len(spec.Notify) > 0 { // it is a process
		if err := b.subject.Scopes.Require(StartOf(spool.EngineProcess)); err != nil {
			return err
		}
	}
	if len(b.subject.Runs) > 0 {
		return fmt.Errorf("%w: the token is for some runs only", spool.ErrDenied)
	}
	if engine == AuditEngine {
		return fmt.Errorf("%w: only the server starts runs of the engine %s", spool.ErrDenied, AuditEngine)
	}
	if err := CheckLabels(spec.Labels); err != nil {
		return err
	}
	if err := b.guard.audit.broken(); err != nil {
		return err
	}
	return b.checkConfig(ctx, engine, spec.Config)
}

// exists reports whether the subject has a run with that id.
func (b *backend) exists(ctx context.Context, id spool.RunID) bool {
	if id == "" {
		return false
	}
	info, err := b.inner.Stat(ctx, id)
	return err == nil && Label(&info) == b.subject.Name && b.subject.Sees(&info)
}
