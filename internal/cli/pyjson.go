package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
)

// maxRequest bounds one request line: escapes can make source six times as
// long.
const maxRequest = 6*maxSource + 4096

// pyRequest is one line of spool py --json. What is not known is ignored.
type pyRequest struct {
	ID           json.RawMessage `json:"id"`
	Code         *string         `json:"code"`
	TimeoutMs    int64           `json:"timeout_ms"`
	Silent       bool            `json:"silent"`
	StoreHistory *bool           `json:"store_history"`

	Interrupt bool       `json:"interrupt"`
	Answer    *spool.Seq `json:"answer"`
	Data      any        `json:"data"`
	Error     askError   `json:"error"`
	Secret    bool       `json:"secret"`
	Restart   bool       `json:"restart"`
	Exit      bool       `json:"exit"`

	Stdin      *string `json:"stdin"`
	CloseStdin bool    `json:"close_stdin"`
	Kill       bool    `json:"kill"`
}

// askError is why an ask cannot be answered: a text, or an object with a code
// and a message.
type askError spool.AnswerError

// UnmarshalJSON implements [json.Unmarshaler].
func (e *askError) UnmarshalJSON(b []byte) error {
	if json.Unmarshal(b, &e.Message) == nil {
		return nil
	}
	return json.Unmarshal(b, (*spool.AnswerError)(e))
}

// pyServer serves requests of one command.
type pyServer struct {
	kernel *interpreter

	mu      sync.Mutex
	out     io.Writer
	line    []byte
	mine    map[spool.Seq]bool // turns that were begun here; true until they are done
	open    int                // of them
	settled chan struct{}      // closed when none is open; nil while nobody waits
	ended   bool               // the log is complete
}

func (a *app) pyJSON(ctx context.Context, k *interpreter, signals <-chan os.Signal) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &pyServer{kernel: k, out: a.stdout, mine: make(map[spool.Seq]bool)}
	followed := make(chan error, 1)
	go func() { followed <- s.follow(ctx) }()
	// It waits in a read that nothing can end, and dies with the process.
	served := make(chan error, 1)
	go func() { served <- s.serve(ctx, a.stdin) }()
	for {
		select {
		case err := <-followed: // the interpreter ended by itself
			return err
		case err := <-served:
			if err != nil {
				return err
			}
			if !k.own {
				return nil
			}
			if err := k.run.Stop(ctx); err != nil && !errors.Is(err, spool.ErrEnded) {
				return err
			}
			return <-followed
		case sig := <-signals:
			switch sig {
			case unix.SIGPIPE:
			case unix.SIGINT:
				if err := k.run.Interrupt(ctx); err != nil && !errors.Is(err, spool.ErrEnded) {
					return err
				}
			default:
				return exit(exitSignal + signalNumber(sig))
			}
		}
	}
}

// follow prints the events of the interpreter, and of a session those that
// have to do with this command.
func (s *pyServer) follow(ctx context.Context) error {
	for e, err := range s.kernel.run.Events(ctx, s.kernel.after) {
		if err != nil {
			if cause := context.Cause(ctx); cause != nil && ctx.Err() != nil {
				return cause
			}
			return err
		}
		if err := s.print(ctx, &e); err != nil {
			return &writeError{err}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.settle()
	return nil
}

func (s *pyServer) print(ctx context.Context, e *spool.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, mine := s.mine[e.Turn]
	_, begun := s.mine[e.Seq]
	if !s.kernel.own && !mine && !begun && (e.Turn != 0 || e.Kind == spool.KindInput) {
		return nil
	}
	if err := s.write(e); err != nil {
		return err
	}
	if ask := (spool.Ask{}); e.Kind == spool.KindAsk && s.kernel.serve != nil && json.Unmarshal(e.Data, &ask) == nil {
		go s.kernel.serve(ctx, s.kernel.run, e.Seq, &ask)
	}
	if e.Kind == spool.KindDone && s.mine[e.Turn] {
		s.mine[e.Turn] = false
		s.open--
		s.settle()
	}
	return nil
}

// settle tells who waits that no cell is open. Callers hold s.mu.
func (s *pyServer) settle() {
	if (s.open == 0 || s.ended) && s.settled != nil {
		close(s.settled)
		s.settled = nil
	}
}

// write writes one event. Callers hold s.mu.
func (s *pyServer) write(e *spool.Event) error {
	s.line = append(e.AppendJSON(s.line[:0]), '\n')
	_, err := s.out.Write(s.line)
	return err
}

// tell writes an event that is not in the log.
func (s *pyServer) tell(kind spool.Kind, payload any) error {
	data, err := json.Marshal(payload)
	if err != nil {
		return fmt.Errorf("encode %s: %w", kind, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.write(&spool.Event{Run: s.kernel.run.ID(), Time: time.Now(), Kind: kind, Data: data})
}

// serve does what the lines say. It returns nil when it is time to leave.
func (s *pyServer) serve(ctx context.Context, from io.Reader) error {
	in := bufio.NewReaderSize(from, 64<<10)
	for n := 1; ; n++ {
		line, err := readRequest(in)
		switch {
		case errors.Is(err, errLongRequest):
			if err := s.refuse(n, err); err != nil {
				return err
			}
			continue
		case err != nil && !errors.Is(err, io.EOF):
			return fmt.Errorf("read requests: %w", err)
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			leave, doErr := s.request(ctx, line)
			if doErr != nil {
				if doErr = s.refuse(n, doErr); doErr != nil {
					return doErr
				}
			}
			if leave {
				return s.leave(ctx, in)
			}
		}
		if err != nil {
			return s.wait(ctx)
		}
	}
}

// exitWait is how long an exit request waits for the cells before it, if
// requests may still come. Without any more to come they take their time.
const exitWait = 10 * time.Second

// leave returns once the cells before an exit request are done. Those who
// asked for it may still interrupt them and answer what they ask.
func (s *pyServer) leave(ctx context.Context, in *bufio.Reader) error {
	ended := make(chan struct{})
	// It waits in a read that nothing can end, and dies with the process.
	go func() {
		defer close(ended)
		for {
			line, err := readRequest(in)
			var r pyRequest
			if json.Unmarshal(line, &r) == nil && (r.Interrupt || r.Kill || r.Answer != nil) {
				_, _ = s.request(ctx, line) // nobody is left to be told
			}
			if err != nil && !errors.Is(err, errLongRequest) {
				return
			}
		}
	}()
	waited := make(chan error, 1)
	go func() { waited <- s.wait(ctx) }()
	timer := time.NewTimer(exitWait)
	defer timer.Stop()
	select {
	case err := <-waited:
		return err
	case <-ended:
		return <-waited
	case <-timer.C:
		return nil
	}
}

var errLongRequest = fmt.Errorf("the request is longer than %d bytes", maxRequest)

// readRequest reads one line; what is too long is read and dropped.
func readRequest(in *bufio.Reader) ([]byte, error) {
	var line []byte
	long := false
	for {
		part, err := in.ReadSlice('\n')
		if len(line)+len(part) > maxRequest {
			long, line = true, nil
		}
		if !long {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case long && (err == nil || errors.Is(err, io.EOF)):
			return nil, errLongRequest
		default:
			return line, err
		}
	}
}

// refuse answers a line that makes no sense, or cannot be done.
func (s *pyServer) refuse(n int, err error) error {
	return s.tell(python.KindException, python.Exception{Name: "ProtocolError", Message: fmt.Sprintf("line %d: %v", n, err)})
}

// wait returns once all cells are done.
func (s *pyServer) wait(ctx context.Context) error {
	s.mu.Lock()
	if s.settled == nil {
		s.settled = make(chan struct{})
	}
	settled := s.settled
	s.settle()
	s.mu.Unlock()
	select {
	case <-settled:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// request does what one line says.
func (s *pyServer) request(ctx context.Context, line []byte) (leave bool, err error) {
	var r pyRequest
	if err := json.Unmarshal(line, &r); err != nil {
		return false, err
	}
	run := s.kernel.run
	switch {
	case r.Exit:
		return true, nil
	case r.Code != nil:
		return false, s.cell(ctx, &r)
	case r.Answer != nil:
		data, err := json.Marshal(r.Data)
		if err != nil {
			return false, err
		}
		answer := spool.Answer{Ask: *r.Answer, Data: data}
		if r.Error != (askError{}) {
			answer.Error = (*spool.AnswerError)(&r.Error)
		}
		return false, run.Answer(ctx, answer, r.Secret)
	case r.Restart:
		return false, run.Control(ctx, spool.Control{Op: spool.ControlRestart})
	case r.Interrupt:
		return false, run.Interrupt(ctx)
	case r.Stdin != nil:
		_, err := io.WriteString(run.Stdin(ctx), *r.Stdin)
		return false, err
	case r.CloseStdin:
		return false, run.Stdin(ctx).Close()
	case r.Kill:
		return false, run.Control(ctx, spool.Control{Op: spool.ControlKill, Turn: s.oldest()})
	}
	return false, errors.New(`a request needs one of "code", "interrupt", "answer", "restart", "exit", "stdin", "close_stdin" and "kill"`)
}

// oldest is the turn that runs, of those that were begun here. Without one it
// is a turn that there is not.
func (s *pyServer) oldest() spool.Seq {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := spool.Seq(math.MaxUint64)
	for seq, open := range s.mine {
		if open {
			first = min(first, seq)
		}
	}
	return first
}

// cell begins a cell.
func (s *pyServer) cell(ctx context.Context, r *pyRequest) error {
	id, err := requestID(r.ID)
	if err != nil {
		return err
	}
	if r.TimeoutMs < 0 {
		return errors.New("timeout_ms must not be negative")
	}
	cell := spool.Cell{
		Code: *r.Code, Silent: r.Silent, TimeoutMs: r.TimeoutMs,
		NoHistory: r.StoreHistory != nil && !*r.StoreHistory,
	}
	// Its events may come before the receipt: they wait for the lock.
	s.mu.Lock()
	turn, err := s.kernel.send(ctx, id, cell)
	if err == nil && !turn.Repeated() {
		s.mine[turn.Seq()] = true
		s.open++
	}
	s.mu.Unlock()
	switch {
	case err != nil:
		// Whoever waits for the end of this cell must see one.
		return errors.Join(s.tell(spool.KindDone, spool.Done{ID: id, Outcome: spool.TurnKilled, Error: err.Error()}), nil)
	case turn.Repeated():
		return fmt.Errorf("a cell with id %q was run before, as turn %d; it is not run again", id, turn.Seq())
	}
	return nil
}

// requestID returns an id, which may be a string or a number.
func requestID(raw json.RawMessage) (string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", nil
	}
	var id string
	if json.Unmarshal(raw, &id) == nil {
		return id, nil
	}
	var n json.Number
	if json.Unmarshal(raw, &n) == nil {
		return n.String(), nil
	}
	return "", errors.New(`"id" must be a string or a number`)
}
