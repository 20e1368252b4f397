package peers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// API is a server that speaks JSON over HTTP.
type API struct {
	Base   string // of the URLs
	Host   string // in requests; empty means that of the URL
	Header http.Header
	Client *http.Client
}

// NewAPI returns the API with a base of URLs.
func NewAPI(base string) *API {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost, t.MaxIdleConns = 64, 64
	t.DisableCompression = true
	return &API{Base: base, Header: http.Header{}, Client: &http.Client{Transport: t}}
}

// Do sends a request that accepts a form of answers, or any, and returns the response,
// which has a status below 300.
func (a *API) Do(ctx context.Context, method, path, accept string, body any) (*http.Response, error) {
	var content io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, a.Base+path, content)
	if err != nil {
		return nil, err
	}
	req.Header, req.Host = a.Header.Clone(), a.Host
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := a.Client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 1000)) // for the message only
		_ = resp.Body.Close()
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, b)
	}
	return resp, nil
}

// Call sends a request and decodes the answer into result, unless that is nil.
func (a *API) Call(ctx context.Context, method, path string, body, result any) error {
	resp, err := a.Do(ctx, method, path, "application/json", body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || result == nil {
		return err
	}
	return json.Unmarshal(b, result)
}

// httpServer is the process of a server and its API.
type httpServer struct {
	*process
	*API
}

// Pids implements Server.
func (s *httpServer) Pids() []int { return []int{s.cmd.Process.Pid} }

// Kill implements Server.
func (s *httpServer) Kill() error { return s.kill() }

// Close implements Server.
func (s *httpServer) Close() error {
	s.Client.CloseIdleConnections()
	return s.close()
}
