package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/prompt"
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
	editor  *prompt.Editor // nil on a dumb terminal
	keys    keyboard
	plain   *bufio.Reader // lines of a dumb terminal
	assist  *assist
	printer *printer
	signals <-chan os.Signal
	resized chan os.Signal
	events  chan spool.Event // events of the interpreter
	lost    error            // error of the reader; set before events is closed

	mine    map[spool.Seq]bool // turns of this command
	reading chan typed         // receives the line of a dumb terminal that is read; nil otherwise
	typing  bool               // the text is on the screen
	tail    []byte             // the last line of the output, if it has no end
	shows   pictures           // how the terminal shows images
	replied bool               // the terminal has said so
}

// repl reads cells and runs them until the user exits.
func (a *app) repl(ctx context.Context, k *interpreter, o *pyOptions, signals <-chan os.Signal) error {
	r := &repl{app: a, kernel: k, timeout: o.timeout.Milliseconds(), keys: newKeyboard(a.stdin), signals: signals,
		resized: make(chan os.Signal, 1), events: make(chan spool.Event), mine: make(map[spool.Seq]bool)}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.assist = &assist{ctx: ctx, run: k.run}
	r.assist.asks, _ = k.backend.(spool.Inspector)
	if os.Getenv("TERM") == "dumb" {
		r.plain = bufio.NewReader(a.stdin)
	} else {
		r.editor = prompt.New(prompt.Config{
			Screen: a.stdout, Size: r.size, Width: runeWidth, Colour: wantsColour(a.stdout), History: prompt.OpenHistory(a.historyFile()),
			Whole: completeSource, Indent: indentation, Complete: r.assist.complete,
			Reply: func(kind, text string) { r.replied = r.shows.reply(kind, text) || r.replied },
		})
		signal.Notify(r.resized, unix.SIGWINCH)
		defer signal.Stop(r.resized)
	}
	size, _ := terminalSize(a.stdin, a.stdout)
	var stdout, stderr io.Writer = r, r
	if !a.raw {
		stdout, stderr = &screenFilter{w: r}, &screenFilter{w: r}
	}
	r.printer = &printer{
		stdout: stdout, stderr: stderr, blobs: k.run, rows: int(size.Rows), images: &imageFiles{dir: o.images},
		colour: wantsColour(a.stdout),
	}
	if r.shows = knownPictures(); r.plain != nil {
		r.printer.rows = 0 // nothing on the screen can be replaced
	} else {
		r.printer.inline = r.picture
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

// size returns the size of the terminal.
func (r *repl) size() (columns, rows int) {
	if size, ok := terminalSize(r.app.stdin, r.app.stdout); ok {
		return int(size.Cols), int(size.Rows)
	}
	return 80, 24
}

// cell reads one cell.
func (r *repl) cell(ctx context.Context) (string, error) {
	read := r.plainCell
	if r.editor != nil {
		read = r.editedCell
	}
	for {
		source, err := read(ctx)
		switch {
		case errors.Is(err, errTypedInterrupt):
			if _, err := fmt.Fprintln(r.app.stdout, "KeyboardInterrupt"); err != nil {
				return "", err
			}
			continue
		case err == nil && len(source) > maxSource:
			return "", fmt.Errorf("the cell is longer than %d bytes", maxSource)
		}
		return source, err
	}
}

// editedCell reads one cell with the editor.
func (r *repl) editedCell(ctx context.Context) (string, error) {
	return r.edit(ctx, prompt.Mode{First: promptFirst, More: promptMore}, 0)
}

// plainCell reads one cell of a dumb terminal.
func (r *repl) plainCell(ctx context.Context) (string, error) {
	source, prompt := "", promptFirst
	for {
		line, err := r.plainLine(ctx, prompt, false, 0)
		if err != nil {
			return "", err
		}
		source += line
		if completeSource(source) || len(source) > maxSource {
			return source, nil
		}
		source += "\n"
		prompt = promptMore
	}
}

// errTypedInterrupt reports that the user typed Ctrl-C.
var errTypedInterrupt = errors.New("interrupted")

// typed is a line of a dumb terminal, or an error.
type typed struct {
	line string
	err  error
}

// escapeWait is how long the rest of an escape sequence may take to arrive.
const escapeWait = 50 * time.Millisecond

// edit has the user edit a text and prints events above it meanwhile. If the text
// answers an ask, turn names the turn of the ask.
func (r *repl) edit(ctx context.Context, mode prompt.Mode, turn spool.Seq) (string, error) {
	raw, err := makeRaw(r.app.stdin)
	if err != nil {
		return "", fmt.Errorf("set up the terminal: %w", err)
	}
	defer func() { raw.restore() }()
	r.editor.Start(mode)
	r.typing, r.tail = true, nil
	defer func() {
		r.editor.Stop()
		r.typing = false
	}()
	text, state := r.editor.Next() // the keys that wait
	for {
		switch state {
		case prompt.Accepted:
			return text, nil
		case prompt.Interrupted:
			return "", errTypedInterrupt
		case prompt.Ended:
			return "", io.EOF
		case prompt.Suspended:
			raw.restore()
			if err := unix.Kill(0, unix.SIGTSTP); err != nil {
				return "", fmt.Errorf("suspend: %w", err)
			}
			if raw, err = makeRaw(r.app.stdin); err != nil {
				return "", fmt.Errorf("set up the terminal: %w", err)
			}
			r.editor.Resume()
		}
		var late <-chan time.Time
		if r.editor.Partial() {
			late = time.After(escapeWait)
		}
		select {
		case b := <-r.keys.read():
			if r.keys.waits = false; b.err != nil {
				return "", b.err
			}
			r.editor.Feed(b.bytes)
			text, state = r.editor.Next()
		case <-late:
			text, state = r.editor.Flush()
		case <-r.resized:
			r.editor.Resize()
			state = prompt.Editing
		case e, ok := <-r.events:
			state = prompt.Editing
			if err := r.between(ctx, &e, ok, turn); err != nil {
				return "", err
			}
		case s := <-r.signals:
			state = prompt.Editing
			if s != unix.SIGPIPE && s != unix.SIGINT { // Ctrl-C is a key, not a signal
				return "", exit(exitSignal + signalNumber(s))
			}
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// between handles an event that comes while the user types.
func (r *repl) between(ctx context.Context, e *spool.Event, ok bool, turn spool.Seq) error {
	if !ok {
		return r.ended()
	}
	if err := r.show(ctx, e); err != nil {
		return err
	}
	if e.Kind == spool.KindDone && e.Turn == turn {
		return &turnDone{*e}
	}
	return nil
}

// plainLine reads one line of a dumb terminal, which echoes and edits by itself.
func (r *repl) plainLine(ctx context.Context, prompt string, secret bool, turn spool.Seq) (string, error) {
	if _, err := fmt.Fprint(r.app.stdout, prompt); err != nil {
		return "", err
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
	for {
		select {
		case t := <-r.reading:
			r.reading = nil
			return t.line, t.err
		case e, ok := <-r.events:
			if err := r.between(ctx, &e, ok, turn); err != nil {
				return "", err
			}
		case s := <-r.signals:
			switch s {
			case unix.SIGPIPE:
			case unix.SIGINT:
				return "", errTypedInterrupt
			default:
				return "", exit(exitSignal + signalNumber(s))
			}
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// turnDone reports that a turn ended before its ask was answered.
type turnDone struct{ done spool.Event }

func (o *turnDone) Error() string { return "the cell ended" }

// Write implements [io.Writer]. It writes above the text that the user types.
func (r *repl) Write(b []byte) (int, error) {
	if r.typing && r.editor != nil {
		r.editor.Above(b)
		return len(b), nil
	}
	if i := bytes.LastIndexByte(b, '\n'); i >= 0 {
		r.tail = append(r.tail[:0], b[i+1:]...)
	} else if r.tail = append(r.tail, b...); len(r.tail) > maxTail {
		r.tail = nil // no prompt
	}
	return r.app.stdout.Write(b)
}

// maxTail limits the text before the prompt of input() on the same line.
const maxTail = 4096

// show prints an event, unless it belongs to a turn of another command.
func (r *repl) show(ctx context.Context, e *spool.Event) error {
	if e.Turn != 0 && !r.mine[e.Turn] || e.Kind == spool.KindAsk && !asksAboutHost(e) {
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
		if e.Kind == spool.KindAsk && !asksAboutHost(e) {
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
	line, err := r.question(ctx, &ask, t.seq)
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

// picturesWait is how long a terminal may take to say whether it shows images. Almost
// every terminal answers, and it is asked once.
const picturesWait = 5 * time.Second

// picture shows an image. The first image asks the terminal whether it can.
func (r *repl) picture(mime string, data []byte) bool {
	if r.shows == unknownPictures && !r.typing {
		r.askForPictures()
	}
	if r.shows == unknownPictures || r.shows == noPictures {
		return false
	}
	b, err := r.shows.sequence(mime, data)
	if err != nil {
		return false
	}
	_, err = r.Write(append(b, '\n'))
	return err == nil
}

// askForPictures asks the terminal and waits for its reply. The keys that come
// meanwhile are for the next prompt.
func (r *repl) askForPictures() {
	raw, err := makeRaw(r.app.stdin) // else the terminal shows its reply
	if err != nil {
		r.shows = noPictures
		return
	}
	defer raw.restore()
	if _, err := io.WriteString(r.app.stdout, prompt.Questions); err != nil {
		r.shows = noPictures
		return
	}
	late := time.After(picturesWait)
	for !r.replied {
		select {
		case b := <-r.keys.read():
			r.keys.waits = false
			if b.err != nil {
				r.shows = noPictures
				return
			}
			r.editor.Feed(b.bytes)
			r.editor.Replies()
		case <-late:
			r.shows = noPictures
			return
		}
	}
}

// question has the user answer an ask. The prompt follows what the cell printed on
// the same line.
func (r *repl) question(ctx context.Context, ask *spool.Ask, turn spool.Seq) (string, error) {
	if r.editor == nil {
		return r.plainLine(ctx, ask.Prompt, ask.Secret, turn)
	}
	text := string(r.tail) + ask.Prompt
	if i := strings.LastIndexByte(text, '\n'); i >= 0 {
		if _, err := r.Write([]byte(ask.Prompt[:len(ask.Prompt)-(len(text)-i-1)])); err != nil {
			return "", err
		}
		text = text[i+1:]
	}
	if !r.app.raw {
		var b bytes.Buffer
		_, _ = (&screenFilter{w: &b}).Write([]byte(text)) // a buffer takes everything
		text = b.String()
	}
	if _, err := io.WriteString(r.app.stdout, "\r"); err != nil { // the prompt repeats the line
		return "", err
	}
	line, err := r.edit(ctx, prompt.Mode{First: text, Line: true, Secret: ask.Secret}, turn)
	r.printer.setMidline(spool.Stdout, false)
	return line, err
}

// keyboard reads a terminal, one piece at a time. A read cannot be cancelled: what
// the user types after the caller has gone is for the next caller.
type keyboard struct {
	f     *os.File
	typed chan keystrokes
	waits bool // a read is under way
}

// keystrokes are what a read returned.
type keystrokes struct {
	bytes []byte
	err   error
}

func newKeyboard(f *os.File) keyboard { return keyboard{f: f, typed: make(chan keystrokes, 1)} }

// read returns a channel for the next keys. The caller sets waits to false once it
// has received them.
func (k *keyboard) read() <-chan keystrokes {
	if !k.waits {
		k.waits = true
		go func() {
			buf := make([]byte, 4096)
			n, err := k.f.Read(buf)
			if n > 0 {
				err = nil
			}
			k.typed <- keystrokes{buf[:n], err}
		}()
	}
	return k.typed
}
