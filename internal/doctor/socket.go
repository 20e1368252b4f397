package doctor

import (
	"bytes"
	"context"
	"crypto/rand"
	"net/http"
	"time"

	"github.com/coder/websocket"
)

// urlMessage is the size of a message that must come back over a WebSocket.
const urlMessage = 1 << 20

// socket finds out whether a WebSocket opens, and whether messages pass in both
// directions.
func (v *visitor) socket(ctx context.Context) Finding {
	const works = "clients of the API use streams or wait_ms where WebSockets do not work"
	header := http.Header{}
	if v.o.Token != "" {
		header.Set("Authorization", "Bearer "+v.o.Token)
	}
	// WebSockets are of HTTP/1.1.
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: v.o.TLS, Proxy: http.ProxyFromEnvironment, Protocols: onlyHTTP1()}}
	defer client.CloseIdleConnections()
	began := time.Now()
	conn, resp, err := websocket.Dial(ctx, v.base.JoinPath("/v1/doctor/ws").String(), &websocket.DialOptions{
		HTTPClient: client, HTTPHeader: header, Subprotocols: []string{"spool.echo.v1"}, CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		return v.noSocket(ctx, resp, err)
	}
	defer func() { _ = conn.CloseNow() }()
	opened := time.Since(began)
	conn.SetReadLimit(2 * urlMessage)
	message := make([]byte, urlMessage)
	_, _ = rand.Read(message) // which never fails
	if err := conn.Write(ctx, websocket.MessageBinary, message); err != nil {
		return warning(works, "a WebSocket opens, and a message of 1 MiB cannot be sent: %s", err)
	}
	switch _, got, err := conn.Read(ctx); {
	case err != nil:
		return warning(works, "a WebSocket opens, and a message of 1 MiB does not come back: %s", err)
	case !bytes.Equal(got, message):
		return warning(works, "a WebSocket opens, and a message of 1 MiB comes back changed")
	}
	_ = conn.Close(websocket.StatusNormalClosure, "")
	return ok("a WebSocket opens in %s, and 1 MiB passes in both directions", opened.Round(time.Millisecond))
}

func onlyHTTP1() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	return p
}

// noSocket explains why a WebSocket did not open.
func (v *visitor) noSocket(ctx context.Context, resp *http.Response, err error) Finding {
	if resp == nil {
		return warning("see the check host", "no WebSocket opens: %s", err)
	}
	p := refused(resp)
	if p.Code != "" && p.Code != "upgrade" {
		return warning("see the check token", "the server refuses a WebSocket: %s", p.Detail)
	}
	if p.proxy == "" {
		p.proxy = v.proxy(ctx, resp.Header)
	}
	next := "let the proxy pass the headers Upgrade and Connection, over HTTP/1.1"
	switch p.proxy {
	case "nginx":
		next = "in the location of nginx: proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade;"
	case "Caddy":
		next = "in the reverse_proxy of Caddy: no header_up that removes Upgrade or Connection"
	case "HAProxy":
		next = "in HAProxy: no rule that denies requests with the header Upgrade, or removes it"
	case "Apache":
		next = "in Apache: mod_proxy_wstunnel, or ProxyPass … upgrade=websocket"
	}
	return warning(next, "WebSockets do not pass%s: the answer has the status %d", by(p.proxy), p.Status)
}
