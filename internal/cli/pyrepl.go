package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
)

// The prompts of Python.
const (
	promptFirst = ">>> "
	promptMore  = "... "
)

// repl connects a terminal with an interpreter. The terminal is raw while the
// user types a line, and restored while a cell runs, so that Ctrl-C is a signal
// then.
type repl struct {
	app     *app
	kernel  *interpreter
	timeout int64
	term    *term.Terminal // only the goroutine of read waits in it; nil on a dumb terminal
	keys    *keyReader
	plain   *bufio.Reader // lines of a dumb terminal
	history *history
	assist  *assist
	printer *printer
	signals <-chan os.Signal
	events  chan spool.Event // events of the interpreter
	lost    error            // error of the reader; set before events is closed

	mine    map[spool.Seq]bool // turns of this command
	reading chan typed         // receives the line that read reads; nil otherwise
	typing  bool               // the line is on the screen
}

// repl reads cells and runs them until the user exits.
func (a *app) repl(ctx context.Context, k *interpreter, o *pyOptions, signals <-chan os.Signal) error {
	r := &repl{app: a, kernel: k, timeout: o.timeout.Milliseconds(), keys: &keyReader{f: a.stdin}, signals: signals,
		events: make(chan spool.Event), mine: make(map[spool.Seq]bool)}
	r.history = a.openHistory()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.assist = &assist{ctx: ctx, run: k.run, history: r.history, columns: r.columns, show: r.above}
	r.assist.asks, _ = k.backend.(spool.Inspector)
	if os.Getenv("TERM") == "dumb" {
		r.plain = bufio.NewReader(a.stdin)
	} else {
		r.term = term.NewTerminal(struct {
			io.Reader
			io.Writer
		}{r.keys, a.stdout}, promptFirst)
		r.term.AutoCompleteCallback = r.assist.key
		r.term.History = r.history
	}
	defer func() { _ = r.history.save() }() // the session has already ended
	size, _ := terminalSize(a.stdin, a.stdout)
	var stdout, stderr io.Writer = r, r
	if !a.raw {
		stdout, stderr = &screenFilter{w: r}, &screenFilter{w: r}
	}
	r.printer = &printer{
		stdout: stdout, stderr: stderr, blobs: k.run, rows: int(size.Rows), images: &imageFiles{dir: o.images},
		colour: wantsColour(a.stdout),
	}
	if r.plain != nil {
		r.printer.rows = 0 // nothing on the screen can be replaced
	}
	info, err := k.run.Info(ctx)
	if err != nil {
		return err
	}
	go r.follow(ctx, info.Last)
	var details python.Details
	if json.Unmarshal(info.Details, &details) == nil && details.Version != "" {
		details.Version = " " + details.Version
	}
	fmt.Fprintf(a.stdout, "Python%s in run %s; obj? describes, Ctrl-C interrupts, Ctrl-D exits%s\n",
		details.Version, shorten(string(info.ID)), staysRunning(k, info.Name))
	return r.loop(ctx)
}

// staysRunning returns a text that names the run or session that Ctrl-D does not
// end.
func staysRunning(k *interpreter, name string) string {
	switch {
	case k.own:
		return ""
	case name == "":
		return "; the run keeps running"
	}
	return "; session " + name + " keeps running"
}

// follow sends the events to r.events.
func (r *repl) follow(ctx context.Context, after spool.Seq) {
	defer close(r.events)
	for e, err := range r.kernel.run.Events(ctx, after) {
		if err != nil {
			r.lost = err
			return
		}
		select {
		case r.events <- e:
		case <-ctx.Done():
			return
		}
	}
}

// ended returns the error that ended the events.
func (r *repl) ended() error {
	if r.lost != nil {
		return r.lost
	}
	return &exitError{exitSpool, errors.New("the interpreter has ended")}
}

func (r *repl) loop(ctx context.Context) error {
	for {
		source, err := r.cell(ctx)
		if errors.Is(err, io.EOF) {
			_, err := fmt.Fprintln(r.app.stdout)
			return err
		}
		if err != nil {
			return err
		}
		if strings.TrimSpace(source) == "" {
			continue
		}
		if described, err := r.describe(source); described || err != nil {
			if err != nil {
				return err
			}
			continue
		}
		if err := r.run(ctx, source); err != nil {
			return err
		}
	}
}

// columns is the width of the terminal.
func (r *repl) columns() int {
	if size, ok := terminalSize(r.app.stdin, r.app.stdout); ok {
		return int(size.Cols)
	}
	return 80
}

// above prints text above the line that the user types.
func (r *repl) above(text string) {
	_, _ = r.term.Write([]byte(text + "\n")) // the next read fails if the terminal is gone
}

// cell reads one cell.
func (r *repl) cell(ctx context.Context) (string, error) {
	var lines []string
	prompt := promptFirst
	defer r.assist.before.Store(nil)
	for {
		before := strings.Join(lines, "\n")
		if len(lines) > 0 {
			before += "\n"
		}
		r.assist.before.Store(&before)
		line, pasted, err := r.line(ctx, prompt, false, 0)
		if errors.Is(err, errTypedInterrupt) {
			lines, prompt = nil, promptFirst
			if _, err := fmt.Fprintln(r.app.stdout, "KeyboardInterrupt"); err != nil {
				return "", err
			}
			continue
		}
		if err != nil {
			return "", err
		}
		lines = append(lines, line)
		source := strings.Join(lines, "\n")
		if len(source) > maxSource {
			return "", fmt.Errorf("the cell is longer than %d bytes", maxSource)
		}
		if !pasted && completeSource(source) {
			return source, nil
		}
		prompt = promptMore
		if !pasted && r.term != nil && r.reading == nil {
			r.keys.feed(indentation(source))
		}
	}
}

// errTypedInterrupt reports that the user typed Ctrl-C.
var errTypedInterrupt = errors.New("interrupted")

// typed is a line that the user typed, or an error.
type typed struct {
	line string
	err  error
}

// line reads one line and prints events above it meanwhile. If the line answers
// an ask, turn names the turn of the ask.
func (r *repl) line(ctx context.Context, prompt string, secret bool, turn spool.Seq) (line string, pasted bool, err error) {
	if r.plain != nil {
		return r.plainLine(ctx, prompt, secret, turn)
	}
	raw, err := makeRaw(r.app.stdin)
	if err != nil {
		return "", false, fmt.Errorf("set up the terminal: %w", err)
	}
	defer raw.restore()
	if size, ok := terminalSize(r.app.stdin, r.app.stdout); ok {
		_ = r.term.SetSize(int(size.Cols), int(size.Rows)) // the next prompt redraws the line
	}
	r.term.SetPrompt(prompt)
	r.term.SetBracketedPasteMode(true)
	defer r.term.SetBracketedPasteMode(false)
	if r.reading == nil {
		r.read(prompt, secret)
	} else if _, err := r.term.Write([]byte("\n")); err != nil { // show the prompt
		return "", false, err
	}
	r.typing = true
	defer func() { r.typing = false }()
	return r.await(ctx, turn)
}

// plainLine reads one line of a dumb terminal, which echoes and edits by itself.
func (r *repl) plainLine(ctx context.Context, prompt string, secret bool, turn spool.Seq) (line string, pasted bool, err error) {
	if _, err := fmt.Fprint(r.app.stdout, prompt); err != nil {
		return "", false, err
	}
	if r.reading == nil {
		done := make(chan typed, 1)
		r.reading = done
		go func() {
			if secret {
				b, err := term.ReadPassword(int(r.app.stdin.Fd()))
				done <- typed{string(b), err}
				return
			}
			line, err := r.plain.ReadString('\n')
			if line != "" {
				err = nil
			}
			done <- typed{strings.TrimRight(line, "\r\n"), err}
		}()
	}
	return r.await(ctx, turn)
}

// await waits for the line that is being read, and prints events meanwhile.
func (r *repl) await(ctx context.Context, turn spool.Seq) (line string, pasted bool, err error) {
	for {
		select {
		case t := <-r.reading:
			r.reading = nil
			pasted = errors.Is(t.err, term.ErrPasteIndicator)
			switch {
			case r.keys.interrupted:
				return "", false, errTypedInterrupt
			case pasted:
				return t.line, true, nil
			}
			return t.line, false, t.err
		case e, ok := <-r.events:
			if !ok {
				return "", false, r.ended()
			}
			if err := r.show(ctx, &e); err != nil {
				return "", false, err
			}
			if e.Kind == spool.KindDone && e.Turn == turn {
				return "", false, &turnDone{e}
			}
		case s := <-r.signals:
			switch s {
			case unix.SIGPIPE:
			case unix.SIGINT: // with an editor Ctrl-C is a key, not a signal
				if r.plain != nil {
					return "", false, errTypedInterrupt
				}
			default:
				return "", false, exit(exitSignal + signalNumber(s))
			}
		case <-ctx.Done():
			return "", false, context.Cause(ctx)
		}
	}
}

// turnDone reports that a turn ended before its ask was answered.
type turnDone struct{ done spool.Event }

func (o *turnDone) Error() string { return "the cell ended" }

// read starts to read a line. The read cannot be cancelled: if the caller no
// longer needs the line, the next caller gets it.
func (r *repl) read(prompt string, secret bool) {
	r.keys.interrupted = false
	done := make(chan typed, 1)
	r.reading = done
	go func() {
		if secret {
			line, err := r.term.ReadPassword(prompt)
			done <- typed{line, err}
			return
		}
		line, err := r.term.ReadLine()
		done <- typed{line, err}
	}()
}

// Write implements [io.Writer]. It writes above the line that the user types.
func (r *repl) Write(b []byte) (int, error) {
	if r.typing {
		return r.term.Write(b)
	}
	return r.app.stdout.Write(b)
}

// show prints an event, unless it belongs to a turn of another command.
func (r *repl) show(ctx context.Context, e *spool.Event) error {
	if e.Turn != 0 && !r.mine[e.Turn] || e.Kind == spool.KindAsk {
		return nil
	}
	if err := r.printer.print(ctx, e); err != nil {
		return &writeError{err}
	}
	return nil
}

// run runs a cell.
func (r *repl) run(ctx context.Context, source string) error {
	sent, err := r.kernel.send(ctx, "", spool.Cell{Code: source, TimeoutMs: r.timeout, Keep: true})
	if err != nil {
		return err
	}
	r.mine[sent.Seq()] = true
	t := &turn{kernel: r.kernel, seq: sent.Seq()}
	var end turnEnd
	for end.done.Outcome == "" {
		select {
		case e, ok := <-r.events:
			if !ok {
				return r.ended()
			}
			if err := r.event(ctx, t, &end, &e); err != nil {
				return err
			}
		case s := <-r.signals:
			if err := t.signal(ctx, s); err != nil {
				return err
			}
		}
	}
	if r.printer.midline[spool.Stdout] {
		r.printer.setMidline(spool.Stdout, false)
		if _, err := fmt.Fprintln(r.app.stdout); err != nil {
			return err
		}
	}
	if end.exit != nil {
		return &exitError{code: *end.exit} // ends the REPL, also with code 0
	}
	return nil
}

// event handles one event while a cell runs.
func (r *repl) event(ctx context.Context, t *turn, end *turnEnd, e *spool.Event) error {
	if e.Turn == t.seq {
		if end.note(e) {
			return nil
		}
		if e.Kind == spool.KindAsk {
			return r.ask(ctx, t, end, e)
		}
	}
	return r.show(ctx, e)
}

// ask reads the user's answer to an ask of the cell.
func (r *repl) ask(ctx context.Context, t *turn, end *turnEnd, e *spool.Event) error {
	var ask spool.Ask
	if json.Unmarshal(e.Data, &ask) != nil || ask.Kind != spool.AskInput {
		return t.answer(ctx, e)
	}
	r.history.off = true
	line, _, err := r.line(ctx, ask.Prompt, ask.Secret, t.seq)
	r.history.off = false
	var over *turnDone
	switch {
	case errors.As(err, &over):
		end.note(&over.done)
		return nil
	case errors.Is(err, errTypedInterrupt):
		return t.interrupt(ctx, false)
	case errors.Is(err, io.EOF):
		return r.kernel.refuse(ctx, e.Seq, "EOF", "EOF when reading a line")
	case err != nil:
		return err
	}
	return r.kernel.reply(ctx, e.Seq, line, ask.Secret)
}

// keyReader reads keys. Ctrl-C clears the line and ends it.
type keyReader struct {
	f           *os.File
	rest        []byte
	interrupted bool
}

// The keys that clear a line: to its end, then back to its beginning.
const (
	ctrlC     = 'C' & 0x1f
	clearLine = "\x05\x15\r"
)

// feed has the next read return text as if the user typed it, unless keys wait.
func (k *keyReader) feed(text string) {
	if len(k.rest) == 0 {
		k.rest = []byte(text)
	}
}

// Read implements [io.Reader]. It returns no more than one line, so that the next
// line can begin with what feed adds.
func (k *keyReader) Read(b []byte) (int, error) {
	if len(k.rest) == 0 {
		buf := make([]byte, 4096)
		n, err := k.f.Read(buf)
		if n == 0 {
			return 0, err
		}
		k.rest = buf[:n]
	}
	if k.rest[0] == ctrlC {
		k.interrupted = true
		k.rest = append([]byte(clearLine), k.rest[1:]...)
	}
	n := len(k.rest)
	for i, c := range k.rest {
		if c == ctrlC {
			n = i
			break
		}
		if c == '\r' || c == '\n' {
			n = i + 1
			break
		}
	}
	n = copy(b, k.rest[:n])
	k.rest = k.rest[n:]
	return n, nil
}
