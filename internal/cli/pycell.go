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

// cell runs one cell and exits with its exit code.
func (a *app) cell(ctx context.Context, k *interpreter, o *pyOptions, code string, signals <-chan os.Signal) error {
	p := &printer{stdout: a.screen(a.stdout), stderr: a.screen(a.stderr), blobs: k.run, images: &imageFiles{dir: o.images}}
	if isTerminal(a.stdout) {
		size, _ := terminalSize(a.stdout)
		p.rows = int(size.Rows)
		p.inline = a.picture
	}
	cell := spool.Cell{Code: code, TimeoutMs: o.timeout.Milliseconds()}
	if k.own || len(o.args) > 1 { // else sys.argv of the session stays
		cell.Args = o.args
	}
	if cell.Module = o.module; cell.Module != "" {
		cell.Args = o.args
	}
	if o.file != "" && o.file != "-" {
		var err error
		if cell.File, err = absolute(o.file); err != nil {
			return err
		}
		cell.Args = o.args
	}
	if o.archive {
		if _, remote := a.remote(); remote {
			return &hintedError{fmt.Errorf("%s is a directory or an archive of this machine, which the server does not have", o.file),
				"use --cwd and -m MODULE with a module of the server"}
		}
		cell.Module = mainModule
	}
	r, err := k.send(ctx, "", cell)
	if err != nil {
		return err
	}
	t := &turn{kernel: k, seq: r.Seq(), printer: p}
	if o.coded || o.module != "" || o.file != "" && o.file != "-" { // stdin is not the code
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

// picture shows an image on the terminal, if the environment says that it can: its
// input is that of the script, so that it is not asked.
func (a *app) picture(mime string, data []byte) bool {
	shows := knownPictures()
	if shows == unknownPictures || shows == noPictures {
		return false
	}
	b, err := shows.sequence(mime, data)
	if err != nil {
		return false
	}
	_, err = a.stdout.Write(append(b, '\n'))
	return err == nil
}

// turn is a cell that this command waits for.
type turn struct {
	kernel  *interpreter
	seq     spool.Seq
	printer *printer
	asks    asker // nil refuses input()

	interrupts int
	last       time.Time // time of the last interrupt
}

// asker answers input(), one ask at a time. It returns ok=false if there is no
// more input.
type asker interface {
	answer(ctx context.Context, ask *spool.Ask) (line string, ok bool, err error)
}

// noticeCrashed is the code of the notice that an interpreter has died.
const noticeCrashed = "kernel_crashed"

// turnEnd is the result of a cell.
type turnEnd struct {
	done spool.Done
	exit *int // the code of sys.exit; nil without one
}

// exitCode returns the exit code of a command that ran the cell.
func (t turnEnd) exitCode() int {
	switch t.done.Outcome {
	case spool.TurnOK:
		return 0
	case spool.TurnError:
		if t.exit != nil {
			return *t.exit
		}
		if t.done.ErrorClass == "KeyboardInterrupt" {
			return exitInterrupted
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

// follow prints the events of the cell until it is done.
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
			return end, cause // err only says that ctx was cancelled
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
			continue // Python prints nothing for it
		}
		if d := &end.done; t.kernel.own && d.Outcome == spool.TurnCrashed && d.Signal == "" && d.ExitCode != nil {
			return end, t.printer.flush(ctx) // os._exit ends the program, and Python says nothing
		}
		if text, ok := exitText(&e); ok {
			e = spool.Event{Kind: spool.KindOutput, Stream: spool.Stderr, Turn: e.Turn, Time: e.Time, Bytes: []byte(text + "\n")}
		}
		if err := t.printer.print(ctx, &e); err != nil {
			return end, &writeError{err}
		}
		if end.done.Outcome != "" {
			return end, nil
		}
		if e.Kind == spool.KindAsk && !asksAboutHost(&e) {
			go func(e spool.Event) {
				if err := t.answer(ctx, &e); err != nil {
					cancel(err)
				}
			}(e)
		}
	}
	return end, errors.New("the log ended before the cell was done")
}

// note records what an event tells about the end of the cell. It returns true if
// the event is not printed.
func (t *turnEnd) note(e *spool.Event) (quiet bool) {
	if code, ok := systemExit(e); ok {
		t.exit = &code
		return true
	}
	var n spool.Notice
	if e.Kind == spool.KindNotice && json.Unmarshal(e.Data, &n) == nil && n.Code == noticeCrashed {
		return true // the done event has the same text
	}
	if e.Kind == spool.KindDone && (json.Unmarshal(e.Data, &t.done) != nil || t.done.Outcome == "") {
		t.done.Outcome = spool.TurnError // malformed event
	}
	return false
}

// systemExit returns the exit code if an event reports sys.exit with a number or
// without an argument. An exit with a text is not one of these: the text is
// printed.
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

// exitText returns the text that an exit with a text prints, if the event reports
// one and the text is not in the output already.
func exitText(e *spool.Event) (string, bool) {
	var x python.Exception
	if e.Kind != python.KindException || json.Unmarshal(e.Data, &x) != nil || x.Name != "SystemExit" || x.Printed {
		return "", false
	}
	return x.Message, true
}

// watch handles the signals while the cell runs.
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

// signal handles a signal while the cell runs. The first interrupt interrupts
// the cell, the second within killWithin kills it, and the third detaches.
func (t *turn) signal(ctx context.Context, s os.Signal) error {
	switch s {
	case unix.SIGPIPE: // the write fails too
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
		go func() { _ = t.interrupt(ctx, hard) }() // follow sees the result
		return nil
	}
	_ = t.interrupt(ctx, true)
	return exit(exitSignal + signalNumber(s))
}

// interrupt interrupts the cell; hard skips the grace period.
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

// answer answers an ask of the cell.
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
		return t.kernel.refuse(ctx, e.Seq, "EOF", "no terminal or stdin to answer input()")
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

// askStdin answers input() with lines of stdin.
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
