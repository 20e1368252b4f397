package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/wire/execserver"
	"github.com/spool-run/spool/internal/wire/httpapi"
	"github.com/spool-run/spool/python"
)

// rpcSocket is a client of /v1/rpc that sees every message.
type rpcSocket struct {
	t    *testing.T
	ws   *websocket.Conn
	next int
	said []rpcMessage // notifications that nobody has waited for
}

type rpcMessage struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
		Data    struct {
			Name string `json:"name"`
		} `json:"data"`
	} `json:"error"`
}

// serveSockets serves a backend with /v1/rpc.
func serveSockets(t *testing.T, o httpapi.Options) *rest {
	rpc := execserver.New(execserver.Options{Backend: o.Backend, Keep: true, RunsOnly: true})
	t.Cleanup(rpc.Close)
	o.RPC = rpc
	return serve(t, o)
}

func openSocket(t *testing.T, url, token, agent string) *rpcSocket {
	t.Helper()
	h := http.Header{"User-Agent": {agent}}
	if token != "" {
		h.Set("Authorization", "Bearer "+token)
	}
	ws, _, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(url, "http")+"/v1/rpc", &websocket.DialOptions{HTTPHeader: h})
	if err != nil {
		t.Fatal(err)
	}
	ws.SetReadLimit(8 << 20)
	t.Cleanup(func() { _ = ws.CloseNow() })
	return &rpcSocket{t: t, ws: ws}
}

// TestRPCEndsWithTheServer checks that clients of /v1/rpc learn that the server ends.
func TestRPCEndsWithTheServer(t *testing.T) {
	backend := openHost(t)
	rpc := execserver.New(execserver.Options{Backend: backend, Keep: true, RunsOnly: true})
	t.Cleanup(rpc.Close)
	b, api := serveAPI(t, httpapi.Options{Backend: backend, RPC: rpc})
	s := openSocket(t, b.url, "", "test")
	s.do("run/watch", `{"follow":1,"asks":true}`, nil)
	over := make(chan struct{})
	go func() {
		defer close(over)
		api.Close(time.Minute)
	}()
	for {
		_, _, err := s.ws.Read(t.Context())
		if err == nil {
			continue // what was said before
		}
		var end websocket.CloseError
		if !errors.As(err, &end) || end.Code != websocket.StatusGoingAway || end.Reason != "shutdown" {
			t.Errorf("the connection ended with %v", err)
		}
		break
	}
	<-over
}

func (s *rpcSocket) read() rpcMessage {
	s.t.Helper()
	_, b, err := s.ws.Read(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	var m rpcMessage
	if err := json.Unmarshal(b, &m); err != nil {
		s.t.Fatalf("%s: %v", b, err)
	}
	return m
}

// ask sends a request and returns its answer.
func (s *rpcSocket) ask(method, params string) rpcMessage {
	s.t.Helper()
	s.next++
	if err := s.ws.Write(context.Background(), websocket.MessageText, fmt.Appendf(nil, `{"id":%d,"method":%q,"params":%s}`, s.next, method, params)); err != nil {
		s.t.Fatal(err)
	}
	for {
		m := s.read()
		if m.Method == "" && m.ID == s.next {
			return m
		}
		s.said = append(s.said, m)
	}
}

// do sends a request whose answer must be a result.
func (s *rpcSocket) do(method, params string, result any) {
	s.t.Helper()
	m := s.ask(method, params)
	if m.Error != nil {
		s.t.Fatalf("%s %s: %s", method, params, m.Error.Message)
	}
	if result != nil {
		if err := json.Unmarshal(m.Result, result); err != nil {
			s.t.Fatal(err)
		}
	}
}

// hear waits for a notification.
func (s *rpcSocket) hear(method string, is func(params json.RawMessage) bool) {
	s.t.Helper()
	for {
		if len(s.said) == 0 {
			s.said = append(s.said, s.read())
		}
		m := s.said[0]
		s.said = s.said[1:]
		if m.Method == method && is(m.Params) {
			return
		}
	}
}

// TestSocketLens reads lines, indexes and screens with methods that answer what the
// addresses do.
func TestSocketLens(t *testing.T) {
	b := serveSockets(t, httpapi.Options{Backend: openHost(t)})
	info, err := b.Start(t.Context(), spool.Spec{Argv: []string{"sh", "-c", "echo one; echo two; echo three"}, Cwd: "/", TTY: &spool.Size{Rows: 5, Cols: 20}})
	if err != nil {
		t.Fatal(err)
	}
	path := "/v1/runs/" + string(info.ID)
	if err := b.call(t.Context(), "GET", path+"?state=closed&wait_ms=50000", nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	s := openSocket(t, b.url, "", "")
	for method, x := range map[string]struct{ params, query string }{
		"run/lines":  {`,"from":2,"count":1,"stream":["pty"]`, "/lines?from=2&count=1&stream=pty"},
		"run/index":  {`,"wait_ms":1000`, "/index?wait_ms=1000"},
		"run/screen": {`,"format":"text","exact":true`, "/screen?format=text&exact=true"},
	} {
		var want, got json.RawMessage
		if err := b.call(t.Context(), "GET", path+x.query, nil, nil, &want); err != nil {
			t.Fatal(err)
		}
		s.do(method, `{"run":"`+string(info.ID)+`"`+x.params+`}`, &got)
		if string(got) != strings.TrimSpace(string(want)) || len(got) < 20 {
			t.Errorf("%s answers %s, and the address %s", method, got, want)
		}
	}
	for params, name := range map[string]string{
		`{"run":"` + string(info.ID) + `","form":1}`:   "invalid",
		`{"run":"` + string(info.ID) + `","from":"x"}`: "invalid",
		`{"run":"nosuchrun"}`:                          "not_found",
		`[]`:                                           "invalid",
		`{"run":{"a":1}}`:                              "not_found",
	} {
		if m := s.ask("run/lines", params); m.Error == nil || m.Error.Data.Name != name {
			t.Errorf("%s: %+v", params, m.Error)
		}
	}
	if m := s.ask("session/renew", `{}`); m.Error == nil || m.Error.Data.Name != "unsupported" {
		t.Errorf("renewing without a session: %+v", m.Error)
	}
}

// TestPresenceOfPages has pages without a WebSocket say that they are at a run.
func TestPresenceOfPages(t *testing.T) {
	o := httpapi.Options{Backend: openHost(t)}
	token := makeTokens(t, "token ann runs:read,runs:input,runs:start\ntoken bob runs:read", &o)
	b := serveSockets(t, o)
	b.token = token("$ann")
	info, err := b.Start(t.Context(), spool.Spec{Argv: []string{"cat"}, Cwd: "/", Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	desk := openSocket(t, b.url, token("$ann"), "")
	desk.do("run/presence", fmt.Sprintf(`{"run":%q,"role":"view"}`, info.ID), nil)
	path := "/v1/presence/" + string(info.ID)
	say := func(page, role string) (p httpapi.Presence, err error) {
		return p, b.call(t.Context(), "PUT", path, nil, httpapi.GuestRequest{Page: page, Role: role}, &p)
	}
	for _, role := range []string{httpapi.RoleType, httpapi.RoleType, httpapi.RoleView} { // the same page
		p, err := say("one", role)
		if err != nil || len(p.Viewers) != 2 || p.Viewers[0].Self || !p.Viewers[1].Self || p.Viewers[1].Role != role {
			t.Fatalf("%s: %+v, %v", role, p, err)
		}
	}
	desk.hear("presence/changed", func(params json.RawMessage) bool { return strings.Contains(string(params), `"role":"type"`) })
	if p, err := say("two", httpapi.RoleView); err != nil || len(p.Viewers) != 3 {
		t.Errorf("another page: %+v, %v", p, err)
	}
	if p, err := say("one", ""); err != nil || len(p.Viewers) != 2 {
		t.Errorf("after one has left: %+v, %v", p, err)
	}
	for _, bad := range []httpapi.GuestRequest{{}, {Page: strings.Repeat("x", 65)}, {Page: "x", Role: "sing"}} {
		if err := b.call(t.Context(), "PUT", path, nil, bad, nil); !errors.Is(err, spool.ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	for i := range 62 {
		if _, err := say(fmt.Sprint("more", i), httpapi.RoleView); err != nil {
			t.Fatal(i, err)
		}
	}
	if _, err := say("one too many", httpapi.RoleView); !errors.Is(err, spool.ErrBusy) {
		t.Errorf("more pages than may be: %v", err)
	}
	b.token = token("$bob")
	if _, err := say("one", httpapi.RoleView); !errors.Is(err, spool.ErrNotFound) {
		t.Errorf("at the run of another: %v", err)
	}
	if _, err := say("one", httpapi.RoleType); !errors.Is(err, spool.ErrDenied) {
		t.Errorf("typing without the scope: %v", err)
	}
}

// TestPresence has two clients at a run: each sees the other come, type and go.
func TestPresence(t *testing.T) {
	o := httpapi.Options{Backend: openHost(t)}
	token := makeTokens(t, "token ann runs:read,runs:input,runs:start\ntoken bob runs:read", &o)
	b := serveSockets(t, o)
	b.token = token("$ann")
	info, err := b.Start(t.Context(), spool.Spec{Argv: []string{"cat"}, Cwd: "/", Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	at := func(role string) string { return fmt.Sprintf(`{"run":%q,"role":%q}`, info.ID, role) }
	desk := openSocket(t, b.url, token("$ann"), "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0")
	phone := openSocket(t, b.url, token("$ann"), "Mozilla/5.0 (Linux; Android 16) AppleWebKit/537.36 Chrome/150.0 Mobile Safari/537.36")
	var p httpapi.Presence
	desk.do("run/presence", at("view"), &p)
	if len(p.Viewers) != 1 || !p.Viewers[0].Self || p.Viewers[0].Name != "ann" || p.Viewers[0].Device != "Firefox on Linux" {
		t.Fatalf("alone: %+v", p)
	}
	p = httpapi.Presence{}
	phone.do("run/presence", at("type"), &p)
	if len(p.Viewers) != 2 || p.Viewers[0].Self || p.Viewers[1].Role != httpapi.RoleType {
		t.Fatalf("two: %+v", p)
	}
	heard := func(want int, role string) {
		t.Helper()
		desk.hear("presence/changed", func(params json.RawMessage) bool {
			var p httpapi.Presence
			if err := json.Unmarshal(params, &p); err != nil {
				t.Fatal(err)
			}
			if len(p.Viewers) != want || p.Run != info.ID {
				return false
			}
			last := p.Viewers[want-1]
			return last.Role == role && (want == 1 || last.Device == "Chrome on Android" && !last.Self)
		})
	}
	heard(2, httpapi.RoleType)
	p = httpapi.Presence{}
	if err := b.call(t.Context(), "GET", "/v1/presence/"+string(info.ID), nil, nil, &p); err != nil || len(p.Viewers) != 2 || p.Viewers[0].Self {
		t.Errorf("%+v, %v", p, err)
	}
	phone.do("run/presence", at("view"), nil)
	heard(2, httpapi.RoleView)
	_ = phone.ws.CloseNow()
	heard(1, httpapi.RoleView)
	desk.do("run/presence", at(""), &p)
	if len(p.Viewers) != 0 {
		t.Errorf("after all have left: %+v", p)
	}
	// Who may not see the run is nowhere, and who may not type does not.
	bob := openSocket(t, b.url, token("$bob"), "")
	if m := bob.ask("run/presence", at("view")); m.Error == nil || m.Error.Data.Name != "not_found" {
		t.Errorf("at the run of another: %+v", m.Error)
	}
	if m := bob.ask("run/presence", at("type")); m.Error == nil || m.Error.Data.Name != "denied" {
		t.Errorf("typing without the scope: %+v", m.Error)
	}
	if m := desk.ask("run/presence", at("sing")); m.Error == nil || m.Error.Data.Name != "invalid" {
		t.Errorf("a role that is none: %+v", m.Error)
	}
	for i := range 17 { // one more than a connection may be at
		more, err := b.Start(t.Context(), spool.Spec{Argv: []string{"true"}, Cwd: "/"})
		if err != nil {
			t.Fatal(err)
		}
		if m := desk.ask("run/presence", fmt.Sprintf(`{"run":%q,"role":"view"}`, more.ID)); (m.Error != nil) != (i == 16) {
			t.Fatalf("at %d runs: %+v", i+1, m.Error)
		}
	}
}

// TestSocketWatch has a client of run/watch learn of asks, answer one, and learn that
// a run was deleted.
func TestSocketWatch(t *testing.T) {
	b := serveSockets(t, httpapi.Options{Backend: openKernels(t)})
	ctx := t.Context()
	s := openSocket(t, b.url, "", "")
	s.do("run/watch", `{"follow":1,"asks":true}`, nil)
	asks := func(want int) (list httpapi.AskList) {
		t.Helper()
		s.hear("asks/changed", func(params json.RawMessage) bool {
			list = httpapi.AskList{}
			if err := json.Unmarshal(params, &list); err != nil {
				t.Fatal(err)
			}
			return len(list.Asks) == want
		})
		return list
	}
	asks(0)
	info, err := b.Start(ctx, spool.Spec{Engine: python.EngineKernel, Cwd: "/", Config: json.RawMessage(`{"input":"ask"}`)})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.call(ctx, "POST", "/v1/runs/"+string(info.ID)+"/turns", nil, httpapi.TurnRequest{Cell: &spool.Cell{Code: "name = input('who? ')"}}, nil); err != nil {
		t.Fatal(err)
	}
	ask := asks(1).Asks[0]
	if ask.Ask.Prompt != "who? " || ask.Run != info.ID {
		t.Fatalf("%+v", ask)
	}
	answer := fmt.Sprintf(`{"run":%q,"ask":%d,"data":{"text":"ann"}}`, info.ID, ask.Seq)
	s.do("run/answer", answer, nil)
	asks(0)
	if m := s.ask("run/answer", answer); m.Error == nil || m.Error.Data.Name != "not_asked" {
		t.Errorf("a second answer: %+v", m.Error)
	}
	if m := s.ask("run/answer", `{"ask":1}`); m.Error == nil || m.Error.Data.Name != "invalid" {
		t.Errorf("an answer to nobody: %+v", m.Error)
	}
	if err := b.Control(ctx, info.ID, spool.Control{Op: spool.ControlKill}); err != nil {
		t.Fatal(err)
	}
	if err := b.call(ctx, "GET", "/v1/runs/"+string(info.ID)+"?state=closed&wait_ms=50000", nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	watched := b.follow(t, "/v1/watch")
	watched.until(t, func(f frame) bool { return f.event == "sync" })
	if err := b.call(ctx, "DELETE", "/v1/runs/"+string(info.ID), nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	of := func(data string) bool { return data == `{"run":"`+string(info.ID)+`"}` }
	s.hear("run/changed", func(params json.RawMessage) bool {
		return strings.Contains(string(params), `"state":"removed"`) && strings.Contains(string(params), string(info.ID))
	})
	watched.until(t, func(f frame) bool { return f.event == "removed" && of(f.data) })
}

// TestTails asks for the last words of runs.
func TestTails(t *testing.T) {
	b := serve(t, httpapi.Options{Backend: openHost(t)})
	start := func(script string) string {
		t.Helper()
		info, err := b.Start(t.Context(), spool.Spec{Argv: []string{"sh", "-c", script}, Cwd: "/"})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.call(t.Context(), "GET", "/v1/runs/"+string(info.ID)+"?state=closed&wait_ms=50000", nil, nil, nil); err != nil {
			t.Fatal(err)
		}
		return string(info.ID)
	}
	colours := start(`echo first; printf '\033[31mepoch 12/40\033[0m \007loss\r\n\n'`)
	silent := start(`true`)
	long := start(`head -c 5000 /dev/zero | tr '\0' a`)
	var list httpapi.TailList
	if err := b.call(t.Context(), "GET", "/v1/tails?run="+colours+"&run="+silent+"&run="+long+"&run=nosuchrun", nil, nil, &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Tails) != 2 || list.Tails[0].Text != `epoch 12/40 \x07loss` || string(list.Tails[0].Run) != colours || list.Tails[1].Text != strings.Repeat("a", 200) {
		t.Errorf("%+v", list)
	}
	for _, query := range []string{"", "?run=" + strings.Repeat("x&run=", 100) + "x"} {
		if err := b.call(t.Context(), "GET", "/v1/tails"+query, nil, nil, &list); err == nil {
			t.Errorf("/v1/tails%.20s has an answer", query)
		}
	}
}

// TestSearchFrom searches from a line on.
func TestSearchFrom(t *testing.T) {
	b := serve(t, httpapi.Options{Backend: openHost(t)})
	info, err := b.Start(t.Context(), spool.Spec{Argv: []string{"sh", "-c", "seq 1 20000"}, Cwd: "/"})
	if err != nil {
		t.Fatal(err)
	}
	path := "/v1/runs/" + string(info.ID)
	if err := b.call(t.Context(), "GET", path+"?state=closed&wait_ms=50000", nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	for _, from := range []int{1, 777, 778, 15000, 20000, 30000} {
		var want, got []int64
		for n := int64(from); n <= 20000; n++ {
			if strings.Contains(fmt.Sprint(n), "777") {
				want = append(want, n)
			}
		}
		var page httpapi.RunSearch
		if err := b.call(t.Context(), "GET", fmt.Sprintf("%s/search?q=777&from=%d", path, from), nil, nil, &page); err != nil {
			t.Fatal(err)
		}
		for _, h := range page.Hits {
			got = append(got, h.N)
		}
		if !slices.Equal(got, want) {
			t.Errorf("from line %d: %v, want %v", from, got, want)
		}
		if streamed := b.streamHits(t, fmt.Sprintf("%s/search?q=777&from=%d", path, from)); !slices.Equal(streamed, want) {
			t.Errorf("from line %d as a stream: %v, want %v", from, streamed, want)
		}
		if streamed := b.streamHits(t, fmt.Sprintf("%s/search?q=777&from=%d&limit=17", path, from)); !slices.Equal(streamed, want[:min(17, len(want))]) {
			t.Errorf("from line %d as a stream of 17: %v, want %v", from, streamed, want)
		}
	}
}

// streamHits returns the numbers of the lines that a search finds, which come as a
// stream of a few hits at first and then of more.
func (b *rest) streamHits(t *testing.T, path string) (numbers []int64) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", b.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "application/x-ndjson")
	resp, err := b.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for d := json.NewDecoder(resp.Body); ; {
		var hit httpapi.RunHit
		switch err := d.Decode(&hit); {
		case errors.Is(err, io.EOF):
			return numbers
		case err != nil:
			t.Fatal(err)
		}
		numbers = append(numbers, hit.N)
	}
}
