package kernel

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/internal/launch"
	"github.com/spool-run/spool/internal/limits"
)

// An isolated interpreter is started in its sandbox, never forked: a zygote is
// outside, and what it forked would be outside, too. A new interpreter of the same
// run gets a sandbox like the first. The same holds for one that sees an overlay: its
// namespaces are a sandbox, too.

// isolated reports whether interpreters are started in a sandbox.
func (l *launchSpec) isolated() bool {
	return l.overlay != nil || l.request != nil && isolate.Isolates(l.request.Isolation)
}

// isolate completes a launch spec for the isolation that a spec asks for. It
// refuses what no interpreter could have, and moves limits to where they hold in a
// sandbox.
func (e *Engine) isolate(l *launchSpec, spec *spool.Spec, bounds *spool.Limits) error {
	if spec.Workspace != nil && l.cfg.Fork != "" {
		return invalid(errors.New("a fork of a live run cannot have a workspace: start another run"))
	}
	if spec.Isolation == nil && l.overlay == nil {
		return nil
	}
	l.request = spec
	if spec.Isolation != nil && !isolate.Isolates(spec.Isolation) {
		if _, err := e.sandboxes.Start(spec, 0, &launch.Command{Dir: l.cwd}); err != nil {
			return err
		}
		l.isolation = e.sandboxes.Report(spec, nil)
	}
	if !l.isolated() {
		return nil
	}
	if l.cfg.Fork != "" {
		return invalid(errors.New("a fork of a live run cannot be isolated: start an isolated run"))
	}
	// An interpreter in a sandbox cannot enter a control group by itself.
	if limit := l.cfg.MemoryBytes; limit > 0 && l.memory == 0 && e.launcher.TryLimits(limit, 0) == nil {
		l.memory, bounds.MemoryBytes = limit, limit
	}
	return nil
}

// enclose has an interpreter of an isolated run start in a sandbox.
func (e *Engine) enclose(p *interpreter, l *launchSpec, c *launch.Command, t *childFiles) error {
	if !l.isolated() {
		return nil
	}
	lease, err := e.sandboxes.StartOverlay(l.request, cmp.Or(l.request.Limits.Pids, e.opts.Limits.Pids, limits.DefaultPids), c, l.overlay)
	if err != nil {
		return err
	}
	if err := l.keeps(lease.Isolation()); err != nil {
		lease.Release()
		return &spool.StartError{Reason: engine.StartUnsupported, Hint: "start another run", Err: err}
	}
	if dir := runnerDir(); dir != "" && !lease.Sees(dir) {
		c.Argv = inlineArgs(c.Path, "kernel", "")
	}
	// A process that can write to the pipe of the engine ends every interpreter.
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		lease.Release()
		return fmt.Errorf("make pipe: %w", err)
	}
	t.life, p.life, p.lease = fds[0], fds[1], lease
	c.Files[lifeFile] = uintptr(t.life)
	return nil
}

// lifeFile is the descriptor of an interpreter that is readable when it is to end.
const lifeFile = 4

// keeps returns an error if a later interpreter of the run would have less than
// Info says.
func (l *launchSpec) keeps(has *spool.Isolation) error {
	if l.isolation == nil || has == nil {
		return nil
	}
	for _, g := range l.isolation.Guarantees {
		if set, err := isolate.ParseSet(has.Guarantees); err != nil || !set.Has(isolate.Guarantee(g)) {
			return fmt.Errorf("isolation_unavailable: the first interpreter of the run had the guarantee %s, and a new one would not", g)
		}
	}
	return nil
}

// Isolation implements [engine.Isolated].
func (s *session) Isolation() *spool.Isolation { return s.isolation }

// askHost puts an ask about a host, which is of the cell that runs, and waits for the
// answer.
func (s *session) askHost(ctx context.Context, q spool.Ask) (spool.Answer, error) {
	defer s.wake() // the clock of the cell goes on
	return s.turns.Await(ctx, q)
}

// attachNetwork has the log tell of the hosts that an interpreter connects to, and its
// asks about others be answered.
func (s *session) attachNetwork(p *interpreter) {
	if p.lease == nil || p.lease.Network() == nil {
		return
	}
	p.lease.Network().Attach(func(n spool.Notice) {
		_, _ = s.out.Append(spool.Event{Kind: spool.KindNotice, Data: encode(n)}) // after an error the run ends
	}, s.hosts)
}

// endNetwork ends the connections of an interpreter that has exited, and has the log
// tell what they carried.
func (s *session) endNetwork(p *interpreter) {
	if p.lease == nil || p.lease.Network() == nil {
		return
	}
	if n, ok := p.lease.Network().Close(); ok {
		s.notice(n)
	}
}
