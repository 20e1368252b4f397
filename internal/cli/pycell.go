package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
)

// cell runs one cell and exits as it did.
func (a *app) cell(ctx context.Context, k *interpreter, o *pyOptions, code string, signals <-chan os.Signal) error {
	if err := k.setArgs(ctx, o.args); err != nil {
		return err
	}
	p := &printer{stdout: a.stdout, stderr: a.stderr, blobs: k.run, images: &imageFiles{dir: o.images}}
	if isTerminal(a.stdout) {
		size, _ := terminalSize(a.stdout)
		p.rows = int(size.Rows)
	}
	r, err := k.send(ctx, "", spool.Cell{Code: code, TimeoutMs: o.timeout.Milliseconds()})
	if err != nil {
		return err
	}
	t := &turn{kernel: k, seq: r.Seq(), printer: p}
	if o.coded || o.file != "" && o.file != "-" { // stdin is not the code
		t.asks = &askStdin{app: a}
	}
	end, err := t.follow(ctx, signals)
	var broken *writeError
	if errors.As(err, &broken) {
		if stopErr := t.interrupt(ctx, true); stopErr != nil {
			err = errors.Join(err, stopErr)
		}
		if errors.Is(err, syscall.EPIPE) {
			return exit(exitSignal + int(unix.SIGPIPE))
		}
	}
	if err != nil {
		return err
	}
	return exit(end.exitCode())
}

// setArgs gives the script its arguments, as Python does.
func (k *interpreter) setArgs(ctx context.Context, args []string) error {
	if len(args) < 2 && !k.own {
		return nil // none; leave the session's alone
	}
	list, err := json.Marshal(args)
	if err != nil {
		return fmt.Errorf("encode arguments: %w", err)
	}
	// A JSON list of strings is a Python literal but for lone surrogates,
	// which arguments do not have.
	_, err = k.send(ctx, "", spool.Cell{Silent: true, Code: fmt.Sprintf("__import__('sys').argv[:] = %s", list)})
	return err
}

// turn is a cell that this command waits for.
type turn struct {
	kernel  *interpreter
	seq     spool.Seq
	printer *printer
	asks    asker // nil refuses

	interrupts int
	last       time.Time // of them
}

// asker finds answers. It is given one ask at a time and says ok=false if
// there is no answer and will be none.
type asker interface {
	answer(ctx context.Context, ask *spool.Ask) (line string, ok bool, err error)
}

// turnEnd is how a cell ended.
type turnEnd struct {
	done spool.Done
	exit *int // what sys.exit said
}

// exitCode is what a command that stands for the cell exits with.
func (t turnEnd) exitCode() int {
	switch t.done.Outcome {
	case spool.TurnOK:
		return 0
	case spool.TurnError:
		if t.exit != nil {
			return *t.exit
		}
		if c := t.done.ExitCode; c != nil && *c != 0 {
			return *c & 0xff
		}
		return exitFailure
	case spool.TurnTimeout:
		return exitTimeout
	case spool.TurnInterrupted:
		return exitInterrupted
	case spool.TurnKilled:
		return exitKilled
	case spool.TurnCrashed:
		if n := unix.SignalNum(t.done.Signal); t.done.Signal != "" && n != 0 {
			return exitSignal + int(n)
		}
		if c := t.done.ExitCode; c != nil && *c != 0 {
			return *c & 0xff
		}
	}
	return exitFailure
}

// follow prints what the cell does until it is done.
func (t *turn) follow(ctx context.Context, signals <-chan os.Signal) (turnEnd, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if err := t.watch(ctx, signals); err != nil {
			cancel(err)
		}
	}()
	defer func() { cancel(nil); <-watched }()
	var end turnEnd
	for e, err := range t.kernel.run.Events(ctx, t.seq) {
		if cause := context.Cause(ctx); err != nil && cause != nil {
			return end, cause // it says why, and err only that
		}
		if err != nil {
			return end, err
		}
		if o, ok := e.Outcome(); ok && e.Turn != t.seq {
			return end, &exitError{exitSpool, fmt.Errorf("the interpreter ended: %s", o)}
		}
		if e.Turn != t.seq && !(t.kernel.own && e.Turn == 0) {
			continue
		}
		if e.Turn == t.seq && end.note(&e) {
			continue // as Python does
		}
		if err := t.printer.print(ctx, &e); err != nil {
			return end, &writeError{err}
		}
		if end.done.Outcome != "" {
			return end, nil
		}
		if e.Kind == spool.KindAsk {
			go func(e spool.Event) {
				if err := t.answer(ctx, &e); err != nil {
					cancel(err)
				}
			}(e)
		}
	}
	return end, errors.New("the log ended before the cell was done")
}

// note takes in what an event of the cell says about its end. It reports
// whether there is nothing to show.
func (t *turnEnd) note(e *spool.Event) (quiet bool) {
	if code, ok := systemExit(e); ok {
		t.exit = &code
		return true
	}
	if e.Kind == spool.KindDone && (json.Unmarshal(e.Data, &t.done) != nil || t.done.Outcome == "") {
		t.done.Outcome = spool.TurnError // nobody can read how
	}
	return false
}

// systemExit returns what sys.exit was given, if that is what an event
// reports: a number, nothing, or a text that is to be shown.
func systemExit(e *spool.Event) (code int, ok bool) {
	var x python.Exception
	if e.Kind != python.KindException || json.Unmarshal(e.Data, &x) != nil || x.Name != "SystemExit" {
		return 0, false
	}
	if x.Message == "" || x.Message == "None" {
		return 0, true
	}
	code, err := strconv.Atoi(x.Message)
	return code & 0xff, err == nil
}

// watch interrupts the cell when the person wants it.
func (t *turn) watch(ctx context.Context, signals <-chan os.Signal) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case s := <-signals:
			if err := t.signal(ctx, s); err != nil {
				return err
			}
		}
	}
}

// signal does what a signal means while the cell runs: the first interrupt
// interrupts, one more soon after does it with force, and the next leaves.
func (t *turn) signal(ctx context.Context, s os.Signal) error {
	switch s {
	case unix.SIGPIPE: // the write says so too
		return nil
	case unix.SIGINT:
		if time.Since(t.last) > killWithin {
			t.interrupts = 0
		}
		t.interrupts++
		t.last = time.Now()
		if t.interrupts > 2 {
			return &exitError{exitInterrupted, errors.New("detached from a cell that does not end")}
		}
		hard := t.interrupts == 2
		go func() { _ = t.interrupt(ctx, hard) }() // who waits sees whether it helped
		return nil
	}
	_ = t.interrupt(ctx, true)
	return exit(exitSignal + signalNumber(s))
}

// interrupt ends the cell; hard means with stronger means at once.
func (t *turn) interrupt(ctx context.Context, hard bool) error {
	grace := time.Duration(0)
	if hard {
		grace = time.Millisecond
	}
	err := t.kernel.run.Turn(t.seq).Interrupt(context.WithoutCancel(ctx), grace)
	if errors.Is(err, spool.ErrEnded) {
		return nil
	}
	return err
}

// answer answers what the cell asks.
func (t *turn) answer(ctx context.Context, e *spool.Event) error {
	var ask spool.Ask
	if err := json.Unmarshal(e.Data, &ask); err != nil {
		return t.kernel.refuse(ctx, e.Seq, "EINVAL", "the question cannot be read")
	}
	if t.kernel.serve != nil && t.kernel.serve(ctx, t.kernel.run, e.Seq, &ask) {
		return nil
	}
	if ask.Kind != spool.AskInput {
		return t.kernel.refuse(ctx, e.Seq, "ENOSYS", fmt.Sprintf("this client does not answer %s %s", ask.Kind, ask.Name))
	}
	if t.asks == nil {
		return t.kernel.refuse(ctx, e.Seq, "EOF", "nobody is there to answer input()")
	}
	line, ok, err := t.asks.answer(ctx, &ask)
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return err
	case !ok:
		return t.kernel.refuse(ctx, e.Seq, "EOF", "EOF when reading a line")
	}
	return t.kernel.reply(ctx, e.Seq, line, ask.Secret)
}

// askStdin answers with the lines of stdin.
type askStdin struct {
	app   *app
	lines *bufio.Reader
}

func (s *askStdin) answer(_ context.Context, ask *spool.Ask) (string, bool, error) {
	if ask.Secret && isTerminal(s.app.stdin) {
		b, err := term.ReadPassword(int(s.app.stdin.Fd()))
		fmt.Fprintln(s.app.stderr)
		return string(b), err == nil, nil
	}
	if s.lines == nil {
		s.lines = bufio.NewReader(s.app.stdin)
	}
	line, err := s.lines.ReadString('\n')
	if err != nil && (!errors.Is(err, io.EOF) || line == "") {
		return "", false, nil
	}
	return strings.TrimRight(line, "\r\n"), true, nil
}
