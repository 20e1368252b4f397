package agents

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/spool-run/spool/internal/wire/rpc"
)

// peer speaks JSON-RPC with an agent, one message a line, both ways. Unlike
// [rpc.Conn] it has no goroutine and no opinion: an agent may repeat keys,
// answer what was never asked or say what nobody knows, and all of it becomes
// an event.
type peer struct {
	w       wire
	version bool // each message says that it is JSON-RPC 2.0
	last    int64
	calls   map[string]call
}

// call is a request of ours that is not answered.
type call struct {
	method string
	then   func(result json.RawMessage, err *rpc.Error, t *turn)
}

// rpcMessage is one message. ID is absent in a notification.
type rpcMessage struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// call sends a request. then gets the answer, if one comes.
func (p *peer) call(method string, params any, then func(json.RawMessage, *rpc.Error, *turn)) {
	if p.calls == nil {
		p.calls = make(map[string]call)
	}
	p.last++
	id := strconv.FormatInt(p.last, 10)
	p.calls[id] = call{method, then}
	p.send(map[string]any{"id": json.RawMessage(id), "method": method, "params": params})
}

// notify sends a notification; params may be nil.
func (p *peer) notify(method string, params any) {
	m := map[string]any{"method": method}
	if params != nil {
		m["params"] = params
	}
	p.send(m)
}

// reply answers a request of the agent's.
func (p *peer) reply(id json.RawMessage, result any) {
	p.send(map[string]any{"id": id, "result": result})
}

// refuse answers a request with an error.
func (p *peer) refuse(id json.RawMessage, code int, text string) {
	p.send(map[string]any{"id": id, "error": &rpc.Error{Code: code, Message: text}})
}

func (p *peer) send(m map[string]any) {
	if p.version {
		m["jsonrpc"] = "2.0"
	}
	b, err := json.Marshal(m)
	if err != nil { // a raw value of the agent's that is no JSON cannot have got here
		return
	}
	p.w.write(append(b, '\n'))
}

// read takes a line. It settles answers itself and reports false when there is
// nothing left for the caller to do.
func (p *peer) read(b []byte, t *turn) (m rpcMessage, ok bool) {
	if err := lenient(b, &m); err != nil {
		t.unparsed(b, err)
		return m, false
	}
	if null(m.ID) {
		m.ID = nil
	}
	switch {
	case m.Method != "":
		return m, true
	case m.ID == nil:
		t.unknown("message", b)
		return m, false
	}
	c, ok := p.calls[rpcKey(m.ID)]
	if !ok {
		t.unknown("answer", b)
		return m, false
	}
	delete(p.calls, rpcKey(m.ID))
	if c.then != nil {
		c.then(m.Result, rpcError(m.Error), t)
	}
	return m, false
}

// rpcKey makes a key of an id. Some agents send our numbers back as strings.
func rpcKey(id json.RawMessage) string {
	var s string
	if json.Unmarshal(id, &s) == nil {
		return s
	}
	return string(id)
}

// askKey makes a key of the id of a request, which may be a number or a
// string: both may occur at once.
func askKey(id json.RawMessage) string { return string(id) }

func rpcError(v json.RawMessage) *rpc.Error {
	if null(v) {
		return nil
	}
	e := new(rpc.Error)
	_ = lenient(v, e)
	if e.Message == "" {
		e.Message = fmt.Sprintf("error %.200s", v)
	}
	return e
}
