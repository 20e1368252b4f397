package execserver_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"iter"
	"net"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/wire/execserver"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// nowhere is a backend that accepts every start and runs nothing.
type nowhere struct{}

func (nowhere) Start(context.Context, spool.Spec) (spool.Info, error) {
	return spool.Info{ID: "r", State: spool.StateClosed, Last: 2}, nil
}

func (nowhere) Stat(context.Context, spool.RunID) (spool.Info, error) {
	return spool.Info{}, spool.ErrNotFound
}

func (nowhere) List(context.Context, spool.Filter) iter.Seq2[spool.Info, error] {
	return func(func(spool.Info, error) bool) {}
}

func (nowhere) Read(context.Context, spool.RunID, spool.Query) (spool.Page, error) {
	return spool.Page{}, spool.ErrNotFound
}

func (nowhere) Follow(context.Context, spool.RunID, spool.Seq) iter.Seq2[spool.Event, error] {
	return func(yield func(spool.Event, error) bool) { yield(spool.Event{}, spool.ErrNotFound) }
}

func (nowhere) Send(context.Context, spool.RunID, spool.Input) (spool.Receipt, error) {
	return spool.Receipt{}, spool.ErrInputClosed
}

func (nowhere) Control(context.Context, spool.RunID, spool.Control) error { return spool.ErrEnded }

func (nowhere) Blob(context.Context, spool.RunID, spool.Digest) (io.ReadCloser, error) {
	return nil, spool.ErrNotFound
}

// FuzzServer sends arbitrary lines to a connection. The server must survive
// them: on this connection, or on another where the dialect ends this one.
func FuzzServer(f *testing.F) {
	for _, seed := range []string{
		`{"id":1,"method":"process/start","params":{"processId":"p","argv":["x"],"cwd":"file:///","env":{"A":"b"},"tty":false,"envPolicy":{"inherit":"all","ignoreDefaultExcludes":true,"exclude":[],"set":{},"includeOnly":[]},"metadata":{"threadId":"01a1dc83-0000-7000-8000-000000000001"}}}`,
		`{"id":1,"method":"process/read","params":{"processId":"p","afterSeq":1,"maxBytes":2,"waitMs":3}}`,
		`{"id":1,"method":"process/write","params":{"processId":"p","chunk":"aGk=","writeId":"1"}}`,
		`{"id":1,"method":"process/signal","params":{"processId":"p","signal":"interrupt"}}` + "\n" + `{"id":2,"method":"process/terminate","params":{"processId":"p"}}`,
		`{"id":1,"method":"run/start","params":{"argv":["x"],"tty":{"rows":1,"cols":2},"limits":{"wall_ms":5}}}`,
		`{"id":1,"method":"run/follow","params":{"follow":1,"run":"r","window_bytes":-1}}` + "\n" + `{"method":"run/ack","params":{"follow":1,"bytes":-5}}` + "\n" + `{"method":"run/unfollow","params":{"follow":1}}`,
		`{"id":1,"method":"run/send","params":{"run":"r","input":{"kind":"stdin","bytes":"aGk="}}}`,
		`{"id":1,"method":"run/resize","params":{"run":"r","rows":1,"cols":99999}}`,
		`{"id":1,"method":"run/read","params":{"run":"r","maxBytes":-1,"waitMs":-1}}`,
		`{"id":1,"method":"run/list","params":{"filter":{"labels":{"a":""}},"after":"x"}}`,
		`{"id":1,"method":"environment/info","params":{}}` + "\n" + `{"id":1,"method":"initialize","params":{"clientName":"x","resumeSessionId":""}}`,
		`{"id":1,"result":{}}`, `{"method":"x"}`, `{"method":"initialized"}`, `{`, `[1,2`, "\xff", `{"id":1,"method":"process/start","params":[null,{}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var lines [][]byte
		for line := range bytes.SplitSeq(data, []byte("\n")) {
			m, err := rpc.Parse(line)
			if err == nil && (strings.HasPrefix(m.Method, "fs/") || strings.HasPrefix(m.Method, "http/") || strings.HasPrefix(m.Method, "capabilit")) {
				continue // they have effects outside the test
			}
			lines = append(lines, line)
		}
		s := execserver.New(execserver.Options{Backend: nowhere{}})
		defer s.Close()
		if !survives(t, s, lines) && !survives(t, s, nil) {
			t.Fatal("the server accepts no more connections")
		}
	})
}

// survives sends lines over a new connection and reports whether the server
// answers a request after them.
func survives(t *testing.T, s *execserver.Server, lines [][]byte) bool {
	client, server := net.Pipe()
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.ServeStdio(context.Background(), server, server) // the fuzzed lines may end the connection
	}()
	go func() {
		for _, line := range append([][]byte{
			[]byte(`{"id":0,"method":"initialize","params":{"clientName":"fuzz"}}`), []byte(`{"method":"initialized"}`),
		}, append(lines, []byte(`{"id":"the last","method":"environment/status"}`))...) {
			if _, err := client.Write(append(bytes.Clone(line), '\n')); err != nil {
				return
			}
		}
	}()
	defer func() {
		client.Close()
		<-served
	}()
	r := bufio.NewReaderSize(client, 1<<20)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return false
		}
		m, err := rpc.Parse(line)
		if err != nil {
			t.Fatalf("the server said %q: %v", line, err)
		}
		if string(m.ID) == `"the last"` {
			return true
		}
	}
}
