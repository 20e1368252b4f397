package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
)

// conversation is a run with an agent, for one prompt.
type conversation struct {
	run      *spool.Run
	turn     *spool.Turn
	printer  *printer
	narrator *narrator      // nil with --json
	takopi   *takopiPrinter // nil without --view takopi
	asker    *agentAsker
	signals  <-chan os.Signal

	interrupts int
	caught     os.Signal // the first signal
}

// converse starts the agent, sends the prompt and prints events until the run
// ends.
func (a *app) converse(ctx context.Context, b spool.Backend, o *agentOptions) error {
	spec, err := a.agentSpec(ctx, b, o)
	if err != nil {
		return err
	}
	images, err := readImages(o.images)
	if err != nil {
		return err
	}
	signals, stop := notify(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGPIPE)
	defer stop()
	run, err := startOrReplace(ctx, b, spec, o.replace, signals)
	if err != nil {
		return err
	}
	if a.verbose {
		fmt.Fprintf(a.stderr, "spool: run %s\n", run.ID())
	}
	c := &conversation{run: run, signals: signals, printer: &printer{stdout: a.screen(a.stdout), stderr: a.screen(a.stderr), json: o.json, blobs: run}}
	switch {
	case o.view == viewTakopi:
		c.takopi = newTakopiPrinter(o.agent, a.stdout)
	case !o.json:
		c.narrator = a.newNarrator(o)
		c.printer.agent = c.narrator
	}
	c.asker = newAsker(a, o, run, c.narrator)
	if c.turn, err = run.Prompt(ctx, "", spool.Prompt{Text: o.prompt, Images: images}); err != nil {
		return errors.Join(err, run.Kill(ctx))
	}
	// After end of file the run ends with the turn, even if this command is
	// killed.
	if err := run.Stdin(ctx).Close(); err != nil {
		return errors.Join(err, run.Kill(ctx))
	}
	done, err := c.follow(ctx)
	if err != nil {
		return err
	}
	code, ok := turnExit[done.Outcome]
	if !ok {
		code = exitFailure
	}
	if c.caught != nil && done.Outcome != spool.TurnOK {
		code = exitSignal + signalNumber(c.caught)
	}
	return exit(code)
}

// tickEvery is the time between updates of the status line.
const tickEvery = 200 * time.Millisecond

// follow prints events until the run is closed and returns the result of the
// turn.
func (c *conversation) follow(ctx context.Context) (done spool.Done, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var helpers sync.WaitGroup
	defer helpers.Wait()
	defer cancel(nil)
	helpers.Go(func() {
		if err := c.watch(ctx); err != nil {
			cancel(err)
		}
	})
	if c.narrator != nil && c.narrator.status != nil {
		helpers.Go(func() { c.tick(ctx) })
	}
	defer c.asker.close()
	outcome := spool.Outcome{Kind: spool.Unknown, Reason: "the log ends without an outcome"}
	ended := false
	for e, err := range c.run.Events(ctx, 0) {
		if cause := context.Cause(ctx); err != nil && cause != nil {
			return done, cause // err only says that ctx was cancelled
		}
		if err != nil {
			return done, err
		}
		if o, ok := e.Outcome(); ok {
			outcome = o
		}
		if e.Kind == spool.KindDone && e.Turn == c.turn.Seq() {
			if err := json.Unmarshal(e.Data, &done); err != nil {
				return done, fmt.Errorf("decode the outcome of the turn: %w", err)
			}
			ended = true
		}
		if err := c.print(ctx, &e); err != nil {
			return done, c.writeFailed(ctx, err)
		}
		c.asker.note(ctx, &e)
	}
	if !ended {
		return done, &exitError{exitSpool, errors.New(outcome.String())}
	}
	return done, nil
}

// print prints an event.
func (c *conversation) print(ctx context.Context, e *spool.Event) error {
	if c.takopi != nil {
		return c.takopi.print(e)
	}
	return c.printer.print(ctx, e)
}

// writeFailed kills the run after its events could not be written.
func (c *conversation) writeFailed(ctx context.Context, err error) error {
	err = errors.Join(&writeError{err}, c.run.Kill(ctx))
	if errors.Is(err, syscall.EPIPE) {
		return exit(exitSignal + int(unix.SIGPIPE))
	}
	return err
}

func (c *conversation) tick(ctx context.Context) {
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			c.narrator.pause(true) // removes the status line
			return
		case <-ticker.C:
			c.narrator.tick()
		}
	}
}

// watch handles signals. Each action runs in its own goroutine, so that a slow
// one does not delay the next signal.
func (c *conversation) watch(ctx context.Context) error {
	failed := make(chan error, 1)
	var acts sync.WaitGroup
	defer acts.Wait()
	jobs, stop := c.notifyJobs()
	defer stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case s := <-jobs:
			c.job(s, jobs)
		case s := <-c.signals:
			if s == unix.SIGPIPE { // the write fails too
				continue
			}
			act, err := c.react(s)
			if err != nil {
				return err
			}
			acts.Go(func() {
				err := act(ctx)
				if err == nil || errors.Is(err, spool.ErrEnded) || ctx.Err() != nil {
					return
				}
				select {
				case failed <- err:
				default:
				}
			})
		}
	}
}

// react returns the action for a signal. The first interrupt ends the turn, the
// second stops the run, the third kills it, and the fourth detaches from a run
// that does not respond.
func (c *conversation) react(s os.Signal) (func(context.Context) error, error) {
	c.interrupts++
	if s != os.Interrupt {
		c.interrupts = max(c.interrupts, 2)
	}
	if c.caught == nil {
		c.caught = s
	}
	switch c.interrupts {
	case 1:
		c.say("interrupting the turn; press Ctrl-C again to stop the run")
		return func(ctx context.Context) error { return c.turn.Interrupt(ctx, 0) }, nil
	case 2:
		c.say("stopping the run")
		return c.run.Stop, nil
	case 3:
		c.say("killing the run")
		return c.run.Kill, nil
	}
	return nil, &exitError{exitSignal + signalNumber(s), fmt.Errorf("detached from run %s, which does not respond", c.run.ID())}
}

func (c *conversation) say(text string) {
	if c.narrator != nil {
		c.narrator.say(text)
	}
}
