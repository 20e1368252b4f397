package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
)

// Bounds of a request that is made for a sandbox.
const (
	netTimeout      = 30 * time.Second
	maxResponseBody = 8 << 20
)

// netServices answer what a sandbox asks of the network, for the hosts that a
// person allowed.
type netServices struct{ config python.SandboxConfig }

// serve answers an ask. It reports false for one that it knows nothing about.
func (n *netServices) serve(ctx context.Context, run *spool.Run, seq spool.Seq, ask *spool.Ask) bool {
	if len(n.config.Hosts) == 0 || ask.Kind != python.AskHTTP && ask.Kind != python.AskDNS {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, netTimeout)
	defer cancel()
	var value any
	var err error
	if ask.Kind == python.AskHTTP {
		value, err = n.request(ctx, ask.Data)
	} else {
		value, err = n.lookup(ctx, ask.Data)
	}
	answer := spool.Answer{Ask: seq, By: "spool box"}
	if err == nil {
		answer.Data, err = json.Marshal(value)
	}
	if err != nil {
		answer.Error = &spool.AnswerError{Code: netErrorCode(err), Message: err.Error()}
	}
	_ = run.Answer(context.WithoutCancel(ctx), answer, false) // it may no longer ask
	return true
}

// errHost says that a host was not allowed.
var errHost = errors.New("network access to this host is not allowed")

func netErrorCode(err error) string {
	var dns *net.DNSError
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, errHost):
		return "EACCES"
	case errors.As(err, &dns):
		return "EHOSTUNREACH"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "ETIMEDOUT"
	}
	return "ECONNREFUSED"
}

// httpRequest and httpResponse are what http.request asks and gets.
type httpRequest struct {
	URL     string            `json:"url"`
	Method  string            `json:"method"`
	Headers map[string]string `json:"headers"`
	Body    []byte            `json:"body_base64"`
}

type httpResponse struct {
	Status  int         `json:"status"`
	Reason  string      `json:"reason"`
	URL     string      `json:"url"`
	Headers http.Header `json:"headers"`
	Body    []byte      `json:"body_base64"`
}

func (n *netServices) request(ctx context.Context, data json.RawMessage) (*httpResponse, error) {
	var r httpRequest
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL, bytes.NewReader(r.Body))
	if err != nil {
		return nil, err
	}
	for name, value := range r.Headers {
		req.Header.Set(name, value)
	}
	if err := n.check(req); err != nil {
		return nil, err
	}
	client := &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true},
		// A host that was allowed may send on to one that was not.
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if len(via) >= 10 {
				return errors.New("too many redirects")
			}
			return n.check(req)
		},
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxResponseBody+1))
	if err != nil {
		return nil, fmt.Errorf("read the response: %w", err)
	}
	if len(body) > maxResponseBody {
		return nil, fmt.Errorf("the response has more than %d bytes", maxResponseBody)
	}
	return &httpResponse{resp.StatusCode, http.StatusText(resp.StatusCode), resp.Request.URL.String(), resp.Header, body}, nil
}

func (n *netServices) check(req *http.Request) error {
	u := req.URL
	if u.Scheme != "http" && u.Scheme != "https" || !n.config.AllowsHost(u.Host) && !n.config.AllowsHost(u.Hostname()) {
		return fmt.Errorf("%s: %w", u.Host, errHost)
	}
	return nil
}

func (n *netServices) lookup(ctx context.Context, data json.RawMessage) (any, error) {
	var r struct {
		Hostname string `json:"hostname"`
		Family   int    `json:"family"`
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("read the question: %w", err)
	}
	if !n.config.AllowsHost(r.Hostname) {
		return nil, fmt.Errorf("%s: %w", r.Hostname, errHost)
	}
	network := map[int]string{0: "ip", 4: "ip4", 6: "ip6"}[r.Family]
	if network == "" {
		return nil, fmt.Errorf("no family %d", r.Family)
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, network, r.Hostname)
	if err != nil {
		return nil, err
	}
	addresses := make([]string, len(found))
	for i, ip := range found {
		addresses[i] = ip.Unmap().String()
	}
	return map[string]any{"addresses": addresses}, nil
}
