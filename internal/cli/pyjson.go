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

// maxRequest is the maximum size of a request line. JSON escapes make source up
// to six times longer.
const maxRequest = 6*maxSource + 4096

// pyRequest is one line of spool py --json. Unknown fields are ignored.
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

	Stdin       *string `json:"stdin"`
	StdinBase64 []byte  `json:"stdin_base64"`
	CloseStdin  bool    `json:"close_stdin"`
	Kill        bool    `json:"kill"`
}

// askError is an error that answers an ask: a text, or an object with a code and
// a message.
type askError spool.AnswerError

// UnmarshalJSON implements [json.Unmarshaler].
func (e *askError) UnmarshalJSON(b []byte) error {
	if json.Unmarshal(b, &e.Message) == nil {
		return nil
	}
	return json.Unmarshal(b, (*spool.AnswerError)(e))
}

// pyServer serves the requests on stdin of one command.
type pyServer struct {
	kernel *interpreter
	stdin  requestStdin

	mu      sync.Mutex
	out     io.Writer
	line    []byte
	mine    map[spool.Seq]bool // turns of this command; true until they are done
	open    int                // number of true values in mine
	settled chan struct{}      // closed when open is zero; nil while wait is not called
	ended   bool               // the log is complete
}

func (a *app) pyJSON(ctx context.Context, k *interpreter, signals <-chan os.Signal) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &pyServer{kernel: k, out: a.stdout, mine: make(map[spool.Seq]bool)}
	s.stdin.lines = k.asksForInput
	followed := make(chan error, 1)
	go func() { followed <- s.follow(ctx) }()
	// The read cannot be cancelled; the goroutine ends with the process.
	served := make(chan error, 1)
	go func() { served <- s.serve(ctx, a.stdin) }()
	for {
		select {
		case err := <-followed: // the interpreter ended
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

// follow prints the events of the interpreter; of a session only those of this
// command's turns and of no turn.
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
	if e.Kind == spool.KindAsk && s.stdin.lines {
		s.stdin.asked(ctx, s.kernel, e)
	}
	if e.Kind == spool.KindDone && s.mine[e.Turn] {
		s.mine[e.Turn] = false
		s.open--
		s.settle()
	}
	return nil
}

// settle wakes wait if no cell is open. Callers hold s.mu.
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

// emit writes an event that is not in the log.
func (s *pyServer) emit(kind spool.Kind, payload any) error {
	data, err := json.Marshal(payload)
	if err != nil {
		return fmt.Errorf("encode %s: %w", kind, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.write(&spool.Event{Run: s.kernel.run.ID(), Time: time.Now(), Kind: kind, Data: data})
}

// serve handles the requests. It returns nil after an exit request, or when
// stdin has ended and all cells are done.
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

// exitWait is how long an exit request waits for the cells before it while stdin
// is open. After the end of stdin it waits without a limit.
const exitWait = 10 * time.Second

// leave returns once the cells before an exit request are done. Meanwhile it
// handles requests that interrupt, kill and answer.
func (s *pyServer) leave(ctx context.Context, in *bufio.Reader) error {
	ended := make(chan struct{})
	// The read cannot be cancelled; the goroutine ends with the process.
	go func() {
		defer close(ended)
		for {
			line, err := readRequest(in)
			var r pyRequest
			if json.Unmarshal(line, &r) == nil && (r.Interrupt || r.Kill || r.Answer != nil) {
				_, _ = s.request(ctx, line) // the command is exiting
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

// readRequest reads one line. It reads and drops a line that is too long.
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

// refuse reports a request that is malformed or failed.
func (s *pyServer) refuse(n int, err error) error {
	return s.emit(python.KindException, python.Exception{Name: "ProtocolError", Message: fmt.Sprintf("line %d: %v", n, err)})
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

// request handles one request.
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
		return false, s.stdin.write(ctx, run, []byte(*r.Stdin))
	case r.StdinBase64 != nil:
		return false, s.stdin.write(ctx, run, r.StdinBase64)
	case r.CloseStdin:
		return false, s.stdin.close(ctx, run)
	case r.Kill:
		return false, run.Control(ctx, spool.Control{Op: spool.ControlKill, Turn: s.oldest()})
	}
	return false, errors.New(`a request needs one of "code", "interrupt", "answer", "restart", "exit", "stdin", "stdin_base64", "close_stdin" and "kill"`)
}

// oldest returns the oldest open turn of this command, which is the one that
// runs. Without one it returns a seq that no turn has.
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

// cell sends a cell to the interpreter.
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
	// Events of the turn may arrive before Exec returns; print waits for s.mu.
	s.mu.Lock()
	turn, err := s.kernel.send(ctx, id, cell)
	if err == nil && !turn.Repeated() {
		s.mine[turn.Seq()] = true
		s.open++
	}
	s.mu.Unlock()
	switch {
	case err != nil:
		// The client waits for a done event of every cell.
		return errors.Join(s.emit(spool.KindDone, spool.Done{ID: id, Outcome: spool.TurnKilled, Error: err.Error()}), nil)
	case turn.Repeated():
		return fmt.Errorf("a cell with id %q was run before, as turn %d; it is not run again", id, turn.Seq())
	}
	return nil
}

// requestID decodes an id, which is a string or a number.
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
