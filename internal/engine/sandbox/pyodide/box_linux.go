//go:build amd64 || arm64

package pyodide

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/engine/sandbox/vfs"
)

// box is a context: an interpreter, or one after the other.
type box struct {
	setup   *setup
	group   *group
	options guest.Options
	once    sync.Once

	account engine.Account // what the interpreters used that have ended

	mu     sync.Mutex
	ended  []*process  // which are not in the account yet
	proc   *process    // nil between fresh interpreters, and before the first
	files  *vfs.Server // of proc
	turn   *turn       // that runs now
	stop   context.CancelFunc
	closed bool
}

var _ interface {
	guest.Context
	guest.Interrupter
	guest.Accountable
} = (*box)(nil)

// request begins a script.
type request struct {
	Memory int64             `json:"memory"`
	Renew  *guest.BootConfig `json:"renew,omitempty"` // in a new interpreter
	Script guest.Script      `json:"script"`
}

// Run executes one script.
func (b *box) Run(ctx context.Context, s guest.Script, h guest.Host) (guest.Result, error) {
	began := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return guest.Result{}, errClosed
	}
	b.stop = cancel
	p := b.proc
	b.mu.Unlock()
	if p != nil {
		select {
		case <-p.exited: // between scripts
			b.lose(p)
			p = nil
		default:
		}
	}
	for try := 1; ; try++ {
		result, err := b.attempt(ctx, p, s, h, began)
		if errors.Is(err, errStuck) && try < maxTries && ctx.Err() == nil {
			p = nil
			continue
		}
		return result, err
	}
}

// attempt executes a script in a process, or a new one if that is nil.
func (b *box) attempt(ctx context.Context, p *process, s guest.Script, h guest.Host, began time.Time) (guest.Result, error) {
	r := request{Memory: b.options.Memory, Script: s}
	if p == nil {
		var err error
		if p, err = b.begin(ctx); err != nil {
			if ctx.Err() != nil {
				return killed(), nil
			}
			return guest.Result{}, err
		}
		seed := make([]byte, 32)
		_, _ = rand.Read(seed) // never fails
		r.Renew = &guest.BootConfig{Env: b.options.Env, Cwd: b.options.Cwd, Seed: hex.EncodeToString(seed), Fresh: b.options.Fresh}
	}
	turn := &turn{box: b, proc: p, host: h, began: began}
	if info := p.loaded(); r.Renew != nil && info != nil {
		turn.startup.Interpreter = milliseconds(info.LoadMs)
		turn.startup.PackageLoad = milliseconds(info.PackagesMs)
		turn.startup.Packages = info.Packages
	}
	stop := context.AfterFunc(ctx, func() {
		p.kill()
		_ = p.conn.SetDeadline(time.Unix(1, 0))
	})
	b.setTurn(turn)
	result, err := turn.run(ctx, r)
	b.setTurn(nil)
	if !stop() || result.Lost || err != nil || b.options.Fresh {
		b.lose(p)
	}
	if ctx.Err() != nil && result.Lost {
		return killed(), nil
	}
	return result, err
}

func (b *box) setTurn(t *turn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turn = t
}

// milliseconds is a time that the runner measured.
func milliseconds(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// An interpreter that has not begun its script after startTime never will: Run
// kills it and tries another one, as nothing of the script has run yet.
const (
	startTime = 20 * time.Second
	maxTries  = 3
)

var errStuck = errors.New("the interpreter did not start the script in time")

func killed() guest.Result {
	return guest.Result{ExitCode: guest.ExitKilled, EndedBy: guest.Killed, Lost: true}
}

// begin gets the box an interpreter.
func (b *box) begin(ctx context.Context) (*process, error) {
	p, err := b.setup.process(ctx, b.group, b.options.Memory)
	if errors.Is(err, errGone) {
		// The whole group ended, for example because its supervisor was
		// killed. Start a new one.
		var n *group
		if n, _, err = b.setup.acquire(ctx, nil); err == nil {
			b.setup.release(b.group)
			b.group = n
			p, err = b.setup.process(ctx, n, b.options.Memory)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("get an interpreter: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		p.end()
		return nil, errClosed
	}
	b.proc, b.files = p, vfs.NewServer(b.options.FS, b.options.OpenFiles)
	return p, nil
}

// lose ends an interpreter.
func (b *box) lose(p *process) {
	p.end()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.proc == p {
		_ = b.files.Close() // the interpreter has ended
		b.proc, b.files = nil, nil
		b.ended = append(b.ended, p)
	}
	for len(b.ended) > 0 && b.ended[0].isGone() { // so that there are few
		b.account.Add(b.ended[0].used())
		b.ended = b.ended[1:]
	}
}

// Settle ends the interpreter and adds up what all of them used.
func (b *box) Settle() *spool.ProcessUse {
	b.mu.Lock()
	p := b.proc
	b.mu.Unlock()
	if p != nil {
		b.lose(p)
	}
	b.mu.Lock()
	ended := b.ended
	b.ended = nil
	b.mu.Unlock()
	timer := time.NewTimer(exitTime)
	defer timer.Stop()
	for _, p := range ended {
		select {
		case <-p.exited:
			b.account.Add(p.used())
		case <-timer.C:
			return nil
		}
	}
	return b.account.Used()
}

// Interrupt raises KeyboardInterrupt in the script that runs.
func (b *box) Interrupt() error {
	b.mu.Lock()
	p, t := b.proc, b.turn
	b.mu.Unlock()
	if p == nil {
		return nil
	}
	if err := p.alarm(); err != nil {
		return err
	}
	if t != nil {
		t.interrupt()
	}
	return nil
}

// Close ends the interpreter.
func (b *box) Close() error {
	b.mu.Lock()
	b.closed = true
	p, stop := b.proc, b.stop
	b.mu.Unlock()
	if stop != nil {
		stop()
	}
	if p != nil {
		p.end()
	}
	b.once.Do(func() { b.setup.release(b.group) })
	return nil
}

// private returns the size of the interpreter's private memory.
func (b *box) private(ctx context.Context) (int64, error) {
	b.mu.Lock()
	p := b.proc
	b.mu.Unlock()
	if p == nil {
		return 0, nil
	}
	return p.private(ctx)
}

// turn is one script being executed.
type turn struct {
	box     *box
	proc    *process
	host    guest.Host
	began   time.Time
	startup guest.Startup
	stuck   atomic.Bool // it did not begin in time
	replies *replies
	input   []byte

	mu          sync.Mutex
	interrupted bool               // and no wait has ended for it yet
	cancel      context.CancelFunc // ends the wait for the host; nil without
}

// interrupt ends the wait of the script for its host, or the next one: Python may know
// of the interrupt already, and wait before it raises the exception.
func (t *turn) interrupt() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.interrupted = true
	if t.cancel != nil {
		t.cancel()
	}
}

// wait calls a function of the host that waits, unless the script was interrupted
// before. It reports false for that, and if it was interrupted meanwhile.
func (t *turn) wait(ctx context.Context, call func(context.Context)) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t.mu.Lock()
	before := t.interrupted
	t.interrupted = false
	if !before {
		t.cancel = cancel
	}
	t.mu.Unlock()
	if before {
		return false
	}
	call(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cancel = nil
	return !t.interrupted
}

// run sends the script and serves the interpreter until it is done.
func (t *turn) run(ctx context.Context, r request) (guest.Result, error) {
	msg, err := json.Marshal(r)
	if err != nil {
		return guest.Result{}, fmt.Errorf("encode script: %w", err)
	}
	if len(msg) > maxScript {
		return guest.Result{}, fmt.Errorf("the script is larger than %d bytes", maxScript)
	}
	late := time.AfterFunc(startTime, func() {
		t.stuck.Store(true)
		_ = t.proc.conn.SetDeadline(time.Unix(1, 0))
	})
	defer late.Stop()
	t.replies = newReplies(t.proc.conn)
	if err := t.replies.send(msg); err != nil {
		return t.broken(ctx, err)
	}
	for {
		fr, err := t.proc.frames.next()
		if err != nil {
			return t.broken(ctx, err)
		}
		switch fr.op {
		case opStdout:
			t.host.Write(guest.Stdout, fr.payload)
		case opStderr:
			t.host.Write(guest.Stderr, fr.payload)
		case opStarted:
			if t.startup.Duration == 0 && late.Stop() {
				t.startup.Duration = time.Since(t.began)
				t.host.Started(t.startup)
			}
		case opDone:
			return result(fr.payload)
		case opFailed:
			return guest.Result{ExitCode: guest.ExitKilled, EndedBy: guest.Crashed, Reason: string(fr.payload), Lost: true}, nil
		case opStdin:
			err = t.read(ctx, fr.payload)
		case opAsk:
			err = t.ask(ctx, fr.payload)
		case opFile:
			err = t.replies.file(t.box.files, fr.payload)
		default:
			err = ErrProtocol
		}
		if err != nil {
			return t.broken(ctx, err)
		}
	}
}

// result decodes the result that an interpreter reports. A script can forge its
// own result, and no more than that.
func result(b []byte) (guest.Result, error) {
	var said guest.BootResult
	if err := json.Unmarshal(b, &said); err != nil {
		return guest.Result{ExitCode: guest.ExitKilled, EndedBy: guest.Crashed, Reason: "it does not say how the script ended", Lost: true}, nil
	}
	r := guest.Result{ExitCode: said.ExitCode & 0xff, Value: said.Value, Exception: said.Exception}
	if said.OutOfMemory {
		r.EndedBy, r.Reason = guest.Memory, "MemoryError"
	}
	return r, nil
}

func (t *turn) read(ctx context.Context, payload []byte) error {
	if len(payload) < 4 {
		return ErrProtocol
	}
	want := min(binary.LittleEndian.Uint32(payload), maxFrame)
	if cap(t.input) < int(want) {
		t.input = make([]byte, want)
	}
	var n int
	var err error
	called := t.wait(ctx, func(ctx context.Context) { n, err = t.host.Read(ctx, t.input[:want]) })
	switch {
	case n == 0 && !called && ctx.Err() == nil:
		return t.replies.send([]byte{inputInterrupted})
	case err != nil && !errors.Is(err, io.EOF):
		return err
	}
	return t.replies.end(append(append(t.replies.begin(), inputRead), t.input[:n]...))
}

// The first byte of an answer to a read of standard input.
const (
	inputRead = iota // what was read follows, or nothing at the end
	inputInterrupted
)

func (t *turn) ask(ctx context.Context, payload []byte) error {
	if len(payload) < 4 {
		return ErrProtocol
	}
	n, rest := binary.LittleEndian.Uint32(payload), payload[4:]
	if uint64(n) > uint64(len(rest)) {
		return ErrProtocol
	}
	var reply []byte // stays empty if the script was interrupted before it asked
	t.wait(ctx, func(ctx context.Context) { reply = t.host.Ask(ctx, string(rest[:n]), rest[n:]) })
	return t.replies.send(reply)
}

// exitTime bounds the wait for the exit report of an interpreter.
const exitTime = 10 * time.Second

// broken explains why the connection to an interpreter ended.
func (t *turn) broken(ctx context.Context, err error) (guest.Result, error) {
	r := guest.Result{ExitCode: guest.ExitKilled, EndedBy: guest.Crashed, Lost: true}
	if ctx.Err() != nil {
		return killed(), nil
	}
	if t.stuck.Load() && t.startup.Duration == 0 {
		r.Reason = errStuck.Error()
		return r, errStuck
	}
	if errors.Is(err, ErrProtocol) {
		r.Reason = err.Error()
		return r, nil
	}
	timer := time.NewTimer(exitTime)
	defer timer.Stop()
	select {
	case <-t.proc.exited:
	case <-timer.C:
		r.Reason = "the interpreter closed its connection but did not exit: " + err.Error()
		return r, nil
	case <-ctx.Done():
		return killed(), nil
	}
	exit := t.proc.exit
	if exit.What == isRefused {
		return r, fmt.Errorf("get an interpreter: %s", exit.Text)
	}
	r.Reason = "the interpreter ended: " + exit.ending()
	// A process that runs out of memory outside of Python crashes without a
	// message. Its peak memory tells.
	if more := exit.MaxRSS - t.proc.group.rss; more > t.box.options.Memory/4*3 {
		r.EndedBy = guest.Memory
	}
	return r, nil
}

// ending says how a process ended.
func (r report) ending() string {
	text := r.Text
	switch {
	case text != "":
	case r.Signal != 0:
		text = unix.SignalName(unix.Signal(r.Signal))
	default:
		text = fmt.Sprintf("exit status %d", r.Code)
	}
	if r.Said != "" {
		text += ": " + r.Said
	}
	return text
}
