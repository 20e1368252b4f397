package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
)

// interrupts are the signals that py and box handle.
var interrupts = []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGPIPE}

const (
	// leaseLabel labels an interpreter that ends with the command that
	// started it, even if the command is killed.
	leaseLabel = "spool.py.command"
	// leaseTTL is how long the interpreter lives after the command is gone.
	leaseTTL = time.Second
	// leaveIn limits how long a command waits for its interpreter to end. The
	// grace period of the stop is shorter.
	leaveIn = 15 * time.Second
)

// interpreter is the run with the Python interpreter of a command.
type interpreter struct {
	backend spool.Backend
	run     *spool.Run
	own     bool // the interpreter ends with the command
	// asksForInput is set if input() asks, and there is no standard input.
	asksForInput bool
	// serve answers asks that need no user, and reports whether it did. It may
	// be nil.
	serve func(ctx context.Context, run *spool.Run, seq spool.Seq, ask *spool.Ask) bool
	after spool.Seq // the last event before this command
}

// kernel finds the session of --session, or starts an interpreter.
func (a *app) kernel(ctx context.Context, b spool.Backend, o *pyOptions, signals chan os.Signal) (*interpreter, error) {
	if o.session != "" {
		return a.session(ctx, b, o, signals)
	}
	spec, err := a.pySpec(o)
	if err != nil {
		return nil, err
	}
	k := &interpreter{backend: b, own: true, asksForInput: true}
	if err := lease(ctx, b, &spec); err != nil {
		return nil, err
	}
	if k.run, err = start(ctx, b, spec, signals); err != nil {
		return nil, err
	}
	return k, nil
}

// sessionPoll is how often a command looks for a session that another one starts.
const sessionPoll = 10 * time.Millisecond

// session finds the session of --session, or starts it. Of two commands that start
// one at once the second uses the session of the first.
func (a *app) session(ctx context.Context, b spool.Backend, o *pyOptions, signals chan os.Signal) (*interpreter, error) {
	spec, err := a.pySpec(o)
	if err != nil {
		return nil, err
	}
	for {
		if k, err := findSession(ctx, b, o.session); k != nil || err != nil {
			return k, err
		}
		run, err := start(ctx, b, spec, signals)
		if err == nil {
			return &interpreter{backend: b, run: run, asksForInput: true}, nil
		}
		if !isNameTaken(err) {
			return nil, err
		}
		select { // the other run is starting or ending
		case s := <-signals:
			return nil, &exitError{exitSignal + signalNumber(s), fmt.Errorf("interrupted while session %s was starting", o.session)}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(sessionPoll):
		}
	}
}

// leaser is an optional interface of a backend: Lease ends the runs with a label
// once this process has been gone for ttl. The backend of this machine has it.
type leaser interface {
	Lease(ctx context.Context, key, value string, ttl time.Duration) error
}

// lease makes a run end with this command, even if the command is killed.
func lease(ctx context.Context, b spool.Backend, spec *spool.Spec) error {
	l, ok := b.(leaser)
	if !ok {
		return nil
	}
	value := rand.Text()
	if err := l.Lease(ctx, leaseLabel, value, leaseTTL); err != nil {
		return fmt.Errorf("bind the run to this command: %w", err)
	}
	spec.Labels = map[string]string{leaseLabel: value}
	return nil
}

// findSession returns the oldest live interpreter with a name, or nil.
func findSession(ctx context.Context, b spool.Backend, name string) (*interpreter, error) {
	var found *spool.Info
	for info, err := range b.List(ctx, spool.Filter{Name: name, Live: true}) {
		switch {
		case err != nil:
			return nil, err
		case info.State != spool.StateRunning:
		case info.Engine != python.EngineKernel:
			return nil, &hintedError{fmt.Errorf("run %s has the name %q and is not a Python run", shorten(string(info.ID)), name), "choose another --session"}
		case found == nil || cmp.Or(info.Created.Compare(found.Created), cmp.Compare(info.ID, found.ID)) < 0:
			found = &info
		}
	}
	if found == nil {
		return nil, nil
	}
	return &interpreter{backend: b, run: spool.Attach(b, found.ID), after: found.Last, asksForInput: true}, nil
}

// leave stops an interpreter that ends with the command.
func (k *interpreter) leave(ctx context.Context) {
	if !k.own {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leaveIn)
	defer cancel()
	// If the stop fails, the lease ends the run.
	if err := k.run.Stop(ctx); err == nil || errors.Is(err, spool.ErrEnded) {
		_, _ = k.run.Wait(ctx)
	}
}

// send sends a cell to the interpreter.
func (k *interpreter) send(ctx context.Context, id string, cell spool.Cell) (*spool.Turn, error) {
	t, err := k.run.Exec(ctx, id, cell)
	if errors.Is(err, spool.ErrEnded) || errors.Is(err, spool.ErrInputClosed) {
		err = fmt.Errorf("the interpreter has ended: %w", err)
	}
	return t, err
}

// refuse answers an ask with an error.
func (k *interpreter) refuse(ctx context.Context, ask spool.Seq, code, message string) error {
	err := k.run.Answer(ctx, spool.Answer{Ask: ask, By: "spool py", Error: &spool.AnswerError{Code: code, Message: message}}, false)
	if errors.Is(err, spool.ErrNotAsked) || errors.Is(err, spool.ErrEnded) || errors.Is(err, spool.ErrInputClosed) {
		return nil // the ask is closed
	}
	return err
}

// reply answers an ask with a line.
func (k *interpreter) reply(ctx context.Context, ask spool.Seq, line string, secret bool) error {
	data, err := encodeLine([]byte(line))
	if err != nil {
		return err
	}
	err = k.run.Answer(ctx, spool.Answer{Ask: ask, Data: data}, secret)
	if errors.Is(err, spool.ErrNotAsked) || errors.Is(err, spool.ErrEnded) || errors.Is(err, spool.ErrInputClosed) {
		return nil
	}
	return err
}
