package httpapi_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/host/backendtest"
	"github.com/spool-run/spool/internal/wire/httpapi"
)

// attached is a client that is attached to a run.
type attached struct {
	*websocket.Conn
	bytes  []byte // of all binary messages
	seq    spool.Seq
	frames []httpapi.AttachFrame // the text messages
	err    error                 // how it ended
}

func (b *rest) dial(t *testing.T, path string, header ...string) (*websocket.Conn, *http.Response, error) {
	t.Helper()
	o := &websocket.DialOptions{HTTPHeader: http.Header{}, HTTPClient: b.client}
	for i := 0; i < len(header); i += 2 {
		o.HTTPHeader.Set(header[i], header[i+1])
	}
	if protocols := o.HTTPHeader.Get("Sec-WebSocket-Protocol"); protocols != "" {
		o.Subprotocols = []string{protocols}
	}
	if b.token != "" {
		o.HTTPHeader.Set("Authorization", "Bearer "+b.token)
	}
	conn, resp, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(b.url, "http")+path, o)
	if err == nil {
		conn.SetReadLimit(-1)
		t.Cleanup(func() { _ = conn.CloseNow() })
	}
	return conn, resp, err
}

// attach attaches a client to a run.
func (b *rest) attach(t *testing.T, id spool.RunID, query string, header ...string) *attached {
	t.Helper()
	conn, _, err := b.dial(t, "/v1/runs/"+string(id)+"/attach"+query, append(header, "Sec-WebSocket-Protocol", "spool.attach.v1")...)
	if err != nil {
		t.Fatal(err)
	}
	return &attached{Conn: conn}
}

// next reads a message. It reports false at the end of the connection.
func (a *attached) next(t *testing.T) bool {
	t.Helper()
	kind, b, err := a.Read(t.Context())
	if err != nil {
		a.err = err
		return false
	}
	if kind == websocket.MessageBinary {
		a.bytes = append(a.bytes, b...)
		return true
	}
	var f httpapi.AttachFrame
	if err := json.Unmarshal(b, &f); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	if f.Seq != 0 {
		if f.Seq <= a.seq {
			t.Errorf("cursor %d after %d", f.Seq, a.seq)
		}
		a.seq = f.Seq
	}
	a.frames = append(a.frames, f)
	return true
}

// until reads messages until one fits.
func (a *attached) until(t *testing.T, what string, fits func() bool) {
	t.Helper()
	for !fits() {
		if !a.next(t) {
			t.Fatalf("it ended before %s: %v; %q", what, a.err, a.bytes)
		}
	}
}

func (a *attached) last() httpapi.AttachFrame {
	if len(a.frames) == 0 {
		return httpapi.AttachFrame{}
	}
	return a.frames[len(a.frames)-1]
}

// ends reads up to the end, and checks its reason and its close code.
func (a *attached) ends(t *testing.T, reason string, code websocket.StatusCode) {
	t.Helper()
	for a.next(t) {
	}
	if got := websocket.CloseStatus(a.err); got != code {
		t.Errorf("closed with %v, want %d", a.err, code)
	}
	if f := a.last(); reason != "" && (f.End == nil || f.End.Reason != reason) {
		t.Errorf("the last message is %+v, want the end %s", f, reason)
	}
}

func (a *attached) text(t *testing.T, text string) {
	t.Helper()
	if err := a.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func (a *attached) say(t *testing.T, text string) {
	t.Helper()
	if err := a.Write(t.Context(), websocket.MessageBinary, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

// TestAttach types into a run, reads what it writes, and ends its input. A second
// client goes on from the cursor of the first.
func TestAttach(t *testing.T) {
	h := openHost(t)
	b := serve(t, httpapi.Options{Backend: h})
	r := cat(t, h)
	a := b.attach(t, r.ID(), "")
	if a.Subprotocol() != "spool.attach.v1" {
		t.Errorf("the subprotocol is %q", a.Subprotocol())
	}
	a.say(t, "one\n")
	a.until(t, "the echo and its cursor", func() bool { return a.seq == 1 })
	if a.frames[0].Info == nil || a.frames[0].Info.ID != r.ID() || string(a.bytes) != "one\n" {
		t.Errorf("%q, %+v", a.bytes, a.frames)
	}
	_ = a.CloseNow() // which does not end the run
	a = b.attach(t, r.ID(), "?after=1")
	a.say(t, "two\n")
	a.say(t, "three\n")
	a.text(t, `{"eof":true}`)
	a.ends(t, "closed", websocket.StatusNormalClosure)
	if string(a.bytes) != "two\nthree\n" {
		t.Errorf("%q", a.bytes)
	}
	if f := a.last(); f.End.Outcome == nil || f.End.Outcome.Kind != spool.Exited {
		t.Errorf("the end is %+v", f.End)
	}
	late := b.attach(t, r.ID(), "")
	late.ends(t, "closed", websocket.StatusNormalClosure)
	if string(late.bytes) != "one\ntwo\nthree\n" {
		t.Errorf("%q", late.bytes)
	}
	past := b.attach(t, r.ID(), "?after=100")
	past.ends(t, "closed", websocket.StatusNormalClosure)
}

// TestAttachTerminal begins with the screen of a terminal, resizes it and sends it a
// signal. Looking does not resize.
func TestAttachTerminal(t *testing.T) {
	h := openHost(t)
	b := serve(t, httpapi.Options{Backend: h})
	spec := backendtest.Shell(`trap 'printf bye; exit 3' INT; printf '\033[2J\033[Hready'; while :; do sleep 60 & wait; done`)
	spec.TTY = &spool.Size{Rows: 10, Cols: 40}
	r := backendtest.Start(t, h, spec)
	awaitLast(t, r, 1)
	a := b.attach(t, r.ID(), "?screen=1")
	a.until(t, "the screen", func() bool { return a.seq > 0 })
	if s := a.frames[0].Screen; s == nil || s.Rows != 10 || s.Cols != 40 || s.Seq != a.seq || !bytes.Contains(a.bytes, []byte("ready")) {
		t.Errorf("the screen is %+v: %q", s, a.bytes)
	}
	a.text(t, `{"resize":{"rows":20,"cols":60}}`)
	a.until(t, "the new size", func() bool { return a.last().Resized != nil })
	if f := a.last(); f.Resized.Rows != 20 || f.Resized.Cols != 60 || f.Resized.Was.Rows != 10 || f.Seq != a.seq {
		t.Errorf("resized: %+v", f)
	}
	a.text(t, `{"signal":"SIGINT"}`)
	a.ends(t, "closed", websocket.StatusNormalClosure)
	if f := a.last(); !bytes.HasSuffix(a.bytes, []byte("bye")) || f.End.Outcome.ExitCode() != 3 {
		t.Errorf("%q, %+v", a.bytes, f.End.Outcome)
	}
}

// TestAttachWindow has a client acknowledge what it got, byte for byte, and another one
// nothing.
func TestAttachWindow(t *testing.T) {
	h := openHost(t)
	b := serve(t, httpapi.Options{Backend: h})
	id := finishedRun(t, h, "printf 0123456789abcdefghij")
	a := b.attach(t, id, "?window=8")
	for _, step := range []struct{ ack, bytes int }{{0, 8}, {3, 11}, {8, 19}, {1, 20}} {
		if step.ack > 0 {
			a.text(t, fmt.Sprintf(`{"ack":%d}`, step.ack))
		}
		a.until(t, "the next bytes", func() bool { return len(a.bytes) >= step.bytes })
		if len(a.bytes) != step.bytes {
			t.Errorf("%d bytes, want %d", len(a.bytes), step.bytes)
		}
	}
	a.ends(t, "closed", websocket.StatusNormalClosure)
	if string(a.bytes) != "0123456789abcdefghij" {
		t.Errorf("%q", a.bytes)
	}
	impatient := serve(t, httpapi.Options{Backend: h, Limits: httpapi.Limits{Stalled: time.Second}})
	a = impatient.attach(t, id, "?window=8")
	a.ends(t, "slow", 4008)
	if string(a.bytes) != "01234567" || a.seq != 0 {
		t.Errorf("%q, cursor %d", a.bytes, a.seq)
	}
}

// TestAttachSkips has a viewer fall far behind: it gets the screen as it is then.
func TestAttachSkips(t *testing.T) {
	h := openHost(t)
	b := serve(t, httpapi.Options{Backend: h})
	spec := backendtest.Shell(`stty -opost; read fill; printf %02000d 0; read go; yes 0123456789abcdefghijklmnopqrstuvwxyz | head -c 5000000; printf '\033[2J\033[Hthe end'; read stop`)
	spec.TTY = &spool.Size{Rows: 10, Cols: 40}
	r := backendtest.Start(t, h, spec)
	a := b.attach(t, r.ID(), "?screen=1&skip=1&window=1000")
	a.say(t, "fill\r")
	a.until(t, "a full window", func() bool { return len(a.bytes) >= 1000 })
	a.say(t, "go\r")
	last := spool.Seq(0)
	for e, err := range r.Events(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		last = e.Seq
		if bytes.Contains(e.Bytes, []byte("the end")) {
			break
		}
	}
	a.text(t, `{"ack":1000000}`)
	a.until(t, "the skip", func() bool { return a.last().Skipped != nil })
	if f := a.last(); f.Skipped.From == 0 || f.Skipped.To < last || f.Screen == nil || f.Screen.Seq != f.Skipped.To {
		t.Errorf("skipped %+v, screen %+v; the last event is %d", f.Skipped, f.Screen, last)
	}
	a.until(t, "the screen", func() bool { return bytes.Contains(a.bytes, []byte("the end")) })
	if len(a.bytes) > 2_000_000 {
		t.Errorf("it got %d bytes", len(a.bytes))
	}
	a.say(t, "stop\r")
	a.ends(t, "closed", websocket.StatusNormalClosure)
}

// TestAttachRefusals checks what clients are refused, and how: a program gets the
// problem, a page a close code, because it cannot read the problem.
func TestAttachRefusals(t *testing.T) {
	o := httpapi.Options{Backend: openHost(t), Gate: new(access.Gate)}
	token := makeTokens(t, "token bob runs:read\ntoken eve runs:input", &o)
	b := serve(t, o)
	spec := backendtest.Shell("exec cat")
	spec.Stdin, spec.Labels = true, map[string]string{access.LabelSubject: "bob"}
	r := backendtest.Start(t, o.Backend, spec)
	path := "/v1/runs/" + string(r.ID()) + "/attach"
	for _, tt := range []struct {
		name, token, path string
		status            int
		code              string
	}{
		{"nobody", "", path, 401, "unauthenticated"},
		{"no scope", token("$eve"), path, 403, "forbidden"},
		{"no run", token("$bob"), "/v1/runs/0/attach", 404, "not_found"},
		{"no cursor", token("$bob"), path + "?after=x", 400, "bad_cursor"},
		{"no terminal", token("$bob"), path + "?screen=1", 422, "unsupported"},
		{"skip without a screen", token("$bob"), path + "?skip=1", 400, "invalid"},
	} {
		b.token = tt.token
		if _, resp, err := b.dial(t, tt.path); err == nil || resp.StatusCode != tt.status || resp.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: a program gets %v, %v", tt.name, resp, err)
		}
		page, _, err := b.dial(t, tt.path, "Origin", b.url, "Sec-WebSocket-Protocol", "spool.attach.v1")
		if err != nil {
			t.Fatalf("%s: a page gets %v", tt.name, err)
		}
		var closed websocket.CloseError
		if _, _, err := page.Read(t.Context()); !errors.As(err, &closed) || int(closed.Code) != 4000+tt.status || closed.Reason != tt.code {
			t.Errorf("%s: a page gets %v", tt.name, err)
		}
	}
	b.token = token("$bob")
	if _, resp, err := b.dial(t, path, "Origin", "http://evil.test"); err == nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("a page of another site gets %v, %v", resp, err)
	}
	for _, tt := range []struct {
		message string
		binary  bool
		code    websocket.StatusCode
	}{
		{"typed", true, 4403},
		{`{"resize":{"rows":1,"cols":1}}`, false, 4403},
		{`{"eof":true}`, false, 4403},
		{`{"ack":1,"eof":true}`, false, 4400},
		{`{}`, false, 4400},
		{`{"ackk":1}`, false, 4400},
		{`{`, false, 4400},
		{`{"ack":-1}`, false, 4400},
		{strings.Repeat(" ", 1<<20+1), false, websocket.StatusMessageTooBig},
	} {
		a := b.attach(t, r.ID(), "")
		if tt.binary {
			a.say(t, tt.message)
		} else {
			a.text(t, tt.message)
		}
		a.ends(t, "", tt.code)
	}
}

// TestAttachLimits checks the limits of what an attached client sends and gets, at them and
// above, and that another client notices nothing.
func TestAttachLimits(t *testing.T) {
	h := openHost(t)
	b := serve(t, httpapi.Options{Backend: h, Limits: httpapi.Limits{Message: 8, Window: 16}})
	r := cat(t, h)
	other := b.attach(t, r.ID(), "")
	a := b.attach(t, r.ID(), "")
	a.say(t, "1234567\n")
	a.until(t, "what it typed", func() bool { return string(a.bytes) == "1234567\n" })
	a.say(t, "12345678\n")
	a.ends(t, "", websocket.StatusMessageTooBig)
	if _, resp, err := b.dial(t, "/v1/runs/"+string(r.ID())+"/attach?window=17"); err == nil || resp.StatusCode != http.StatusBadRequest {
		t.Errorf("a window above the limit gets %v, %v", resp, err)
	}
	b.attach(t, r.ID(), "?window=16").until(t, "the output", func() bool { return true })
	other.say(t, "end\n")
	other.until(t, "all output", func() bool { return string(other.bytes) == "1234567\nend\n" })
}

// TestAttachedClientsAreBounded checks that they count as streams, and that a page
// learns that.
func TestAttachedClientsAreBounded(t *testing.T) {
	h := openHost(t)
	b := serve(t, httpapi.Options{Backend: h, Limits: httpapi.Limits{StreamsOfRun: 1}})
	r := cat(t, h)
	b.attach(t, r.ID(), "").until(t, "its beginning", func() bool { return true })
	if _, resp, err := b.dial(t, "/v1/runs/"+string(r.ID())+"/attach"); err == nil || resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("one too many gets %v, %v", resp, err)
	}
	b.attach(t, r.ID(), "", "Origin", b.url).ends(t, "", 4429)
}

// TestAttachEndsWithTheServer checks that attached clients learn that the server ends,
// or that they may no longer be there.
func TestAttachEndsWithTheServer(t *testing.T) {
	h := openHost(t)
	b, api := serveAPI(t, httpapi.Options{Backend: h})
	r := cat(t, h)
	a := b.attach(t, r.ID(), "")
	over := make(chan struct{})
	go func() {
		defer close(over)
		api.Close(time.Minute)
	}()
	a.ends(t, "shutdown", websocket.StatusGoingAway)
	<-over
}

// TestProbeSocket sends messages to the WebSocket for doctors until it has enough.
func TestProbeSocket(t *testing.T) {
	b, api := serveAPI(t, httpapi.Options{Backend: openHost(t)})
	if resp := b.get(t, "/v1/doctor/ws"); resp.StatusCode != http.StatusUpgradeRequired {
		t.Errorf("without an upgrade: %s", resp.Status)
	}
	conn, _, err := b.dial(t, "/v1/doctor/ws", "Sec-WebSocket-Protocol", "spool.echo.v1")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		text := fmt.Sprint(i)
		if err := conn.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if kind, got, err := conn.Read(t.Context()); err != nil || string(got) != text || kind != websocket.MessageText {
			t.Fatalf("%v %q, %v", kind, got, err)
		}
	}
	if _, _, err := conn.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
		t.Errorf("after 100 messages: %v", err)
	}
	other, _, err := b.dial(t, "/v1/doctor/ws")
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		api.Close(time.Minute)
	}()
	if _, _, err := other.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("when the server ends: %v", err)
	}
	<-over
}
