package peers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// api is a server that speaks JSON over HTTP.
type api struct {
	base   string
	header http.Header
	client *http.Client
}

func newAPI(base string) *api {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost, t.MaxIdleConns = 64, 64
	t.DisableCompression = true
	return &api{base: base, header: http.Header{}, client: &http.Client{Transport: t}}
}

// do sends a request and returns the response, which has a status below 300.
func (a *api) do(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var content io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, a.base+path, content)
	if err != nil {
		return nil, err
	}
	req.Header = a.header.Clone()
	req.Header.Set("Content-Type", "application/json")
	resp, err := a.client.Do(req)
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

// call sends a request and decodes the answer into result, unless that is nil.
func (a *api) call(ctx context.Context, method, path string, body, result any) error {
	resp, err := a.do(ctx, method, path, body)
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
	*api
}

// Pids implements Server.
func (s *httpServer) Pids() []int { return []int{s.cmd.Process.Pid} }

// Kill implements Server.
func (s *httpServer) Kill() error { return s.kill() }

// Close implements Server.
func (s *httpServer) Close() error {
	s.client.CloseIdleConnections()
	return s.close()
}
