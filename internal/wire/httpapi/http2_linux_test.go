package httpapi_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/wire/httpapi"
)

// serveHTTP2 serves with HTTP/2 and returns a client that uses one connection of it, and
// one that does not speak it.
func serveHTTP2(t *testing.T, encrypted bool, o httpapi.Options) (b *rest, old *http.Client) {
	t.Helper()
	api := httpapi.New(o)
	s := httptest.NewUnstartedServer(api)
	api.Configure(s.Config)
	config := (*tls.Config)(nil)
	if encrypted {
		s.EnableHTTP2 = true // in the certificate's configuration
		s.StartTLS()
		config = s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
		config.NextProtos = nil
	} else {
		s.Start()
	}
	client := func(version func(*http.Protocols, bool)) *http.Client {
		p := new(http.Protocols)
		version(p, true)
		t1 := &http.Transport{TLSClientConfig: config.Clone(), Protocols: p, HTTP2: &http.HTTP2Config{StrictMaxConcurrentRequests: true}}
		t.Cleanup(t1.CloseIdleConnections)
		return &http.Client{Transport: t1}
	}
	t.Cleanup(func() {
		api.Close(0)
		s.CloseClientConnections()
		s.Close()
	})
	version := (*http.Protocols).SetUnencryptedHTTP2
	if encrypted {
		version = (*http.Protocols).SetHTTP2
	}
	return &rest{url: s.URL, client: client(version)}, client((*http.Protocols).SetHTTP1)
}

// TestHTTP2 follows two runs over one connection of HTTP/2, encrypted and not, beside
// other requests, and opens a WebSocket on the same listener.
func TestHTTP2(t *testing.T) {
	for name, encrypted := range map[string]bool{"TLS": true, "plain": false} {
		t.Run(name, func(t *testing.T) {
			h := openHost(t)
			b, old := serveHTTP2(t, encrypted, httpapi.Options{Backend: h})
			first, second := cat(t, h), cat(t, h)
			resp := b.get(t, eventsOf(first.ID()), "Accept", "text/event-stream")
			if resp.ProtoMajor != 2 || resp.StatusCode != http.StatusOK {
				t.Fatalf("%s %s", resp.Proto, resp.Status)
			}
			one, two := newFrames(resp.Body), b.follow(t, eventsOf(second.ID()))
			for _, text := range []string{"hi\n", "there\n"} { // each comes while the stream is open
				say(t, first, text)
				say(t, second, text)
				for _, s := range []*frames{one, two} {
					s.until(t, func(f frame) bool { return f.id != "" })
				}
			}
			if resp := b.get(t, "/healthz"); resp.ProtoMajor != 2 || resp.StatusCode != http.StatusOK {
				t.Errorf("%s %s", resp.Proto, resp.Status)
			}
			// A WebSocket over HTTP/2 is refused with what to do.
			if resp := b.get(t, "/v1/doctor/ws"); resp.StatusCode != http.StatusUpgradeRequired {
				t.Errorf("a WebSocket over %s: %s", resp.Proto, resp.Status)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			conn, _, err := websocket.Dial(ctx, b.url+"/v1/doctor/ws", &websocket.DialOptions{HTTPClient: old, Subprotocols: []string{"spool.echo.v1"}})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.CloseNow() }()
			if err := conn.Write(ctx, websocket.MessageText, []byte("hi")); err != nil {
				t.Fatal(err)
			}
			if _, got, err := conn.Read(ctx); err != nil || string(got) != "hi" {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// TestStreamsOfAConnectionAreBounded has a client that opens more requests on one
// connection than it may wait for one of them to end.
func TestStreamsOfAConnectionAreBounded(t *testing.T) {
	h := openHost(t)
	b, _ := serveHTTP2(t, false, httpapi.Options{Backend: h, Limits: httpapi.Limits{StreamsOfConn: 2}})
	run := cat(t, h)
	first := b.get(t, eventsOf(run.ID()), "Accept", "text/event-stream")
	b.follow(t, eventsOf(run.ID())).until(t, func(f frame) bool { return f.event == "info" })
	third := make(chan int, 1)
	go func() {
		resp, err := b.client.Get(b.url + "/healthz")
		if err != nil {
			third <- 0
			return
		}
		_ = resp.Body.Close()
		third <- resp.StatusCode
	}()
	// Another connection has room: what the third waits for is not the server.
	b2 := &rest{url: b.url, client: &http.Client{Transport: b.client.Transport.(*http.Transport).Clone()}}
	for range 10 {
		if resp := b2.get(t, "/healthz"); resp.StatusCode != http.StatusOK {
			t.Error(resp.Status)
		}
	}
	b2.client.CloseIdleConnections()
	select {
	case status := <-third:
		t.Fatalf("a third request is answered with %d", status)
	default:
	}
	_ = first.Body.Close()
	if status := <-third; status != http.StatusOK {
		t.Errorf("after the first ended: %d", status)
	}
}

// TestStreamOverHTTP2ThatIsNotRead has a client that takes nothing of one stream: it
// alone is cut off. Another stream of its connection goes on, although it was silent for
// longer than a client may take nothing.
func TestStreamOverHTTP2ThatIsNotRead(t *testing.T) {
	h := openHost(t)
	b, old := serveHTTP2(t, false, httpapi.Options{Backend: h, Limits: httpapi.Limits{Stalled: 2 * time.Second, SlowGrace: time.Second}})
	metrics := &rest{url: b.url, client: old}
	big := finishedRun(t, h, "head -c 20000000 /dev/zero")
	run := cat(t, h)
	live := b.get(t, eventsOf(run.ID()), "Accept", "application/x-ndjson")
	unread := b.get(t, eventsOf(big), "Accept", "text/event-stream")
	polltest.Until(t, "the stream that is not read cut off", func() bool {
		body, err := io.ReadAll(metrics.get(t, "/metrics").Body)
		return err == nil && strings.Contains(string(body), "spool_streams_open 1\n")
	})
	for s := newFrames(unread.Body); ; {
		f, err := s.next()
		if err != nil {
			break
		}
		if isEnd(f) && strings.Contains(f.data, "closed") {
			t.Fatal("a client that took nothing got all")
		}
	}
	say(t, run, "hi\n")
	line, err := bufio.NewReader(live.Body).ReadString('\n')
	if err != nil || !strings.Contains(line, `"seq":1`) {
		t.Errorf("the stream that is read goes on with %q, %v", line, err)
	}
}
