package kernel

import (
	"context"
	"fmt"
	"time"

	"github.com/spool-run/spool"
)

// Probe starts a kernel in each interpreter that a spec could use, in the order
// in which Start tries them, and says what came of it. The first that works is the
// one that Start uses. Places without an interpreter are in the list, too.
func (e *Engine) Probe(ctx context.Context, spec spool.Spec) ([]Probed, error) {
	l, _, err := e.makeLaunchSpec(&spec)
	if err != nil {
		return nil, invalid(err)
	}
	list, vain, err := candidates(l.cfg.Interpreter, l.cwd, l.env)
	if err != nil {
		return []Probed{{Path: l.cfg.Interpreter, From: "the spec", Text: reason(err).Error()}}, nil
	}
	var found []Probed
	addMissing := func(before int) {
		for len(vain) > 0 && vain[0].before == before {
			found = append(found, Probed{Path: vain[0].path, From: vain[0].from, Text: vain[0].why})
			vain = vain[1:]
		}
	}
	for i, c := range list {
		addMissing(i)
		p := Probed{Path: c.path, From: c.from}
		interp, err := e.startProcess(c, l)
		if err == nil {
			err = interp.waitReady(ctx, time.Now().Add(millisOr(l.cfg.StartTimeoutMs, DefaultStartTimeout)))
			p.Version, p.OK = interp.version, err == nil
			executable := interp.executable
			if said := interp.discard(); err != nil && said != "" {
				err = fmt.Errorf("%w: %s", err, said)
			}
			if executable != c.path {
				p.Executable = executable
			}
		}
		if ctx.Err() != nil {
			return found, context.Cause(ctx)
		}
		if err != nil {
			p.Text = err.Error()
		}
		found = append(found, p)
	}
	addMissing(len(list))
	return found, nil
}
