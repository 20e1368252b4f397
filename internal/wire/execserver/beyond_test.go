package execserver_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	fastjson "github.com/segmentio/encoding/json"
	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/internal/leaktest"
	"github.com/spool-run/spool/internal/servertest"
	"github.com/spool-run/spool/internal/wire/execserver"
	"github.com/spool-run/spool/internal/wire/execserver/fileuri"
)

// The tests in this file check improvements over the reference: each is a
// weakness of codex exec-server that our server must not have.

// TestMain is also the main function of the processes of sandboxes.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == isolate.Role {
		os.Exit(isolate.Work(os.Args[2:]))
	}
	leaktest.Main(cleaningUp{m})
}

type cleaningUp struct{ m *testing.M }

func (c cleaningUp) Run() int { return servertest.Main(c.m) }

// shell returns the params of a process/start that runs a script.
func shell(id, script string) map[string]any {
	return map[string]any{
		"processId": id, "argv": []string{"/bin/sh", "-c", script}, "cwd": "file:///",
		"env": map[string]string{"PATH": os.Getenv("PATH")}, "tty": false, "pipeStdin": false,
	}
}

func encode(t *testing.T, id int, method string, params any) string {
	t.Helper()
	b, err := json.Marshal(params)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`{"id":%d,"method":%q,"params":%s}`, id, method, b)
}

type readResult struct {
	Chunks []struct {
		Seq    uint64
		Stream string
		Chunk  []byte
	}
	NextSeq  uint64
	Exited   bool
	ExitCode *int
	Closed   bool
	Failure  *string
}

func (r *readResult) text() string {
	var b strings.Builder
	for _, c := range r.Chunks {
		b.Write(c.Chunk)
	}
	return b.String()
}

// of returns the text of one stream.
func (r *readResult) of(stream string) string {
	var b strings.Builder
	for _, c := range r.Chunks {
		if c.Stream == stream {
			b.Write(c.Chunk)
		}
	}
	return b.String()
}

// session connects, performs the handshake and returns the session id.
func session(t *testing.T, url string) (*peer, string) {
	t.Helper()
	p := dialPeer(t, url)
	return p, p.initialize(t, nil)
}

// waitOutput waits until a process has written the text.
func waitOutput(t *testing.T, p *peer, process, text string) {
	t.Helper()
	var after uint64
	for seen := ""; !strings.Contains(seen, text); {
		var r readResult
		p.mustCall(t, "process/read", map[string]any{"processId": process, "afterSeq": after, "waitMs": 10_000}, &r)
		if seen += r.text(); r.Closed && len(r.Chunks) == 0 {
			t.Fatalf("%s ended without %q: %q", process, text, seen)
		}
		after = r.NextSeq - 1
	}
}

func TestEventsAreSentInOrder(t *testing.T) {
	url, _ := newServer(t, execserver.Options{})
	p, _ := session(t, url)
	const processes = 40
	for i := range processes {
		p.request(t, "process/start", shell(fmt.Sprint(i), "for i in 1 2 3 4 5 6 7 8; do echo out $i; echo err $i >&2; done; (echo late) & exit 3"))
	}
	for range processes {
		if r := p.response(t); r.Error != nil {
			t.Fatal(r.Error)
		}
	}
	for i := range processes {
		p.closed(t, fmt.Sprint(i))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, order := range p.order {
		for i, seq := range order {
			if seq != uint64(i+1) {
				t.Fatalf("process %s: events arrived as %v", id, order)
			}
		}
	}
}

func TestReadServesAllOutputInPages(t *testing.T) {
	t.Parallel()
	url, h := newServer(t, execserver.Options{})
	c := dialRaw(t, url)
	c.initialize(t)
	const size = 34 << 20 // more than the reference keeps, and more than fits into one answer
	c.send(t, encode(t, 1, "process/start", shell("p", fmt.Sprintf("head -c %d /dev/zero", size))))
	c.answer(t, 1)
	waitClosed(t, h)
	total, after, pages := 0, uint64(0), 0
	for id := 2; ; id++ {
		c.send(t, encode(t, id, "process/read", map[string]any{"processId": "p", "afterSeq": after}))
		answer, bytes, frame := c.answer(t, id)
		if bytes > 64<<20 || frame > 16<<20 {
			t.Errorf("an answer of %d bytes with a frame of %d", bytes, frame)
		}
		var r readResult
		if err := fastjson.Unmarshal(answer.Result, &r); err != nil {
			t.Fatal(err)
		}
		for _, chunk := range r.Chunks {
			if chunk.Seq != after+1 {
				t.Fatalf("seq %d after %d", chunk.Seq, after)
			}
			after = chunk.Seq
			total += len(chunk.Chunk)
		}
		pages++
		if r.Closed {
			if r.NextSeq != after+3 || !r.Exited {
				t.Errorf("the last page ends at %d after %d, exited %v", r.NextSeq, after, r.Exited)
			}
			break
		}
		if r.NextSeq != after+1 || r.Exited {
			t.Fatalf("page %d ends at %d after %d, exited %v", pages, r.NextSeq, after, r.Exited)
		}
	}
	if total != size || pages < 2 {
		t.Errorf("%d bytes in %d pages", total, pages)
	}
}

// waitClosed waits until the only run of a host is closed.
func waitClosed(t *testing.T, h *host.Host) spool.Info {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for info, err := range h.List(ctx, spool.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if _, err := spool.Attach(h, info.ID).Wait(ctx); err != nil {
			t.Fatal(err)
		}
		if info, err = h.Stat(ctx, info.ID); err != nil {
			t.Fatal(err)
		}
		return info
	}
	t.Fatal("no run")
	return spool.Info{}
}

func TestStalledClientNeverStallsTheChild(t *testing.T) {
	url, h := newServer(t, execserver.Options{})
	c := dialRaw(t, url)
	c.initialize(t)
	const size = 128 << 20
	before := heap()
	c.send(t, encode(t, 1, "process/start", shell("p", fmt.Sprintf("head -c %d /dev/zero", size))))
	c.answer(t, 1) // read nothing after it
	info := waitClosed(t, h)
	if info.Bytes != size || info.Outcome.Code != 0 {
		t.Errorf("the child wrote %d bytes: %v", info.Bytes, info.Outcome)
	}
	if grown := heap() - before; grown > 32<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestTerminateOvertakesALongPoll(t *testing.T) {
	url, _ := newServer(t, execserver.Options{})
	p, _ := session(t, url)
	p.mustCall(t, "process/start", shell("p", "exec sleep 1000"), nil)
	poll := p.request(t, "process/read", map[string]any{"processId": "p", "waitMs": 3_600_000})
	terminate := p.request(t, "process/terminate", map[string]any{"processId": "p"})
	for range 2 { // if terminate had to wait, an hour later
		switch r := p.response(t); {
		case r.ID == terminate && string(r.Result) == `{"running":true}`:
		case r.ID == poll && r.Error == nil:
		default:
			t.Errorf("answer %+v", r)
		}
	}
}

func TestTerminateOvertakesABlockedWrite(t *testing.T) {
	url, _ := newServer(t, execserver.Options{})
	p, _ := session(t, url)
	params := shell("p", "exec sleep 1000")
	params["pipeStdin"] = true
	p.mustCall(t, "process/start", params, nil)
	waiting := make(map[int]bool)
	for i := range 6 {
		id := p.request(t, "process/write", map[string]any{"processId": "p", "writeId": fmt.Sprint(i), "chunk": make([]byte, 512<<10)})
		waiting[id] = true
	}
	// The first write is accepted; later ones find no space.
	first := p.response(t)
	if string(first.Result) != `{"status":"accepted"}` {
		t.Fatalf("the first write: %+v", first)
	}
	delete(waiting, first.ID)
	terminate := p.request(t, "process/terminate", map[string]any{"processId": "p"})
	waiting[terminate] = true
	for len(waiting) > 0 { // if terminate had to wait for the writes, for ever
		r := p.response(t)
		delete(waiting, r.ID)
		if r.Error != nil {
			t.Errorf("answer %+v", r)
		}
	}
	p.closed(t, "p")
}

func TestPipelinedRequestsWhileOutputFlows(t *testing.T) {
	t.Parallel()
	url, _ := newServer(t, execserver.Options{})
	c := dialRaw(t, url)
	c.initialize(t)
	for i := range 4 {
		c.send(t, encode(t, 1000+i, "process/start", shell(fmt.Sprint(i), "exec yes")))
	}
	const requests = 600
	methods := []string{
		`"method":"environment/status"`, `"method":"nonsense"`, `"method":"fs/getMetadata","params":{"path":"file:///"}`,
		`"method":"process/read","params":{"processId":"0","maxBytes":1}`, `"method":"process/write","params":{"processId":"0","writeId":"1","chunk":""}`,
	}
	for i := range requests { // without reading the answers meanwhile
		c.send(t, fmt.Sprintf(`{"id":%d,%s}`, i+1, methods[i%len(methods)]))
	}
	for i := range 4 {
		c.send(t, encode(t, 2000+i, "process/terminate", map[string]any{"processId": fmt.Sprint(i)}))
	}
	left := make(map[int]bool)
	for i := range requests {
		left[i+1] = true
	}
	for len(left) > 0 {
		b, _ := c.message(t)
		if bytes.HasPrefix(b, []byte(`{"method"`)) {
			continue
		}
		var r response
		if err := json.Unmarshal(b, &r); err != nil {
			t.Fatal(err)
		}
		delete(left, r.ID)
	}
}

// newProbingServer serves a host like newServer, and soon gives up a connection
// that does not answer a ping.
func newProbingServer(t *testing.T) (url string) {
	t.Helper()
	s := execserver.New(execserver.Options{Backend: newHost(t), Limits: execserver.Limits{Handshake: time.Hour, Stalled: time.Hour}})
	s.SetWaits(100*time.Millisecond, time.Hour, time.Hour)
	return serve(t, s)
}

func TestDeadConnectionReleasesItsSession(t *testing.T) {
	for name, script := range map[string]string{"idle": "exec sleep 1000", "stalled in the middle of output": "exec yes"} {
		t.Run(name, func(t *testing.T) {
			url := newProbingServer(t)
			c := dialRaw(t, url)
			id := c.initialize(t)
			c.send(t, encode(t, 1, "process/start", shell("p", script)))
			c.answer(t, 1) // reads nothing after this and answers no pings
			p := dialPeer(t, url)
			if got := p.initialize(t, id); got != id {
				t.Errorf("session %s instead of %s", got, id)
			}
			var r struct{ Running bool }
			p.mustCall(t, "process/terminate", map[string]any{"processId": "p"}, &r)
			if !r.Running {
				t.Error("the process did not survive")
			}
		})
	}
}

// TestTakeoverUnblocksTheOldConnection fills a connection with unanswered
// requests until the server stops reading it. When another connection takes the
// session over, the old one must end.
func TestTakeoverUnblocksTheOldConnection(t *testing.T) {
	url := newProbingServer(t)
	c := dialRaw(t, url)
	id := c.initialize(t)
	c.send(t, encode(t, 1, "process/start", shell("p", "exec sleep 1000")))
	c.answer(t, 1)
	for i := range 4200 { // more than may be in flight
		c.send(t, encode(t, 2+i, "process/read", map[string]any{"processId": "p", "waitMs": 3_600_000}))
	}
	p := dialPeer(t, url)
	p.initialize(t, id)
	if _, err := c.r.Discard(1 << 30); err == nil {
		t.Error("the old connection is still open")
	}
}

// TestNoDelay inspects the sockets a server accepted: without TCP_NODELAY a
// small message waits for the acknowledgement of the previous one.
func TestNoDelay(t *testing.T) {
	var mu sync.Mutex
	var conns []net.Conn
	s := execserver.New(execserver.Options{Backend: newHost(t)})
	web := httptest.NewUnstartedServer(s)
	web.Config.ConnState = func(c net.Conn, state http.ConnState) {
		if state == http.StateNew {
			mu.Lock()
			defer mu.Unlock()
			conns = append(conns, c)
		}
	}
	web.Start()
	defer web.Close()
	defer s.Close()
	session(t, strings.Replace(web.URL, "http", "ws", 1))
	mu.Lock()
	defer mu.Unlock()
	if len(conns) != 1 {
		t.Fatalf("%d connections", len(conns))
	}
	raw, err := conns[0].(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var on int
	var optErr error
	if err := raw.Control(func(fd uintptr) { on, optErr = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NODELAY) }); err != nil || optErr != nil {
		t.Fatal(err, optErr)
	}
	if on == 0 {
		t.Error("TCP_NODELAY is off")
	}
}

func TestLargeAnswersAreFragmented(t *testing.T) {
	t.Parallel()
	url, _ := newServer(t, execserver.Options{})
	file := filepath.Join(t.TempDir(), "large")
	content := bytes.Repeat([]byte("0123456789abcde\n"), 13<<20/16)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	c := dialRaw(t, url)
	c.initialize(t)
	c.send(t, encode(t, 1, "fs/readFile", map[string]any{"path": fileuri.Format(file)}))
	answer, _, frame := c.answer(t, 1)
	want := base64.StdEncoding.AppendEncode([]byte(`{"dataBase64":"`), content)
	if want = append(want, `"}`...); !bytes.Equal(answer.Result, want) {
		t.Error("the file changed on the way")
	}
	if frame > 16<<20 {
		t.Errorf("a frame of %d bytes", frame)
	}
	// A file that does not fit into a message is refused with a hint.
	if err := os.Truncate(file, 49<<20); err != nil {
		t.Fatal(err)
	}
	c.send(t, encode(t, 2, "fs/readFile", map[string]any{"path": fileuri.Format(file)}))
	answer, _, _ = c.answer(t, 2)
	if answer.Error == nil || answer.Error.Code != -32603 || !strings.Contains(answer.Error.Message, "fs/readBlock") {
		t.Errorf("error %v", answer.Error)
	}
}

func TestProcessIDIsFreeAfterTheWindow(t *testing.T) {
	url, _ := newServer(t, execserver.Options{Closed: 100 * time.Millisecond})
	p, _ := session(t, url)
	p.mustCall(t, "process/start", shell("p", "echo one"), nil)
	p.closed(t, "p")
	for {
		err := p.call(t, "process/read", map[string]any{"processId": "p"}, nil)
		if code(err) == -32600 && strings.Contains(err.Error(), "unknown process id p") {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var status struct{ Status string }
	p.mustCall(t, "process/write", map[string]any{"processId": "p", "writeId": "1", "chunk": ""}, &status)
	if status.Status != "unknownProcess" {
		t.Errorf("write: %s", status.Status)
	}
	p.mustCall(t, "process/start", shell("p", "echo two; exec sleep 1000"), nil) // it must not be forgotten as well
	waitOutput(t, p, "p", "two")
}

// slowStart is a backend whose starts wait for a channel.
type slowStart struct {
	spool.Backend
	starting chan struct{}
	proceed  chan struct{}
}

func (b *slowStart) Start(ctx context.Context, spec spool.Spec) (spool.Info, error) {
	b.starting <- struct{}{}
	<-b.proceed
	return b.Backend.Start(ctx, spec)
}

func TestTerminateCancelsAStart(t *testing.T) {
	h := newHost(t)
	slow := &slowStart{h, make(chan struct{}, 1), make(chan struct{})}
	url := serveBackend(t, execserver.Options{Backend: slow})
	p, _ := session(t, url)
	start := p.request(t, "process/start", shell("p", "exec sleep 1000"))
	<-slow.starting
	terminate := p.request(t, "process/terminate", map[string]any{"processId": "p"})
	if r := p.response(t); r.ID != terminate || string(r.Result) != `{"running":true}` {
		t.Errorf("terminate: %+v", r)
	}
	close(slow.proceed)
	if r := p.response(t); r.ID != start || r.Error == nil || r.Error.Message != "process p start was cancelled" || r.Error.Code != -32600 {
		t.Errorf("start: %+v", r)
	}
	if info := waitClosed(t, h); info.Outcome.Code != 137 {
		t.Errorf("outcome %v", info.Outcome)
	}
	p.mustCall(t, "process/start", shell("p", "true"), nil) // the id is free
	p.closed(t, "p")
}
