package execserver_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/wire/execserver"
)

// later is a backend whose starts end when the test says so.
type later struct {
	spool.Backend
	starts chan func(spool.Info, error) (reads bool)
}

func (b *later) TryStart(_ spool.Spec, done func(spool.Info, error, func()) bool) bool {
	b.starts <- func(info spool.Info, err error) bool { return done(info, err, func() {}) }
	return true
}

func (b *later) TryExecute(_ spool.Spec, done func(spool.Info, error)) bool {
	b.starts <- func(info spool.Info, err error) bool { done(info, err); return false }
	return true
}

// stdioClient is a client on standard input and output.
type stdioClient struct {
	in    io.WriteCloser
	out   *bufio.Reader
	ended chan error // what the server returned
}

func (b *later) serve(t *testing.T) *stdioClient {
	t.Helper()
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	server := execserver.New(execserver.Options{Backend: b, Keep: true})
	c := &stdioClient{toServer, bufio.NewReader(fromServer), make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { c.ended <- server.ServeStdio(ctx, in, out) }()
	t.Cleanup(func() {
		cancel()
		_ = fromServer.Close()
		server.Close()
	})
	c.send(t, `{"id":0,"method":"initialize","params":{"clientName":"raw"}}`)
	c.receive(t)
	c.send(t, `{"method":"initialized"}`)
	return c
}

func (c *stdioClient) send(t *testing.T, line string) {
	t.Helper()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		t.Fatal(err)
	}
}

// receive returns an answer of the server, and the run in it.
func (c *stdioClient) receive(t *testing.T) (r response, info spool.Info) {
	t.Helper()
	line, err := c.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &r)
	}
	if err == nil && r.Error == nil {
		err = json.Unmarshal(r.Result, &info)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r, info
}

// TestStartsThatWait checks what becomes of starts that wait without a goroutine: each is
// answered by its result, in any order, beyond a number of them others are handled by a
// goroutine, and those of a client that has left have no reader.
func TestStartsThatWait(t *testing.T) {
	const most = 256
	b := &later{newHost(t), make(chan func(spool.Info, error) bool, most)}
	c := b.serve(t)
	execute := func(id int) {
		c.send(t, fmt.Sprintf(`{"id":%d,"method":"run/execute","params":{"id":"run%d","argv":["true"]}}`, id, id))
	}
	for i := range most {
		execute(i + 1)
	}
	var waiting []func(spool.Info, error) bool
	for range most {
		waiting = append(waiting, <-b.starts)
	}
	execute(most + 1)
	if got, run := c.receive(t); got.ID != most+1 || run.ID != "run257" {
		t.Fatalf("one too many: %+v", got)
	}
	go waiting[1](spool.Info{ID: "run2", State: spool.StateClosed, Outcome: &spool.Outcome{Kind: spool.Exited, Code: 7}}, nil)
	if got, run := c.receive(t); got.ID != 2 || run.ID != "run2" || run.Outcome.ExitCode() != 7 {
		t.Errorf("a run that ended: %+v", got)
	}
	go waiting[0](spool.Info{}, &spool.StartError{Reason: "not_found", Err: errors.New("nothing there")})
	if got, _ := c.receive(t); got.ID != 1 || got.Error == nil || !strings.Contains(got.Error.Message, "nothing there") {
		t.Errorf("a start that failed: %+v", got)
	}

	for follow := range 2 {
		c.send(t, fmt.Sprintf(`{"id":%d,"method":"run/start_follow","params":{"spec":{"id":"read%d","argv":["true"]},"follow":%d}}`, 500+follow, follow, follow+1))
	}
	started, left := <-b.starts, <-b.starts
	reads := make(chan bool)
	go func() { reads <- started(spool.Info{ID: "read0"}, nil) }()
	if got, run := c.receive(t); got.ID != 500 || run.ID != "read0" || !<-reads {
		t.Errorf("a start with a reader: %+v", got)
	}
	if err := c.in.Close(); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, c.out) }()
	if err := <-c.ended; err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if left(spool.Info{ID: "read1"}, nil) {
		t.Error("a client that has left has a reader")
	}
	waiting[2](spool.Info{ID: "run3"}, nil) // nobody is there to answer
}
