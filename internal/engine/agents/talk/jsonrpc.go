package talk

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/spool-run/spool/internal/wire/rpc"
)

// Peer speaks JSON-RPC with an agent, one message a line, both ways. Unlike
// [rpc.Conn] it has no goroutine and no opinion: an agent may repeat keys,
// answer requests that were never made or send unknown methods, and all of it
// becomes an event.
type Peer struct {
	Wire    Wire
	Version bool // each message says that it is JSON-RPC 2.0
	last    int64
	calls   map[string]call
}

// call is a request of ours that is not answered.
type call struct {
	method string
	then   func(result json.RawMessage, err *rpc.Error, t *Turn)
}

// Message is one message. ID is absent in a notification.
type Message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// Call sends a request. then gets the answer, if one comes.
func (p *Peer) Call(method string, params any, then func(json.RawMessage, *rpc.Error, *Turn)) {
	if p.calls == nil {
		p.calls = make(map[string]call)
	}
	p.last++
	id := strconv.FormatInt(p.last, 10)
	p.calls[id] = call{method, then}
	p.send(map[string]any{"id": json.RawMessage(id), "method": method, "params": params})
}

// Notify sends a notification; params may be nil.
func (p *Peer) Notify(method string, params any) {
	m := map[string]any{"method": method}
	if params != nil {
		m["params"] = params
	}
	p.send(m)
}

// Reply answers a request of the agent's.
func (p *Peer) Reply(id json.RawMessage, result any) {
	p.send(map[string]any{"id": id, "result": result})
}

// Refuse answers a request with an error.
func (p *Peer) Refuse(id json.RawMessage, code int, text string) {
	p.send(map[string]any{"id": id, "error": &rpc.Error{Code: code, Message: text}})
}

func (p *Peer) send(m map[string]any) {
	if p.Version {
		m["jsonrpc"] = "2.0"
	}
	b, err := json.Marshal(m)
	if err != nil { // a raw value of the agent's that is no JSON cannot have got here
		return
	}
	p.Wire.Write(append(b, '\n'))
}

// Read takes a line. It settles answers itself and reports false when there is
// nothing left for the caller to do.
func (p *Peer) Read(b []byte, t *Turn) (m Message, ok bool) {
	if err := Decode(b, &m); err != nil {
		t.Unparsed(b, err)
		return m, false
	}
	if IsNull(m.ID) {
		m.ID = nil
	}
	switch {
	case m.Method != "":
		return m, true
	case m.ID == nil:
		t.Unknown("message", b)
		return m, false
	}
	c, ok := p.calls[rpcKey(m.ID)]
	if !ok {
		t.Unknown("answer", b)
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

// RequestKey makes a key of the id of a request, which may be a number or a
// string: both may occur at once.
func RequestKey(id json.RawMessage) string { return string(id) }

func rpcError(v json.RawMessage) *rpc.Error {
	if IsNull(v) {
		return nil
	}
	e := new(rpc.Error)
	_ = Decode(v, e)
	if e.Message == "" {
		e.Message = fmt.Sprintf("error %.200s", v)
	}
	return e
}
