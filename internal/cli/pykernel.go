package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
)

// interrupts are the signals that a verb which talks to an interpreter handles.
var interrupts = []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGPIPE}

const (
	// leaseLabel ties an interpreter without a name to the command that
	// started it, which may be killed.
	leaseLabel = "spool.py.command"
	// leaseTTL is for how long it stays after that.
	leaseTTL = time.Second
	// leaveIn bounds how long a command waits for the end of its
	// interpreter: it is killed well before.
	leaveIn = 15 * time.Second
)

// interpreter is the one of a command.
type interpreter struct {
	backend spool.Backend
	run     *spool.Run
	own     bool // it ends with the command
	// serve answers asks that are not for a person, and reports whether it
	// did. It may be nil.
	serve func(ctx context.Context, run *spool.Run, seq spool.Seq, ask *spool.Ask) bool
	after spool.Seq // the last event before the command came
}

// kernel finds the session that is meant, or starts an interpreter.
func (a *app) kernel(ctx context.Context, b spool.Backend, o *pyOptions, signals chan os.Signal) (*interpreter, error) {
	if o.session != "" {
		if k, err := findSession(ctx, b, o.session); k != nil || err != nil {
			return k, err
		}
	}
	spec, err := a.pySpec(o)
	if err != nil {
		return nil, err
	}
	k := &interpreter{backend: b, own: o.session == ""}
	if k.own {
		if err := tie(ctx, b, &spec); err != nil {
			return nil, err
		}
	}
	if k.run, err = start(ctx, b, spec, signals); err != nil {
		return nil, err
	}
	if k.own {
		return k, nil
	}
	// Another command may have started the same session meanwhile: the
	// older one is it, and both see that.
	older, err := findSession(ctx, b, o.session)
	if err != nil || older == nil || older.run.ID() == k.run.ID() {
		return k, err
	}
	if err := k.run.Stop(ctx); err != nil && !errors.Is(err, spool.ErrEnded) {
		return nil, err
	}
	return older, nil
}

// tie makes a run end with this command, also if that is killed.
func tie(ctx context.Context, b spool.Backend, spec *spool.Spec) error {
	l, ok := b.(interface {
		Lease(ctx context.Context, key, value string, ttl time.Duration) error
	})
	if !ok {
		return nil
	}
	value := rand.Text()
	if err := l.Lease(ctx, leaseLabel, value, leaseTTL); err != nil {
		return fmt.Errorf("bind the interpreter to this command: %w", err)
	}
	spec.Labels = map[string]string{leaseLabel: value}
	return nil
}

// findSession returns the oldest live interpreter of that name, or nil.
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
	return &interpreter{backend: b, run: spool.Attach(b, found.ID), after: found.Last}, nil
}

// leave ends an interpreter that is the command's own.
func (k *interpreter) leave(ctx context.Context) {
	if !k.own {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leaveIn)
	defer cancel()
	// It ends in any case: the lease sees to that.
	if err := k.run.Stop(ctx); err == nil || errors.Is(err, spool.ErrEnded) {
		_, _ = k.run.Wait(ctx)
	}
}

// send gives the interpreter a cell. A session that ended is said so.
func (k *interpreter) send(ctx context.Context, id string, cell spool.Cell) (*spool.Turn, error) {
	t, err := k.run.Exec(ctx, id, cell)
	if errors.Is(err, spool.ErrEnded) || errors.Is(err, spool.ErrInputClosed) {
		err = fmt.Errorf("the interpreter has ended: %w", err)
	}
	return t, err
}

// refuse answers an ask that nobody here can.
func (k *interpreter) refuse(ctx context.Context, ask spool.Seq, code, message string) error {
	err := k.run.Answer(ctx, spool.Answer{Ask: ask, By: "spool py", Error: &spool.AnswerError{Code: code, Message: message}}, false)
	if errors.Is(err, spool.ErrNotAsked) || errors.Is(err, spool.ErrEnded) || errors.Is(err, spool.ErrInputClosed) {
		return nil // it no longer asks
	}
	return err
}

// reply answers an ask with a line.
func (k *interpreter) reply(ctx context.Context, ask spool.Seq, line string, secret bool) error {
	data, err := json.Marshal(line)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	err = k.run.Answer(ctx, spool.Answer{Ask: ask, Data: data}, secret)
	if errors.Is(err, spool.ErrNotAsked) || errors.Is(err, spool.ErrEnded) || errors.Is(err, spool.ErrInputClosed) {
		return nil
	}
	return err
}
