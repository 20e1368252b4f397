package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/coder/websocket"

	"github.com/spool-run/spool/internal/access"
)

// Bounds of what a doctor asks for.
const (
	maxProbeFrames = 100
	maxProbeEvery  = 10 * time.Minute
	maxProbeBody   = 32 << 20 // bytes of a body that is sent to see whether it arrives
)

// probeOperations are what a doctor uses to find out what is between a client and the
// server.
func probeOperations() []operation {
	return []operation{
		{method: "GET", pattern: "/v1/doctor/stream", name: "probeStream", summary: "A stream of frames at equal distances, to see whether a proxy holds them back",
			query: []param{
				{name: "frames", kind: numberParam, min: 1, max: maxProbeFrames, doc: "How many; 5 without it"},
				{name: "every_ms", kind: numberParam, min: 1, max: maxProbeEvery.Milliseconds(), doc: "Milliseconds between them; 200 without it"},
			}, status: 200, forms: []string{formSSE}, problems: []string{"too_many_streams"}, serve: (*call).probeStream},
		{method: "POST", pattern: "/v1/doctor/echo", name: "probeEcho", summary: "What arrived of a request: size and digest of its body, and who sent it, as the server sees it",
			query: []param{waitParam}, status: 200, answer: ProbeEcho{}, problems: []string{"too_large"}, serve: (*call).probeEcho},
		{method: "GET", pattern: "/v1/doctor/ws", name: "probeSocket", protocol: echoProtocol, summary: "A WebSocket that sends each message back, to see whether a proxy lets it pass",
			status: 101, problems: []string{"too_many_streams", "upgrade"}, serve: (*call).probeSocket},
	}
}

// echoProtocol is the subprotocol of the WebSocket for doctors.
const echoProtocol = "spool.echo.v1"

// ProbeFrame is a frame of the stream for doctors.
type ProbeFrame struct {
	N    int       `json:"n"`
	Of   int       `json:"of"`
	Sent time.Time `json:"sent"`
}

// ProbeEcho is what arrived of a request.
type ProbeEcho struct {
	Bytes  int64     `json:"bytes"`
	SHA256 string    `json:"sha256"`
	Time   time.Time `json:"time"`
	From   string    `json:"from"`   // the address of the client
	Host   string    `json:"host"`   // that it named
	Secure bool      `json:"secure"` // it uses TLS, here or with a proxy
	Proto  string    `json:"proto"`  // version of HTTP
	// Via are the headers with which proxies name themselves.
	Via []string `json:"via,omitempty"`
}

func (c *call) probeStream() error {
	frames, every := int(c.number("frames", 5)), time.Duration(c.number("every_ms", 200))*time.Millisecond
	end, err := c.server.streams.begin(c)
	if err != nil {
		return err
	}
	defer end()
	c.unbuffered(formSSE)
	c.w.WriteHeader(http.StatusOK)
	if c.r.Method == http.MethodHead {
		return nil
	}
	control := http.NewResponseController(c.w)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for n := 1; n <= frames; n++ {
		if n > 1 {
			select {
			case <-ticker.C:
			case <-c.ctx.Done():
				return nil
			}
		}
		_, err := fmt.Fprintf(c.w, "data: {\"n\":%d,\"of\":%d,\"sent\":%s}\n\n", n, frames, strconv.Quote(time.Now().UTC().Format(time.RFC3339Nano)))
		if err == nil {
			err = control.Flush()
		}
		if err != nil {
			return nil // the client left
		}
	}
	return nil
}

// probeSocket sends messages back, for some time.
func (c *call) probeSocket() error {
	if err := c.wantsWebSocket(); err != nil {
		return err
	}
	end, err := c.server.streams.begin(c)
	if err != nil {
		return err
	}
	defer end()
	conn, err := c.upgrade(echoProtocol)
	if err != nil {
		return nil
	}
	conn.SetReadLimit(c.server.limits.Message)
	ctx, cancel := context.WithTimeout(c.ctx, maxProbeEvery)
	defer cancel()
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { // the end of the context of a read would cut the connection
		defer close(over)
		code, reason := websocket.StatusNormalClosure, ""
		if c.ctx.Err() != nil {
			code, reason = c.closeFor(context.Cause(c.ctx))
		}
		_ = conn.Close(code, reason) // the client may have left
	})
	for range maxProbeFrames {
		kind, b, err := conn.Read(context.Background())
		if err == nil {
			err = c.sendSocket(conn, kind, b)
		}
		if err != nil {
			break
		}
	}
	if !stop() {
		<-over
		return nil
	}
	_ = conn.Close(websocket.StatusNormalClosure, "")
	return nil
}

func (c *call) probeEcho() error {
	control := http.NewResponseController(c.w)
	_ = control.SetReadDeadline(time.Now().Add(bodyFor)) // not every connection has deadlines
	defer func() { _ = control.SetReadDeadline(time.Time{}) }()
	if c.r.ContentLength > maxProbeBody { // a client that waits for 100 sends nothing
		return bodyProblem(&http.MaxBytesError{Limit: maxProbeBody})
	}
	digest := sha256.New()
	n, err := io.Copy(digest, http.MaxBytesReader(c.w, c.r.Body, maxProbeBody))
	if err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			return bodyProblem(err)
		}
		return problemf("invalid", "read the body: %s", err)
	}
	if wait := c.wait(); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		}
	}
	echo := ProbeEcho{
		Bytes: n, SHA256: hex.EncodeToString(digest.Sum(nil)), Time: time.Now().UTC(), From: access.Source(c.r), Host: c.r.Host,
		Secure: access.Secure(c.r), Proto: c.r.Proto,
	}
	for _, name := range []string{"Via", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "Forwarded", "Cf-Ray", "X-Amzn-Trace-Id"} {
		for _, value := range c.r.Header.Values(name) {
			echo.Via = append(echo.Via, fmt.Sprintf("%s: %.200s", name, value))
		}
	}
	return c.reply(http.StatusOK, echo)
}
