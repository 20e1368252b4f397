package httpapi_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/wire/execserver"
	"github.com/spool-run/spool/internal/wire/httpapi"
)

// TestBadInput sends what makes no sense, and too much of it: each is a problem or a close
// code that a client can tell. Somebody who follows the run meanwhile sees every line that
// was said, once, and nothing else.
func TestBadInput(t *testing.T) {
	h := openHost(t)
	rpc := execserver.New(execserver.Options{Backend: h, Keep: true, RunsOnly: true})
	t.Cleanup(rpc.Close)
	const most = 8 // streams of a run
	b := serve(t, httpapi.Options{Backend: h, RPC: rpc, Limits: httpapi.Limits{Body: 200, Stdin: 20, Message: 100, StreamsOfRun: most, Stalled: 2 * time.Second, SlowGrace: time.Millisecond}})
	run := cat(t, h)
	at := "/v1/runs/" + string(run.ID())
	bystander := b.follow(t, eventsOf(run.ID()))
	said := 0
	undisturbed := func(t *testing.T) {
		t.Helper()
		said++
		line := fmt.Sprintf("line %d\n", said)
		say(t, run, line)
		f := bystander.until(t, func(f frame) bool { return f.id != "" })
		if text, _ := json.Marshal(line); f.id != fmt.Sprint(said) || !strings.Contains(f.data, `"text":`+string(text)) {
			t.Errorf("who follows the run gets %+v after line %d", f, said)
		}
	}
	const js, bytes = "application/json", "application/octet-stream"
	for _, tt := range []struct {
		name, method, path, contentType, body string
		status                                int
		code                                  string
	}{
		{"unknown member", "POST", "/v1/runs", js, `{"argvv":["true"]}`, 400, "unknown_member"},
		{"unknown member inside", "POST", "/v1/runs", js, `{"argv":["true"],"limits":{"wall":1}}`, 400, "unknown_member"},
		{"unknown member of a control", "POST", at + "/control", js, `{"op":"kill","now":true}`, 400, "unknown_member"},
		{"unknown parameter", "GET", at + "/events?afterr=1", "", "", 400, "unknown_member"},
		{"half an object", "POST", "/v1/runs", js, `{"argv":["true"`, 400, "bad_json"},
		{"no object", "POST", "/v1/runs", js, `[]`, 400, "invalid"},
		{"two objects", "POST", at + "/control", js, `{"op":"kill"}{"op":"kill"}`, 400, "bad_json"},
		{"a member of another type", "POST", at + "/control", js, `{"op":7}`, 400, "invalid"},
		{"no such control", "POST", at + "/control", js, `{"op":"explode"}`, 422, "unsupported"},
		{"cursor that is no number", "GET", at + "/events?after=x", "", "", 400, "bad_cursor"},
		{"cursor that is too large", "GET", at + "/output?after=9223372036854775808", "", "", 400, "bad_cursor"},
		{"cursor with a fraction", "GET", at + "/events?after=1.5", "", "", 400, "bad_cursor"},
		{"cursor of a list", "GET", "/v1/runs?cursor=%00", "", "", 400, "bad_cursor"},
		{"cursor given twice", "GET", at + "/events?after=1&after=2", "", "", 400, "bad_cursor"},
		{"event that is no number", "GET", at + "/events/x", "", "", 404, "no_event"},
		{"turn that is no number", "GET", at + "/turns/-1", "", "", 404, "no_turn"},
		{"query that cannot be read", "GET", "/v1/runs?name=%zz", "", "", 400, "invalid"},
		{"too large a body", "POST", "/v1/runs", js, `{"argv":["` + strings.Repeat("x", 300) + `"]}`, 413, "too_large"},
		{"too much input", "POST", at + "/input", bytes, strings.Repeat("x", 21), 413, "too_large"},
		{"no media type", "POST", "/v1/runs", "", `{"argv":["true"]}`, 415, "media_type"},
		{"wrong media type", "POST", "/v1/runs", "text/plain", `{"argv":["true"]}`, 415, "media_type"},
		{"a form", "POST", at + "/input", "application/x-www-form-urlencoded", "a=b", 415, "media_type"},
		{"bytes where JSON belongs", "POST", at + "/control", bytes, `{"op":"kill"}`, 415, "media_type"},
		{"a form that is not there", "GET", at + "/events?accept=", "", "", 400, "unknown_member"},
		{"wrong method", "PUT", "/v1/runs", js, `{}`, 405, "method"},
		{"no such address", "GET", "/v1/run", "", "", 404, "no_route"},
		{"an id that cannot be", "GET", "/v1/runs/%00", "", "", 404, "not_found"},
		{"an id that is too long", "GET", "/v1/runs/" + strings.Repeat("a", 300), "", "", 404, "not_found"},
		{"a WebSocket by name only", "GET", at + "/attach", "", "", 426, "upgrade"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), tt.method, b.url+tt.path, strings.NewReader(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			if tt.contentType != "" {
				r.Header.Set("Content-Type", tt.contentType)
			}
			resp, err := b.client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			var p httpapi.Problem
			if err := json.NewDecoder(resp.Body).Decode(&p); err != nil || resp.StatusCode != tt.status || p.Code != tt.code || resp.Header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s %+v, %v; want %d %s", resp.Status, p, err, tt.status, tt.code)
			}
			undisturbed(t)
		})
	}
	for _, tt := range []struct {
		name, path, protocol string
		kind                 websocket.MessageType
		message              string
		code                 websocket.StatusCode
	}{
		{"attached: no JSON", at + "/attach", "spool.attach.v1", websocket.MessageText, "{", 4400},
		{"attached: unknown member", at + "/attach", "spool.attach.v1", websocket.MessageText, `{"typed":"x"}`, 4400},
		{"attached: too large", at + "/attach", "spool.attach.v1", websocket.MessageBinary, strings.Repeat("x", 101), websocket.StatusMessageTooBig},
		{"attached: not UTF-8", at + "/attach", "spool.attach.v1", websocket.MessageText, "\xff", 4400},
	} {
		t.Run(tt.name, func(t *testing.T) {
			conn, _, err := b.dial(t, tt.path, "Sec-WebSocket-Protocol", tt.protocol)
			if err != nil {
				t.Fatal(err)
			}
			if err := conn.Write(t.Context(), tt.kind, []byte(tt.message)); err != nil {
				t.Fatal(err)
			}
			for err == nil {
				_, _, err = conn.Read(t.Context())
			}
			if got := websocket.CloseStatus(err); got != tt.code {
				t.Errorf("closed with %v, want %d", err, tt.code)
			}
			undisturbed(t)
		})
	}
	for _, path := range []string{at + "/attach", "/v1/rpc"} {
		t.Run("half a frame to "+path[strings.LastIndexByte(path, '/')+1:], func(t *testing.T) {
			for _, half := range []string{"\x82", "\x82\x85\x00\x00\x00\x00ab", "\x81\xff\x00\x00\x00\x00\x00\x00\x00\x09\x00\x00\x00\x00", "\xf2\x80\x00\x00\x00\x00", "\x82\x01a"} {
				conn := b.handshake(t, path)
				if _, err := io.WriteString(conn, half); err != nil {
					t.Fatal(err)
				}
				undisturbed(t) // while the rest is awaited
				if err := conn.Close(); err != nil {
					t.Error(err)
				}
				undisturbed(t)
			}
		})
	}
	t.Run("a client that never reads", func(t *testing.T) {
		big := finishedRun(t, h, "head -c 16000000 /dev/zero")
		for i := range most { // so that there is no room for another one
			path := []string{eventsOf(big), "/v1/runs/" + string(big) + "/output?follow=1"}[i%2]
			if resp := b.get(t, path, "Accept", "text/event-stream, */*"); resp.StatusCode != http.StatusOK {
				t.Fatal(resp.Status)
			}
			undisturbed(t)
		}
		polltest.Until(t, "the end of what is not read", func() bool {
			undisturbed(t)
			return b.get(t, eventsOf(big)+"?after=1000000", "Accept", "text/event-stream").StatusCode == http.StatusNoContent
		})
	})
	info, err := run.Info(t.Context())
	if err != nil || int(info.Last) != said {
		t.Errorf("the log has %d events, and %d lines were said: %v", info.Last, said, err)
	}
}

// handshake opens a WebSocket by hand, for what no library sends.
func (b *rest) handshake(t *testing.T, path string) net.Conn {
	t.Helper()
	u, err := url.Parse(b.url)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", path, u.Host)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || answer.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", answer, err)
	}
	return conn
}
