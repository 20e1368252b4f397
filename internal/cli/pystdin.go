package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"unicode/utf8"

	"github.com/spool-run/spool"
)

// requestStdin is the standard input that requests of --json carry. A sandbox has
// a standard input. A kernel asks for lines instead: they are kept here, and
// answer its input() in order. A client that sends none answers itself.
type requestStdin struct {
	lines bool // the run asks for lines

	mu    sync.Mutex
	data  []byte
	ended bool
	asks  []pendingInput
}

// pendingInput is an ask that waits for a line.
type pendingInput struct {
	kernel *interpreter
	seq    spool.Seq
}

// write adds input.
func (s *requestStdin) write(ctx context.Context, run *spool.Run, b []byte) error {
	if !s.lines {
		_, err := run.Stdin(ctx).Write(b)
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.data = append(s.data, b...)
	return s.answer(ctx)
}

// close ends the input.
func (s *requestStdin) close(ctx context.Context, run *spool.Run) error {
	if !s.lines {
		return run.Stdin(ctx).Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	return s.answer(ctx)
}

// asked answers an ask for a line, now or when there is one.
func (s *requestStdin) asked(ctx context.Context, k *interpreter, e *spool.Event) {
	var a spool.Ask
	if json.Unmarshal(e.Data, &a) != nil || a.Kind != spool.AskInput {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asks = append(s.asks, pendingInput{k, e.Seq})
	_ = s.answer(ctx) // if it fails, the run has ended
}

// answer answers asks with lines as long as there are both. Callers hold s.mu.
func (s *requestStdin) answer(ctx context.Context) error {
	for len(s.asks) > 0 {
		end := bytes.IndexByte(s.data, '\n')
		if end < 0 && !s.ended {
			return nil
		}
		line, rest := s.data, []byte(nil)
		if end >= 0 {
			line, rest = s.data[:end], s.data[end+1:]
		}
		a := spool.Answer{Ask: s.asks[0].seq}
		if end < 0 && len(line) == 0 {
			a.Error = &spool.AnswerError{Code: "EOF", Message: "EOF when reading a line"}
		} else {
			var err error
			if a.Data, err = encodeLine(line); err != nil {
				return err
			}
		}
		err := s.asks[0].kernel.run.Answer(ctx, a, false)
		s.asks = s.asks[1:]
		switch {
		case errors.Is(err, spool.ErrNotAsked): // the client answered it; the line is for the next
		case err != nil:
			return err
		default:
			s.data = rest
		}
	}
	return nil
}

// encodeLine makes the answer to input() of a line: text if it is, else bytes.
func encodeLine(line []byte) (json.RawMessage, error) {
	var answer any = string(line)
	if !utf8.Valid(line) {
		answer = map[string][]byte{"base64": line}
	}
	data, err := json.Marshal(answer)
	if err != nil {
		return nil, fmt.Errorf("encode answer: %w", err)
	}
	return data, nil
}
