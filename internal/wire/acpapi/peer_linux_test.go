package acpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/agents"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/leaktest"
	"github.com/spool-run/spool/internal/servertest"
	"github.com/spool-run/spool/internal/wire/acpapi"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == actorRole {
		act()
	}
	os.Exit(leaktest.Code(servertest.Main(m)))
}

type object = map[string]any

// patience is how long anything may take.
const patience = 2 * time.Minute

// openHost opens a host with agents.
func openHost(t *testing.T) *host.Host {
	t.Helper()
	state := t.TempDir()
	h, err := host.Open(host.Options{Dir: t.TempDir(), Engines: map[string]host.NewEngine{
		agent.Engine: func(owner string) (engine.Engine, error) {
			return agents.New(agents.Options{Owner: owner, Dir: state})
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// message is a message that a peer gets.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		ID        string          `json:"sessionId"`
		Update    json.RawMessage `json:"update"`
		RequestID json.RawMessage `json:"requestId"`
	} `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Data    object `json:"data"`
	} `json:"error"`
	raw string
}

// peer is a client, as simple as it can be.
type peer struct {
	t    *testing.T
	in   io.Writer
	last int
	many bool // it gets many messages, of kinds that are compared with the schema elsewhere

	mu   sync.Mutex
	all  []message
	more chan struct{} // closed when there is more
}

// connect connects a client with the server and initializes it.
func connect(t *testing.T, s *acpapi.Server, capabilities object) *peer {
	t.Helper()
	p, done := dial(t, s)
	t.Cleanup(done)
	p.call("initialize", object{"protocolVersion": 1, "clientInfo": object{"name": "peer", "version": "1"}, "clientCapabilities": capabilities})
	return p
}

// dial connects a client, and returns what disconnects it.
func dial(t *testing.T, s *acpapi.Server) (p *peer, done func()) {
	t.Helper()
	serverIn, in := io.Pipe()
	out, serverOut := io.Pipe()
	p = &peer{t: t, in: in, more: make(chan struct{})}
	var work sync.WaitGroup
	work.Go(func() {
		if err := s.Serve(context.Background(), serverIn, serverOut); err != nil {
			t.Errorf("serve: %v", err)
		}
		_ = serverOut.Close()
	})
	work.Go(func() {
		lines := bufio.NewReader(out)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			p.take(line)
		}
	})
	return p, func() {
		_ = in.Close()
		work.Wait()
		checkSchema(t, p)
	}
}

// take keeps a message.
func (p *peer) take(line string) {
	m := message{raw: line}
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		p.t.Errorf("%v: %s", err, line)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, m)
	close(p.more)
	p.more = make(chan struct{})
}

// messages returns what came so far, and what is closed when there is more.
func (p *peer) messages() ([]message, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.all), p.more
}

// await returns the first message that is wanted.
func (p *peer) await(what string, wanted func(*message) bool) message {
	p.t.Helper()
	timeout := time.After(patience)
	for {
		all, more := p.messages()
		for i := range all {
			if wanted(&all[i]) {
				return all[i]
			}
		}
		select {
		case <-more:
		case <-timeout:
			p.t.Fatalf("no %s:\n%s", what, p)
		}
	}
}

func (p *peer) String() string {
	all, _ := p.messages()
	var out strings.Builder
	for _, m := range all {
		out.WriteString(m.raw)
	}
	return out.String()
}

func (p *peer) write(m object) {
	p.t.Helper()
	m["jsonrpc"] = "2.0"
	b, err := json.Marshal(m)
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.in.Write(append(b, '\n')); err != nil {
		p.t.Fatal(err)
	}
}

func (p *peer) notify(method string, params object) {
	p.t.Helper()
	p.write(object{"method": method, "params": params})
}

// send sends a request and returns its id.
func (p *peer) send(method string, params object) string {
	p.t.Helper()
	p.last++
	id := fmt.Sprintf("%q", fmt.Sprint("r", p.last))
	p.write(object{"id": json.RawMessage(id), "method": method, "params": params})
	return id
}

// answerTo waits for the answer to a request.
func (p *peer) answerTo(id string) message {
	p.t.Helper()
	return p.await("answer to "+id, func(m *message) bool { return m.Method == "" && string(m.ID) == id })
}

// call sends a request and returns its result.
func (p *peer) call(method string, params object) object {
	p.t.Helper()
	m := p.answerTo(p.send(method, params))
	if m.Error != nil {
		p.t.Fatalf("%s: %s", method, m.raw)
	}
	var result object
	if err := json.Unmarshal(m.Result, &result); err != nil {
		p.t.Fatal(err)
	}
	return result
}

// fails sends a request that is refused, and returns the code and the message.
func (p *peer) fails(method string, params object) (int, string) {
	p.t.Helper()
	m := p.answerTo(p.send(method, params))
	if m.Error == nil {
		p.t.Fatalf("%s: %s", method, m.raw)
	}
	return m.Error.Code, m.Error.Message
}

// open begins a session.
func (p *peer) open() string {
	p.t.Helper()
	return p.call("session/new", object{"cwd": p.t.TempDir(), "mcpServers": []any{}})["sessionId"].(string)
}

func params(session, text string) object {
	return object{"sessionId": session, "prompt": []object{{"type": "text", "text": text}}}
}

// prompt sends a prompt and returns why it stopped.
func (p *peer) prompt(session, text string) string {
	p.t.Helper()
	return p.call("session/prompt", params(session, text))["stopReason"].(string)
}

// asked waits for a request of the server that was not there before.
func (p *peer) asked(method string, after int) message {
	p.t.Helper()
	return p.await(method, func(m *message) bool {
		var n int
		return m.Method == method && json.Unmarshal(m.ID, &n) == nil && n > after
	})
}

// reply answers a request of the server.
func (p *peer) reply(m message, result object) {
	p.t.Helper()
	p.write(object{"id": m.ID, "result": result})
}

// told are the updates of a session, in short: kind and text.
func (p *peer) told(session string) []string {
	all, _ := p.messages()
	var out []string
	for _, m := range all {
		if m.Method == "session/update" && m.Params.ID == session {
			out = append(out, short(m.Params.Update))
		}
	}
	return out
}

// short is an update in one line, without the place in the log.
func short(update json.RawMessage) string {
	var u struct {
		Kind    string          `json:"sessionUpdate"`
		ID      string          `json:"toolCallId"`
		Status  string          `json:"status"`
		Title   string          `json:"title"`
		Content json.RawMessage `json:"content"`
		Entries json.RawMessage `json:"entries"`
	}
	if err := json.Unmarshal(update, &u); err != nil {
		return err.Error()
	}
	var text struct {
		Text string `json:"text"`
	}
	_ = json.Unmarshal(u.Content, &text) // a list has none
	if text.Text == "" {
		text.Text = strings.TrimSpace(strings.Join([]string{u.ID, u.Status, u.Title, string(u.Content), string(u.Entries)}, " "))
	}
	return u.Kind + " " + text.Text
}

// server is a server in front of the actor.
func server(b spool.Backend) *acpapi.Server {
	return acpapi.New(acpapi.Options{Backend: b, Version: "1", Config: agent.Config{Agent: agent.ACP, Command: []string{os.Args[0], actorRole}}})
}
