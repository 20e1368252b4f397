package wasipy

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/engine/sandbox/vfs"
)

// contextConfig is all that an interpreter has to know of its context. It is
// what crosses to a worker.
type contextConfig struct {
	Boot     guest.BootConfig `json:"boot"`
	Memory   uint64           `json:"memory"`
	Fuel     int64            `json:"fuel,omitempty"`
	Files    int              `json:"files"`
	Packages []string         `json:"packages,omitempty"`
	Fresh    bool             `json:"fresh,omitempty"`
}

// runner executes the scripts of one context, one at a time.
type runner interface {
	run(ctx context.Context, s guest.Script, d *direct) (guest.Result, error)
	// settle returns what all scripts used, once none runs, nil if that is not
	// known.
	settle() *spool.ProcessUse
	close()
}

// pyContext is a context. It implements [guest.Context].
type pyContext struct {
	o      guest.Options
	boot   contextConfig
	runner runner

	busy sync.Mutex // held while a script runs

	mu     sync.Mutex
	cancel context.CancelFunc // of the script that runs
	link   *direct            // of the same
	closed bool
}

var (
	_ guest.Context     = (*pyContext)(nil)
	_ guest.Interrupter = (*pyContext)(nil)
	_ guest.Accountable = (*pyContext)(nil)
)

// Run implements [guest.Context].
func (c *pyContext) Run(ctx context.Context, s guest.Script, h guest.Host) (guest.Result, error) {
	c.busy.Lock()
	defer c.busy.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d := newDirect(ctx, h)
	defer d.close()
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return guest.Result{}, errClosed
	}
	c.cancel, c.link = cancel, d
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.cancel, c.link = nil, nil
		c.mu.Unlock()
	}()
	return c.runner.run(ctx, s, d)
}

// Interrupt implements [guest.Interrupter].
func (c *pyContext) Interrupt() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link != nil {
		c.link.Interrupt()
	}
	return nil
}

// Settle implements [guest.Accountable].
func (c *pyContext) Settle() *spool.ProcessUse {
	c.busy.Lock()
	defer c.busy.Unlock()
	return c.runner.settle()
}

// Close implements [guest.Context].
func (c *pyContext) Close() error {
	c.mu.Lock()
	closed := c.closed
	c.closed = true
	if c.cancel != nil {
		c.cancel()
	}
	c.mu.Unlock()
	c.busy.Lock()
	defer c.busy.Unlock()
	if !closed {
		c.runner.close()
	}
	return nil
}

// localRunner executes in this process: in that of an embedder, or in a
// worker.
type localRunner struct {
	machine *machine
	config  contextConfig
	fs      vfs.FS
	kept    *kept // between scripts that share an interpreter
	meter   *meter
}

// settle knows nothing: in the process of an embedder the scripts share threads with
// everything else, and a worker tells what each of them used.
func (r *localRunner) settle() *spool.ProcessUse { return nil }

func (r *localRunner) close() {
	if r.kept != nil {
		r.kept.close()
		r.kept = nil
	}
}

// take returns the interpreter that executes the next script.
func (r *localRunner) take(ctx context.Context) (*instance, error) {
	if k := r.kept; k != nil {
		r.kept = nil
		i, err := k.take(ctx)
		if err != nil {
			k.close()
		}
		return i, err
	}
	return r.machine.spare(ctx, instanceOptions{memory: r.config.Memory, fuel: r.config.Fuel, files: r.config.Files})
}

func (r *localRunner) run(ctx context.Context, s guest.Script, d *direct) (guest.Result, error) {
	return r.runOn(ctx, s, d)
}

// runOn executes a script whose host is at the other end of a link.
func (r *localRunner) runOn(ctx context.Context, s guest.Script, l link) (guest.Result, error) {
	began := time.Now()
	var started guest.Startup
	i, err := r.take(ctx)
	if err != nil {
		return guest.Result{Lost: true}, err
	}
	started.Interpreter = time.Since(began)
	i.begin(ctx, l, r.fs)
	i.meter = r.meter
	res, err := r.execute(ctx, i, s, &started, began)
	i.meter = nil
	if err != nil || res.Lost || r.config.Fresh {
		lost := res.Lost || err != nil
		res.Lost = lost
		r.machine.done(i, lost)
	} else {
		r.kept = r.machine.keep(i)
	}
	r.machine.spares.Fill()
	return res, err
}

func (r *localRunner) execute(ctx context.Context, i *instance, s guest.Script, started *guest.Startup, began time.Time) (guest.Result, error) {
	if !i.renewed {
		if err := i.renew(r.config.Boot); err != nil {
			return i.failed(err)
		}
		started.Interpreter = time.Since(began)
		if len(r.config.Packages) > 0 {
			loading := time.Now()
			for _, p := range r.config.Packages {
				res, err := i.run(guest.Script{Code: "import " + p})
				if err != nil || res.ExitCode != 0 {
					return res, err
				}
			}
			started.PackageLoad, started.Packages = time.Since(loading), len(r.config.Packages)
		}
	}
	if ctx.Err() != nil {
		return guest.Result{ExitCode: guest.ExitKilled, EndedBy: guest.Killed, Reason: "its caller ended it"}, nil
	}
	started.Duration = time.Since(began)
	i.link.Started(*started)
	return i.run(s)
}

// failed is the result of a script whose interpreter did not get ready.
func (i *instance) failed(err error) (guest.Result, error) {
	res, resErr := i.result(0, err)
	if resErr == nil && res.EndedBy == guest.Crashed {
		return guest.Result{Lost: true}, fmt.Errorf("ready the interpreter: %w", err)
	}
	return res, resErr
}
