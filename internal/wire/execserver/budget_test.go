package execserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/servertest"
	"github.com/spool-run/spool/internal/wire/execserver"
)

// logLines is a log that a test waits on.
type logLines chan string

func newLog() (*slog.Logger, logLines) {
	lines := make(logLines, 1<<16) // a server must not wait for the test
	return slog.New(slog.NewTextHandler(lines, nil)), lines
}

func (l logLines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// wait returns the next line with the text.
func (l logLines) wait(t *testing.T, text string) string {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case line := <-l:
			if strings.Contains(line, text) {
				return line
			}
		case <-timeout:
			t.Fatalf("no %q in the log", text)
		}
	}
}

// bigRun starts a process that writes size bytes and waits for its end.
func bigRun(t *testing.T, p *peer, size int) spool.RunID {
	t.Helper()
	var info spool.Info
	p.mustCall(t, "run/start", map[string]any{"argv": []string{"/bin/sh", "-c", fmt.Sprintf("yes 0123456 | head -c %d", size)}}, &info)
	var r struct {
		Next int64
		Info spool.Info
	}
	for r.Info.State != spool.StateClosed {
		p.mustCall(t, "run/read", map[string]any{"run": info.ID, "after": r.Next, "max_bytes": 1, "wait_ms": 10_000}, &r)
		if last := int64(r.Info.Last); r.Info.State != spool.StateClosed && r.Next < last {
			r.Next = last
		}
	}
	return info.ID
}

// readAll reads a run page by page and returns its bytes and the pages.
func readAll(t *testing.T, p *peer, run spool.RunID) (size int64, pages int) {
	t.Helper()
	var after spool.Seq
	for {
		var r struct {
			Events []spool.Event
			Next   spool.Seq
			Info   spool.Info
		}
		p.mustCall(t, "run/read", map[string]any{"run": run, "after": after, "max_bytes": 8 << 20}, &r)
		for i := range r.Events {
			if r.Events[i].Seq != after+1 {
				t.Fatalf("seq %d after %d", r.Events[i].Seq, after)
			}
			after = r.Events[i].Seq
			size += int64(len(r.Events[i].Bytes))
		}
		pages++
		if r.Next != after {
			t.Fatalf("next is %d after %d", r.Next, after)
		}
		if r.Info.State == spool.StateClosed && after == r.Info.Last {
			return size, pages
		}
	}
}

// TestUnreadAnswersAreBounded asks for 60 large reads and reads none of the
// answers. The server holds little of them, serves another client meanwhile,
// runs a control request of the same client, and sends all answers once the
// client reads.
func TestUnreadAnswersAreBounded(t *testing.T) {
	url, _ := newServer(t, execserver.Options{})
	p, _ := session(t, url)
	const size = 2 << 20
	run := bigRun(t, p, size)
	var victim spool.Info
	p.mustCall(t, "run/start", map[string]any{"argv": []string{"sleep", "1000"}}, &victim)

	c := dialRaw(t, url)
	c.initialize(t)
	before := heap()
	const reads = 32
	for i := range reads {
		c.send(t, encode(t, i+1, "run/read", map[string]any{"run": run, "max_bytes": 8 << 20}))
	}
	c.send(t, encode(t, reads+1, "run/control", map[string]any{"run": victim.ID, "control": map[string]any{"op": "kill"}}))
	p.mustCall(t, "run/read", map[string]any{"run": victim.ID, "wait_ms": 60_000}, &struct{}{}) // it ends: the kill got through
	if n, _ := readAll(t, p, run); n != size {
		t.Fatalf("another client read %d bytes, want %d", n, size)
	}
	if grown := heap() - before; grown > 64<<20 {
		t.Fatalf("the heap grew by %d MiB", grown>>20)
	}
	left := make(map[string]bool)
	for i := range reads + 1 {
		left[fmt.Sprintf(`{"id":%d,"result":`, i+1)] = true
	}
	for len(left) > 0 {
		b, _ := c.message(t)
		i := bytes.Index(b, []byte(`"result":`))
		if i < 0 || !left[string(b[:i+len(`"result":`)])] {
			t.Fatalf("answer %.200s", b)
		}
		delete(left, string(b[:i+len(`"result":`)]))
	}
}

// TestNoRoomMeansShortAnswers leaves no shared room at all: reads and follows
// of a client that reads still give everything, in small pieces.
func TestNoRoomMeansShortAnswers(t *testing.T) {
	t.Parallel()
	url, _ := newServer(t, execserver.Options{Limits: execserver.Limits{UnreadTotal: 1}})
	p, _ := session(t, url)
	const size = 3 << 20
	run := bigRun(t, p, size)
	if n, pages := readAll(t, p, run); n != size || pages < 10 {
		t.Errorf("read %d bytes in %d pages, want %d in many", n, pages, size)
	}
	p.mustCall(t, "process/start", shell("p", fmt.Sprintf("head -c %d /dev/zero; exit 7", size)), nil)
	total := 0
	for _, note := range p.closed(t, "p") {
		var n struct{ Params struct{ Chunk []byte } }
		if err := json.Unmarshal(note, &n); err != nil {
			t.Fatal(err)
		}
		total += len(n.Params.Chunk)
	}
	if total != size {
		t.Errorf("%d bytes were pushed, want %d", total, size)
	}
	// A client that allows more than there is room for must not take a short
	// answer for all there is.
	var after uint64
	for total = 0; ; {
		var r readResult
		p.mustCall(t, "process/read", map[string]any{"processId": "p", "afterSeq": after, "maxBytes": 16 << 20}, &r)
		total += len(r.text())
		if after = r.NextSeq - 1; r.Closed {
			if total != size || r.ExitCode == nil || *r.ExitCode != 7 {
				t.Errorf("closed after %d bytes with %v", total, r.ExitCode)
			}
			break
		}
		if len(r.Chunks) == 0 {
			t.Fatalf("no progress after %d", after)
		}
	}
}

// TestStalledConnectionIsClosed stops reading. The server closes the connection
// and says why; the session and its run go on, and the client continues after a
// reconnect without a loss.
func TestStalledConnectionIsClosed(t *testing.T) {
	log, lines := newLog()
	url, h := newServer(t, execserver.Options{
		Logger: log, Detached: time.Hour, Closed: time.Hour, Limits: execserver.Limits{Stalled: 500 * time.Millisecond},
	})
	c := dialRaw(t, url)
	id := c.initialize(t)
	const size = 12 << 20 // more than the buffers of the connection
	c.send(t, encode(t, 1, "process/start", shell("p", fmt.Sprintf("head -c %d /dev/zero; exit 3", size))))
	c.answer(t, 1)
	line := lines.wait(t, "closed a connection")
	if !strings.Contains(line, "the client does not read") || !strings.Contains(line, "127.0.0.1") {
		t.Errorf("the log has %s", line)
	}
	if info := waitClosed(t, h); info.Bytes != size || info.Outcome.Code != 3 {
		t.Errorf("the run has %d bytes, %v", info.Bytes, info.Outcome)
	}
	p := dialPeer(t, url)
	if got := p.initialize(t, id); got != id {
		t.Fatalf("session %s, want %s", got, id)
	}
	total, after := 0, uint64(0)
	for {
		var r readResult
		p.mustCall(t, "process/read", map[string]any{"processId": "p", "afterSeq": after, "maxBytes": 1 << 20}, &r)
		for _, chunk := range r.Chunks {
			if chunk.Seq != after+1 {
				t.Fatalf("seq %d after %d", chunk.Seq, after)
			}
			after = chunk.Seq
			total += len(chunk.Chunk)
		}
		if r.Closed && len(r.Chunks) == 0 {
			break
		}
	}
	if total != size {
		t.Errorf("read %d bytes, want %d", total, size)
	}
}

// TestSlowReaderIsNotStalled reads a little at a time, for longer than the
// limit in all. A machine that is too busy to read in time gets a longer limit.
func TestSlowReaderIsNotStalled(t *testing.T) {
	for limit := 2 * time.Second; ; limit *= 4 {
		err := readSlowly(t, limit)
		if err == nil {
			return
		}
		if limit > 30*time.Second {
			t.Fatal(err)
		}
		t.Logf("with a limit of %v: %v", limit, err)
	}
}

// readSlowly reads the output of a process for a little longer than a client may stall.
func readSlowly(t *testing.T, limit time.Duration) error {
	t.Helper()
	log, lines := newLog()
	url, _ := newServer(t, execserver.Options{Logger: log, Limits: execserver.Limits{Stalled: limit}})
	c := dialRaw(t, url)
	c.initialize(t)
	const size, part = 24 << 20, 256 << 10
	c.send(t, encode(t, 1, "process/start", shell("p", fmt.Sprintf("head -c %d /dev/zero", size))))
	c.answer(t, 1)
	begin := time.Now()
	tick := time.NewTicker(limit / (size / part * 5 / 6))
	defer tick.Stop()
	buf := make([]byte, part)
	for n := 0; n < size; <-tick.C {
		m, err := c.r.Read(buf)
		if err != nil {
			return fmt.Errorf("after %d bytes and %v: %w", n, time.Since(begin), err)
		}
		n += m
	}
	select {
	case line := <-lines:
		return errors.New(line)
	default:
		return nil
	}
}

func TestHandshakeHasADeadline(t *testing.T) {
	t.Parallel() // it waits
	log, lines := newLog()
	const limit = 5 * time.Second // enough for a handshake on a busy machine
	url, _ := newServer(t, execserver.Options{Logger: log, Limits: execserver.Limits{Handshake: limit}})
	good, _ := session(t, url)
	silent := dialPeer(t, url)
	half := dialPeer(t, url)
	half.send(t, websocket.MessageText, []byte(`{"id":1,"method":"initialize","params":{"clientName":"x"}}`))
	half.response(t)
	chatty := dialPeer(t, url) // sends other requests all the time
	go func() {
		for chatty.conn.Write(context.Background(), websocket.MessageText, []byte(`{"id":1,"method":"environment/status"}`)) == nil {
			select {
			case <-chatty.answers:
			case <-chatty.done:
				return
			}
		}
	}()
	silent.ended(t)
	half.ended(t)
	<-chatty.done
	if line := lines.wait(t, "closed a connection"); !strings.Contains(line, "handshake") {
		t.Errorf("the log has %s", line)
	}
	good.mustCall(t, "environment/status", nil, nil)
}

func TestTooManyConnections(t *testing.T) {
	log, lines := newLog()
	url, _ := newServer(t, execserver.Options{Logger: log, Limits: execserver.Limits{Connections: 2}})
	a, _ := session(t, url)
	b, _ := session(t, url)
	_, resp, err := websocket.Dial(t.Context(), url, nil)
	if err == nil || resp == nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Fatalf("a third connection: %v, %v", resp, err)
	}
	lines.wait(t, "too many connections")
	b.mustCall(t, "environment/status", nil, nil)
	_ = a.conn.CloseNow()
	polltest.Until(t, "aware of the end", func() bool {
		c, _, err := websocket.Dial(t.Context(), url, nil)
		if err == nil {
			_ = c.CloseNow()
		}
		return err == nil
	})
}

// TestRequestsPerConnection fills a connection with requests that wait. A
// further one is not read until one of them is answered; a control request
// before it is.
func TestRequestsPerConnection(t *testing.T) {
	url, _ := newServer(t, execserver.Options{Limits: execserver.Limits{Requests: 2}})
	p, _ := session(t, url)
	p.mustCall(t, "process/start", shell("p", "exec sleep 1000"), nil)
	p.mustCall(t, "process/start", shell("q", "exec sleep 1000"), nil)
	p.request(t, "process/read", map[string]any{"processId": "p", "waitMs": 3_600_000})
	p.request(t, "process/read", map[string]any{"processId": "q", "waitMs": 3_600_000})
	terminate := p.request(t, "process/terminate", map[string]any{"processId": "p"})
	third := p.request(t, "process/read", map[string]any{"processId": "p"})
	blocked := p.request(t, "process/terminate", map[string]any{"processId": "q"})
	want := map[int]bool{terminate: true, third: true, blocked: true}
	for len(want) > 0 {
		delete(want, p.response(t).ID)
	}
}

// TestRequestsOfAllConnectionsAreBounded uses all room for requests with input
// that a process does not read. A large request of another client waits for
// room; a small one and a kill do not.
func TestRequestsOfAllConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	const limit, chunk = 4 << 20, 1 << 20 // a chunk takes 4/3 of it as base64, in a buffer of 2 MiB
	s := execserver.New(execserver.Options{Backend: newHost(t), Limits: execserver.Limits{Received: limit, Handshake: time.Hour}})
	s.SetWaits(0, 0, time.Hour)
	url := serve(t, s)
	a, _ := session(t, url)
	stuck := shell("p", "exec sleep 1000")
	stuck["pipeStdin"] = true
	a.mustCall(t, "process/start", stuck, nil)
	const sends = 6
	var wg sync.WaitGroup
	wg.Go(func() { // the run takes the first, and the server holds as many as it may
		data, _ := json.Marshal(make([]byte, chunk))
		for i := range sends {
			_ = a.conn.Write(t.Context(), websocket.MessageText, fmt.Appendf(nil,
				`{"id":%d,"method":"process/write","params":{"processId":"p","writeId":"%[1]d","chunk":%[2]s}}`, 100+i, data))
		}
	})
	b, _ := session(t, url)
	c, _ := session(t, url)
	a.response(t)                     // the process has the first
	for crowded := false; !crowded; { // until one waits
		c.mustCall(t, "environment/status", nil, nil)
		_, crowded = s.Received()
	}
	name := filepath.Join(t.TempDir(), "file")
	large := b.request(t, "fs/writeFile", map[string]any{"path": "file://" + name, "dataBase64": make([]byte, chunk)})
	c.mustCall(t, "environment/status", nil, nil)
	if used, crowded := s.Received(); !crowded || used > limit+3*chunk {
		t.Errorf("the server holds %d bytes, crowded %v", used, crowded)
	}
	if _, err := os.Stat(name); err == nil {
		t.Error("the large request did not wait")
	}
	var list struct{ Runs []spool.Info }
	c.mustCall(t, "run/list", map[string]any{}, &list)
	c.mustCall(t, "run/control", map[string]any{"run": list.Runs[0].ID, "control": map[string]any{"op": "kill"}}, nil)
	if r := b.response(t); r.ID != large || r.Error != nil {
		t.Errorf("the large request: %+v", r)
	}
	for range sends - 1 {
		a.response(t)
	}
	wg.Wait()
	for used := int64(1); used != 0; used, _ = s.Received() { // an answer is sent just before its room is free
		c.mustCall(t, "environment/status", nil, nil)
	}
}

// TestBytesOfRequestsPerConnection sends one connection more input than it may
// hold, for a process that does not read. The server stops reading the
// connection.
func TestBytesOfRequestsPerConnection(t *testing.T) {
	t.Parallel()
	const inFlight = 4 << 20
	const chunk, message = 3 * inFlight / 32, inFlight / 8 // base64
	s := execserver.New(execserver.Options{Backend: newHost(t), Limits: execserver.Limits{Received: 1 << 30, Handshake: time.Hour}})
	s.SetWaits(0, 0, time.Hour)
	s.SetInFlight(inFlight)
	url := serve(t, s)
	a, _ := session(t, url)
	stuck := shell("p", "exec sleep 1000")
	stuck["pipeStdin"] = true
	a.mustCall(t, "process/start", stuck, nil)
	data, err := json.Marshal(make([]byte, chunk))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	sent, total := 0, 16*inFlight/message // far more than buffers of the network hold
	ctx, cancel := context.WithCancel(t.Context())
	wg.Go(func() {
		for ; sent < total; sent++ {
			m := fmt.Appendf(nil, `{"id":%d,"method":"process/write","params":{"processId":"p","writeId":"%[1]d","chunk":%[2]s}}`, 100+sent, data)
			if a.conn.Write(ctx, websocket.MessageText, m) != nil {
				return // the connection is closed below
			}
		}
	})
	b, _ := session(t, url)
	var most int64
	polltest.Until(t, "a full budget of requests", func() bool {
		used, _ := s.Received()
		most = max(most, used) // buffers are up to twice as large as a message
		b.mustCall(t, "environment/status", nil, nil)
		return most >= inFlight
	})
	for range 100 { // it holds no more
		used, _ := s.Received()
		most = max(most, used)
		b.mustCall(t, "environment/status", nil, nil)
	}
	cancel()
	_ = a.conn.CloseNow()
	wg.Wait()
	if sent == total || most > 2*inFlight+4*message {
		t.Errorf("%d of %d messages were sent, the server held %d bytes", sent, total, most)
	}
}

// TestSlowHeaderIsClosed sends the beginning of an HTTP request and no more.
func TestSlowHeaderIsClosed(t *testing.T) {
	s := servertest.Start(t, t.TempDir(), "--handshake-for", "200ms")
	c, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "ws://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n")); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection stays open: %q, %v", b, err)
	}
}
