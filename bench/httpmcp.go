package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spool-run/spool/bench/internal/peers"
)

// mcpClient is a client of tools for models, over the standard input and output of a
// server that it started.
type mcpClient struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  *bufio.Reader
	lastID int
}

// dialMCP starts a server of tools, and says hello.
func dialMCP(ctx context.Context, dir string, argv ...string) (*mcpClient, error) {
	c := &mcpClient{cmd: exec.CommandContext(ctx, argv[0], argv[1:]...)}
	c.cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_STATE_HOME="+dir, "XDG_RUNTIME_DIR="+dir, "XDG_CONFIG_HOME="+dir)
	c.cmd.WaitDelay = time.Second
	var err error
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.lines = bufio.NewReaderSize(out, 1<<20)
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	_, err = c.request("initialize", map[string]any{
		"protocolVersion": "2025-06-18", "capabilities": map[string]any{}, "clientInfo": map[string]string{"name": "bench", "version": "1"},
	})
	if err == nil {
		_, err = io.WriteString(c.stdin, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// request sends a request and returns its result.
func (c *mcpClient) request(method string, params any) (json.RawMessage, error) {
	c.lastID++
	b, err := json.Marshal(mcpRequest(c.lastID, method, params))
	if err != nil {
		return nil, err
	}
	if _, err := c.stdin.Write(append(b, '\n')); err != nil {
		return nil, err
	}
	for {
		line, err := c.lines.ReadBytes('\n')
		if err != nil {
			return nil, err
		}
		if answer, err := decodeMCP(line); err != nil || answer.ID == c.lastID {
			return answer.Result, err
		}
	}
}

func (c *mcpClient) close() error {
	err := c.stdin.Close()
	_, _ = io.Copy(io.Discard, c.lines) // it ends with its input
	return errors.Join(err, c.cmd.Wait())
}

func mcpRequest(id int, method string, params any) map[string]any {
	return map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params}
}

// mcpAnswer is a message of a server of tools.
type mcpAnswer struct {
	ID     int
	Result json.RawMessage
	Error  json.RawMessage
}

// decodeMCP decodes a message, and returns the error of an answer that has one.
func decodeMCP(b []byte) (a mcpAnswer, err error) {
	if err = json.Unmarshal(b, &a); err != nil {
		return a, fmt.Errorf("%w: %.200s", err, b)
	}
	var result struct{ IsError bool }
	if a.Result != nil {
		err = json.Unmarshal(a.Result, &result)
	}
	if err == nil && (a.Error != nil || result.IsError) {
		err = fmt.Errorf("refused: %.300s", b)
	}
	return a, err
}

// runTrue are the parameters of a call of run_command.
var runTrue = map[string]any{"name": "run_command", "arguments": map[string]any{"argv": []string{shortest}}}

// httpMCP has models run a command: over HTTP, and over standard input and output.
func httpMCP(ctx context.Context, b *bench) error {
	n := b.pick(200, 40)
	home := filepath.Join(b.dir, "http")
	if err := b.desktopCommander(ctx, n/4); err != nil {
		return err
	}
	return b.withServe(ctx, home, func(s *webServer) (err error) {
		bin, err := filepath.Abs(b.spool)
		if err != nil {
			return err
		}
		c, err := dialMCP(ctx, home, bin, "mcp")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.close()) }()
		const warmup = 3
		for i := range warmup + n {
			began := time.Now()
			if _, err := c.request("tools/call", runTrue); err != nil {
				return err
			}
			stdio := time.Since(began)
			began = time.Now()
			if err := s.callTool(ctx, i); err != nil {
				return err
			}
			if web := time.Since(began); i >= warmup {
				b.addTime(subjectSpool, "http.mcp", web)
				b.addTime(subjectSpool, "http.mcp.stdio", stdio)
			}
		}
		return nil
	})
}

// desktopCommander has the tools of desktop-commander run a command.
func (b *bench) desktopCommander(ctx context.Context, n int) (err error) {
	if !chosen(b.peers, subjectDesktopCommander) {
		return nil
	}
	dir := filepath.Join(b.dir, "desktop-commander")
	var c *mcpClient
	path, err := peers.DesktopCommander()
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		c, err = dialMCP(ctx, dir, "node", path, "--no-onboarding")
	}
	if err != nil {
		b.web.note("%s %s (npm) was not measured: %s", subjectDesktopCommander, peers.DesktopCommanderVersion, peers.Reason(err))
		return nil
	}
	defer func() { _ = c.close() }() // it does not end well
	for range n {
		began := time.Now()
		_, err := c.request("tools/call", map[string]any{"name": "start_process", "arguments": map[string]any{"command": shortest, "timeout_ms": 10_000}})
		if err != nil {
			return err
		}
		b.addTime(subjectDesktopCommander, "http.mcp.stdio", time.Since(began))
	}
	return nil
}

// callTool calls run_command over HTTP.
func (s *webServer) callTool(ctx context.Context, id int) error {
	resp, err := s.Do(ctx, "POST", "/mcp", "application/json, text/event-stream", mcpRequest(id, "tools/call", runTrue))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewReaderSize(resp.Body, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 && line[0] == '{' || len(line) > 6 && string(line[:6]) == "data: " {
			if line[0] != '{' {
				line = line[6:]
			}
			_, copyErr := io.Copy(io.Discard, lines)
			_, err := decodeMCP(line)
			return errors.Join(err, copyErr)
		}
		if err != nil {
			return fmt.Errorf("no answer: %w", err)
		}
	}
}
