package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/screen"
)

// attachment connects stdin and stdout with a run until the run is closed or
// the user detaches.
type attachment struct {
	run     *spool.Run
	printer *printer
	after   spool.Seq
	stdin   *os.File // nil sends no input
	typed   bool     // stdin was a terminal when the command began
	sizes   []*os.File
	tty     bool // the run has a terminal
	status  *reconnecting
	screen  *spool.Info // paint the screen of the run as this info describes it; nil paints none
	eof     bool        // the end of stdin closes the run's stdin
	keys    keySequence // typed on a raw terminal, they detach
	signals <-chan os.Signal
	// react returns the action for a signal other than SIGWINCH, or the error
	// that ends the attachment.
	react func(s os.Signal) (act func(context.Context) error, leave error)
}

// Why an attachment ended before its run.
var (
	errDetached = errors.New("detached")                // the user detached
	errHungUp   = errors.New("the terminal was closed") // or its connection was lost
)

// writeError is an error of writing the run's output.
type writeError struct{ err error }

func (e *writeError) Error() string { return fmt.Sprintf("write output: %v", e.err) }
func (e *writeError) Unwrap() error { return e.err }

// follow prints events until the run is closed and returns its outcome. It
// leaves the terminal as it was, whatever the run did to it.
func (t *attachment) follow(ctx context.Context) (outcome spool.Outcome, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var raw *rawTerminal
	if t.tty && t.stdin != nil && isTerminal(t.stdin) && foreground(t.stdin) {
		var err error
		if raw, err = makeRaw(t.stdin); err != nil {
			return spool.Outcome{}, fmt.Errorf("set up the terminal: %w", err)
		}
		t.printer.eol = "\r\n"
	}
	defer raw.restore()
	if t.tty && !t.printer.json {
		if f, ok := terminalOf(t.printer.stdout); ok {
			show := &display{w: t.printer.stdout, terminal: f, run: t.run, views: make(chan *screen.View, 1)}
			t.printer.stdout = show
			if t.status != nil {
				t.status.attach(show)
				defer t.status.attach(nil)
			}
			defer func() {
				left := err != nil && t.printer.midline[spool.PTY]
				if restoreErr := show.restore(left); restoreErr != nil && err == nil {
					err = &writeError{restoreErr}
				}
			}()
			if t.screen != nil {
				if t.after, err = show.paint(ctx, t.run, t.screen); err != nil {
					return outcome, err
				}
			}
		}
	}
	guarded := func(f func(context.Context) error) {
		defer func() {
			if p := recover(); p != nil { // a panic must not leave the terminal raw
				raw.restore()
				panic(p)
			}
		}()
		if err := f(ctx); err != nil {
			cancel(err)
		}
	}
	defer func() {
		if errors.Is(err, errHungUp) {
			notify(unix.SIGHUP) // which may come later than the end of input, and must not end the command
		}
	}()
	go guarded(t.watch)
	if t.stdin != nil {
		// The read cannot be cancelled; the goroutine ends with the process.
		go guarded(func(ctx context.Context) error { return t.pump(ctx, raw != nil) })
	}

	outcome = spool.Outcome{Kind: spool.Unknown, Reason: "the log ends without an outcome"}
	for {
		err = t.stream(ctx, &outcome)
		show, ok := t.printer.stdout.(*display)
		if !ok || !errors.Is(err, errRepaint) {
			return outcome, err
		}
		if err = show.repaint(ctx, t.run, t.after); err != nil {
			return outcome, err
		}
	}
}

// stream prints the events after the cursor. It returns errRepaint when the
// display is to be painted again.
func (t *attachment) stream(ctx context.Context, outcome *spool.Outcome) error {
	streamed, stop := context.WithCancel(ctx)
	defer stop()
	if show, ok := t.printer.stdout.(*display); ok {
		received := make(chan struct{})
		defer func() { <-received }()
		defer stop()
		go func() {
			defer close(received)
			select {
			case show.better = <-show.views:
				stop()
			case <-streamed.Done():
			}
		}()
	}
	for e, err := range t.run.Stream(streamed, t.after) {
		if cause := context.Cause(ctx); err != nil && cause != nil {
			return cause // err only says that ctx was cancelled
		}
		if err != nil && streamed.Err() != nil {
			return errRepaint
		}
		if err != nil {
			return err
		}
		if o, ok := e.Outcome(); ok {
			if e.Seq == 0 { // not in the log
				return &lostError{o.Reason}
			}
			*outcome = o
		}
		if err := t.printer.print(ctx, &e); err != nil {
			if errors.Is(err, syscall.EIO) { // of a terminal that is gone
				return errHungUp
			}
			return &writeError{err}
		}
		t.after = max(t.after, e.Seq)
	}
	return nil
}

// watch handles signals. Each action runs in its own goroutine: it may wait for
// a reconnect and must not delay the next signal.
func (t *attachment) watch(ctx context.Context) error {
	failed := make(chan error, 1)
	do := func(act func(context.Context) error) {
		err := act(ctx)
		if err == nil || errors.Is(err, spool.ErrEnded) || ctx.Err() != nil {
			return
		}
		select {
		case failed <- err:
		default:
		}
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case s := <-t.signals:
			switch s {
			case unix.SIGPIPE: // the write fails too
			case unix.SIGWINCH:
				go do(t.resize)
			default:
				act, err := t.react(s)
				if err != nil {
					return err
				}
				go do(act)
			}
		}
	}
}

// resize sets the size of the run's terminal to that of this one.
func (t *attachment) resize(ctx context.Context) error {
	size, ok := terminalSize(t.sizes...)
	if !ok || !t.tty {
		return nil
	}
	return t.run.Resize(ctx, size)
}

// pump sends stdin to the run.
func (t *attachment) pump(ctx context.Context, raw bool) error {
	w := t.run.Stdin(ctx)
	var keys keyFilter
	if raw {
		keys.keys = t.keys
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := t.stdin.Read(buf)
		b, left := keys.filter(buf[:n])
		if len(b) > 0 {
			if _, err := w.Write(b); err != nil {
				return inputError(ctx, err)
			}
		}
		switch {
		case left:
			return errDetached
		case err == nil:
		case t.typed && (raw || !isTerminal(t.stdin)): // this end of input was not typed
			return errHungUp
		case t.eof && errors.Is(err, io.EOF):
			return inputError(ctx, w.Close())
		default:
			return nil // stdin is closed
		}
	}
}

// inputError drops the errors of a run that takes no more input, and of a lost
// server: follow reports the outcome of the run and the lost connection.
func inputError(ctx context.Context, err error) error {
	if errors.Is(err, spool.ErrInputClosed) || errors.Is(err, spool.ErrEnded) || isLost(err) || ctx.Err() != nil {
		return nil
	}
	return err
}

// notify starts to catch signals. Signals that were ignored when the process
// started, as with nohup, stay ignored.
func notify(signals ...os.Signal) (chan os.Signal, func()) {
	c := make(chan os.Signal, 16)
	for _, s := range signals {
		if !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
	return c, func() { signal.Stop(c) }
}

// forwarder sends the signals it gets to a run.
type forwarder struct {
	run        *spool.Run
	interrupts int       // in quick succession
	last       time.Time // time of the last interrupt
	terminal   bool      // SIGHUP means that the terminal is gone
}

// killWithin is the time within which a second interrupt kills the run.
const killWithin = time.Second

// react sends a signal to the run. Of interrupts in quick succession the second
// kills the run, and the third detaches from a run that does not respond.
func (f *forwarder) react(s os.Signal) (func(context.Context) error, error) {
	if s == os.Interrupt {
		if time.Since(f.last) > killWithin {
			f.interrupts = 0
		}
		f.interrupts++
		f.last = time.Now()
		switch {
		case f.interrupts == 2:
			return f.run.Kill, nil
		case f.interrupts > 2:
			return nil, &exitError{exitSignal + int(unix.SIGINT), fmt.Errorf("detached from run %s, which does not respond", f.run.ID())}
		}
	}
	if s == unix.SIGHUP && f.terminal {
		return nil, errHungUp
	}
	name := signalName(s)
	return func(ctx context.Context) error { return f.run.Signal(ctx, name) }, nil
}

func signalNumber(s os.Signal) int {
	if sig, ok := s.(syscall.Signal); ok {
		return int(sig)
	}
	return 0
}

func signalName(s os.Signal) string { return unix.SignalName(unix.Signal(signalNumber(s))) }
