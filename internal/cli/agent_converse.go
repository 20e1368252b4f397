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

// conversation is one prompt to an agent, with a person before it.
type conversation struct {
	run      *spool.Run
	turn     *spool.Turn
	printer  *printer
	narrator *narrator      // nil with --json
	takopi   *takopiPrinter // nil without --view takopi
	asker    *agentAsker
	signals  <-chan os.Signal

	interrupts int
	caught     os.Signal // the first that ended it
}

// narrator returns who tells of the event's run, or nil if that is none that
// has to be told.
func (p *printer) narrator(e *spool.Event) *narrator {
	if p.agent == nil {
		n := &narrator{answer: p.stdout, telling: p.stdout, stamps: p.timestamps, prompts: true, asks: true}
		if !n.is(e) {
			return nil
		}
		switch p.only {
		case spool.Stdout:
			n.telling = discard{}
		case spool.Stderr:
			n.answer = discard{}
		}
		p.agent = n
	}
	return p.agent
}

// discard takes what nobody wants to see.
type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }

// converse has an agent do what the prompt says.
func (a *app) converse(ctx context.Context, b spool.Backend, o *agentOptions) error {
	spec, err := a.agentSpec(ctx, b, o)
	if err != nil {
		return err
	}
	signals, stop := notify(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGPIPE)
	defer stop()
	run, err := start(ctx, b, spec, signals)
	if err != nil {
		return err
	}
	if a.verbose {
		fmt.Fprintf(a.stderr, "spool: run %s\n", run.ID())
	}
	c := &conversation{run: run, signals: signals, printer: &printer{stdout: a.stdout, stderr: a.stderr, json: o.json, blobs: run}}
	switch {
	case o.view == viewTakopi:
		c.takopi = newTakopiPrinter(o.agent, a.stdout)
	case !o.json:
		c.narrator = a.newNarrator(o)
		c.printer.agent = c.narrator
	}
	c.asker = newAsker(a, o, run, c.narrator)
	if c.turn, err = run.Prompt(ctx, "", spool.Prompt{Text: o.prompt}); err != nil {
		return errors.Join(err, run.Kill(ctx))
	}
	// Nothing more will be said: the run ends with the turn, whatever
	// becomes of this command.
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

func (a *app) newNarrator(o *agentOptions) *narrator {
	n := &narrator{
		answer: a.stdout, telling: a.stderr, verbose: a.verbose, command: o.command,
		style: style{colour: colour(a.stderr), screen: isTerminal(a.stdout)},
	}
	if isTerminal(a.stderr) && os.Getenv("TERM") != "dumb" {
		size, _ := terminalSize(a.stderr)
		n.status = &statusLine{w: a.stderr, width: int(size.Cols)}
		if n.status.width == 0 {
			n.status.width = 80
		}
	} else {
		n.starts = true
	}
	return n
}

// tickEvery is how often the elapsed time of what runs is shown.
const tickEvery = 200 * time.Millisecond

// follow tells what happens until the run is closed and returns how the turn
// ended.
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
			return done, cause // it says why, and err only that
		}
		if err != nil {
			return done, err
		}
		if o, ok := e.Outcome(); ok {
			outcome = o
		}
		if e.Kind == spool.KindDone && e.Turn == c.turn.Seq() {
			if err := json.Unmarshal(e.Data, &done); err != nil {
				return done, fmt.Errorf("decode how the turn ended: %w", err)
			}
			ended = true
		}
		if err := c.print(ctx, &e); err != nil {
			return done, c.broken(ctx, err)
		}
		c.asker.note(ctx, &e)
	}
	if !ended {
		return done, &exitError{exitSpool, errors.New(outcome.String())}
	}
	return done, nil
}

// print shows an event.
func (c *conversation) print(ctx context.Context, e *spool.Event) error {
	if c.takopi != nil {
		return c.takopi.print(e)
	}
	return c.printer.print(ctx, e)
}

// broken ends a run whose events nobody takes.
func (c *conversation) broken(ctx context.Context, err error) error {
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
			c.narrator.pause(true) // and take the line away
			return
		case now := <-ticker.C:
			c.narrator.tick(now)
		}
	}
}

// watch handles signals. What it does about one may take long, and must not
// keep it from the next.
func (c *conversation) watch(ctx context.Context) error {
	failed := make(chan error, 1)
	var acts sync.WaitGroup
	defer acts.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case s := <-c.signals:
			if s == unix.SIGPIPE { // the write says so too
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

// react says what to do about a signal. Of interrupts the first ends the turn,
// the second the run, the third kills it and the fourth leaves it alone, for
// who cannot even be told that.
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
