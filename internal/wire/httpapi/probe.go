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
	}
}

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
	h := c.w.Header()
	h.Set("Content-Type", formSSE+"; charset=utf-8")
	h.Set("Cache-Control", "no-store, no-transform")
	h.Set("X-Accel-Buffering", "no")
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
