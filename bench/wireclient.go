package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
)

// wireClient drives a server over the codex exec-server protocol. It has no
// goroutines: the caller sends requests and then calls receive until it has
// seen the expected messages. That keeps the client's scheduler out of the
// numbers. The caller must not have more than [maxInFlight] open requests.
type wireClient struct {
	ws      *wsConn
	lastID  int64
	lastRun int
	asked   map[int64]*wireProcess // processes that wait for an answer
	live    map[string]*wireProcess
	msg     message
	out     []byte
	data    []byte        // the last received output
	limit   time.Duration // of the current step, for errors
}

// maxInFlight is the number of requests a connection carries at once. The
// reference hangs near 200.
const maxInFlight = 16

// wireProcess is a process as its client sees it.
type wireProcess struct {
	id       string
	answered bool   // no open request
	events   uint64 // number of events received, in any order
	last     uint64 // seq of closed, once received
	exited   bool
	code     int64
	outputs  int   // output notifications
	bytes    int64 // decoded
	first    time.Time
}

// done reports whether all events of the process have arrived. The reference
// sends events out of order, so closed alone is not enough.
func (p *wireProcess) done() bool {
	return p.answered && p.last > 0 && p.events == p.last
}

// check returns an error unless the process ended with this code and wrote this
// many bytes.
func (p *wireProcess) check(code, bytes int64) error {
	if !p.exited || p.code != code || p.bytes != bytes {
		return fmt.Errorf("process %s: exited %t with code %d after %d bytes, want code %d after %d bytes",
			p.id, p.exited, p.code, p.bytes, code, bytes)
	}
	return nil
}

// dialWire connects to a server and performs the handshake.
func dialWire(ctx context.Context, url string, quick bool) (*wireClient, error) {
	ws, err := dialWebSocket(ctx, url, quick)
	if err != nil {
		return nil, err
	}
	c := &wireClient{ws: ws, asked: make(map[int64]*wireProcess), live: make(map[string]*wireProcess)}
	if err := c.handshake(); err != nil {
		return nil, errors.Join(fmt.Errorf("initialize: %w", err), ws.close())
	}
	return c, nil
}

func (c *wireClient) handshake() error {
	if err := c.within(10 * time.Second); err != nil {
		return err
	}
	p := &wireProcess{}
	if err := c.request("initialize", p, map[string]any{"clientName": "spool-bench"}); err != nil {
		return err
	}
	for !p.answered {
		if _, err := c.receive(); err != nil {
			return err
		}
	}
	return c.ws.writeFrame(opText, []byte(`{"method":"initialized","params":{}}`))
}

func (c *wireClient) close() error { return c.ws.close() }

// within sets the deadline of all operations until its next call.
func (c *wireClient) within(d time.Duration) error {
	c.limit = d
	return c.ws.conn.SetDeadline(time.Now().Add(d))
}

func (c *wireClient) request(method string, p *wireProcess, params any) error {
	body, err := json.Marshal(params)
	if err != nil {
		return err
	}
	c.lastID++
	c.out = append(c.out[:0], `{"id":`...)
	c.out = strconv.AppendInt(c.out, c.lastID, 10)
	c.out = append(c.out, `,"method":"`...)
	c.out = append(c.out, method...)
	c.out = append(c.out, `","params":`...)
	c.out = append(c.out, body...)
	c.out = append(c.out, '}')
	c.asked[c.lastID] = p
	p.answered = false
	if err := c.ws.writeFrame(opText, c.out); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	return nil
}

// startParams are the members of process/start that the reference requires.
type startParams struct {
	ProcessID string            `json:"processId"`
	Argv      []string          `json:"argv"`
	Cwd       string            `json:"cwd"`
	Env       map[string]string `json:"env"`
	TTY       bool              `json:"tty"`
	PipeStdin bool              `json:"pipeStdin"`
}

// start sends a process/start and does not wait.
func (c *wireClient) start(stdin bool, argv ...string) (*wireProcess, error) {
	c.lastRun++
	p := &wireProcess{id: "bench-" + strconv.Itoa(c.lastRun)}
	c.live[p.id] = p
	return p, c.request("process/start", p, startParams{
		ProcessID: p.id, Argv: argv, Cwd: "file:///", PipeStdin: stdin,
		Env: map[string]string{"PATH": os.Getenv("PATH")},
	})
}

// write sends a process/write and does not wait.
func (c *wireClient) write(p *wireProcess, data []byte) error {
	return c.request("process/write", p, map[string]any{"processId": p.id, "writeId": "1", "chunk": data})
}

// terminate sends a process/terminate and does not wait.
func (c *wireClient) terminate(p *wireProcess) error {
	return c.request("process/terminate", p, map[string]any{"processId": p.id})
}

// receive reads one message and returns its process, or nil if it concerns
// none. An error answer is an error.
func (c *wireClient) receive() (*wireProcess, error) {
	b, err := c.ws.readMessage()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, fmt.Errorf("the server did not finish within %s", c.limit)
	}
	if err != nil {
		return nil, err
	}
	m := &c.msg
	if err := scanMessage(b, m); err != nil {
		return nil, fmt.Errorf("decode message: %w", err)
	}
	switch m.kind {
	case kindOther:
		return nil, nil
	case kindResult, kindError:
		return c.answer(m)
	}
	p := c.live[string(m.process)]
	if p == nil {
		return nil, fmt.Errorf("event %d of unknown process %q", m.seq, m.process)
	}
	p.events++
	switch m.kind {
	case kindOutput:
		if c.data, err = m.decodeChunk(c.data); err != nil {
			return nil, fmt.Errorf("process %s, event %d: %w", p.id, m.seq, err)
		}
		if p.outputs == 0 {
			p.first = time.Now()
		}
		p.outputs++
		p.bytes += int64(len(c.data))
	case kindExited:
		p.exited, p.code = true, m.exitCode
	case kindClosed:
		p.last = m.seq
	}
	if p.done() {
		delete(c.live, p.id)
	}
	return p, nil
}

func (c *wireClient) answer(m *message) (*wireProcess, error) {
	p := c.asked[m.id]
	if p == nil {
		return nil, fmt.Errorf("answer to request %d, which was never sent: %s", m.id, m.body)
	}
	delete(c.asked, m.id)
	if m.kind == kindError {
		return nil, fmt.Errorf("request %d was refused: %s", m.id, m.body)
	}
	p.answered = true
	if p.done() {
		delete(c.live, p.id)
	}
	return p, nil
}

// wait receives until the process is done.
func (c *wireClient) wait(p *wireProcess) error {
	for !p.done() {
		if _, err := c.receive(); err != nil {
			return err
		}
	}
	return nil
}

// run starts a process and waits until it is done.
func (c *wireClient) run(argv ...string) (*wireProcess, error) {
	p, err := c.start(false, argv...)
	if err != nil {
		return nil, err
	}
	return p, c.wait(p)
}
