package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/bench/internal/peers"
)

const (
	formEvents = "text/event-stream"
	formLines  = "application/x-ndjson"
)

func eventsPath(id spool.RunID) string { return "/v1/runs/" + string(id) + "/events" }

// httpFirst asks for the events of a finished run, again and again, and measures the
// time to the first of them; beside what other servers answer to such a question.
func httpFirst(ctx context.Context, b *bench) error {
	n := b.pick(1000, 200)
	err := b.withServe(ctx, filepath.Join(b.dir, "http"), func(s *webServer) error {
		c, err := s.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		r, err := spool.Start(ctx, c, spool.Spec{Argv: []string{"echo", "hello"}})
		if err == nil {
			_, err = r.Wait(ctx)
		}
		if err != nil {
			return err
		}
		for range n {
			began := time.Now()
			resp, err := s.Do(ctx, "GET", eventsPath(r.ID()), formEvents, nil)
			if err != nil {
				return err
			}
			lines := bufio.NewReader(resp.Body)
			first, err := seek(lines, "data: ", `"kind":"output"`)
			if err == nil {
				b.addTime(subjectSpool, "http.first", first.Sub(began))
				_, err = io.Copy(io.Discard, lines) // so that the connection is used again
			}
			if err := errors.Join(err, resp.Body.Close()); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, name := range []string{subjectSandboxAgent, subjectJupyterServer} {
		err := b.beside(ctx, name, func(p *measuredPeer, _ time.Duration) error {
			get, err := p.Server.(peers.Asked).Ask(ctx)
			if err != nil {
				return err
			}
			for range n / 4 {
				began := time.Now()
				if err := get(); err != nil {
					return err
				}
				b.addTime(p.Name, "http.get", time.Since(began))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// seek reads up to a line that begins with one text and has another, and returns when
// it came.
func seek(r *bufio.Reader, prefix, has string) (time.Time, error) {
	for {
		line, err := r.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return time.Time{}, fmt.Errorf("before a line with %s: %w", has, err)
		}
		if bytes.HasPrefix(line, []byte(prefix)) && bytes.Contains(line, []byte(has)) {
			return time.Now(), nil
		}
	}
}

// httpStart starts runs and measures the time to their first output: over HTTP and
// over the WebSocket in turns, and beside other servers.
func httpStart(ctx context.Context, b *bench) error {
	n := b.pick(200, 40)
	argv := []string{"/bin/echo", "hello"}
	err := b.withServe(ctx, filepath.Join(b.dir, "http"), func(s *webServer) error {
		c, err := s.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		const warmup = 3
		for i := range warmup + n {
			web, err := s.startToOutput(ctx, argv)
			if err != nil {
				return err
			}
			rpc, err := startToOutput(ctx, c, argv)
			if err != nil {
				return err
			}
			if i >= warmup {
				b.addTime(subjectSpool, "http.start", web)
				b.addTime(subjectSpool, "http.start.rpc", rpc)
				b.addTime(subjectSpool, "http.start.extra", web-rpc)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	codex, err := b.reference(ctx)
	if err != nil {
		return err
	}
	wire, err := dialWire(ctx, codex.url, true)
	if err != nil {
		return err
	}
	defer wire.close()
	for range n / 4 {
		if err := wire.within(10 * time.Second); err != nil {
			return err
		}
		began := time.Now()
		p, err := wire.run(argv...)
		if err != nil {
			return err
		}
		b.addTime(subjectCodex, "http.start", p.first.Sub(began))
	}
	for _, name := range []string{subjectJupyterServer, subjectWetty} {
		err := b.beside(ctx, name, func(p *measuredPeer, _ time.Duration) error {
			for range b.pick(10, 3) {
				began := time.Now()
				first, err := p.Server.(peers.Terminals).Terminal(ctx)
				if err != nil {
					return err
				}
				b.addTime(p.Name, "http.start", first.Sub(began))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// startToOutput starts a run with a request, and follows it with another.
func (s *webServer) startToOutput(ctx context.Context, argv []string) (time.Duration, error) {
	began := time.Now()
	var info spool.Info
	if err := s.Call(ctx, "POST", "/v1/runs", spool.Spec{Argv: argv}, &info); err != nil {
		return 0, err
	}
	resp, err := s.Do(ctx, "GET", eventsPath(info.ID), formEvents, nil)
	if err != nil {
		return 0, err
	}
	lines := bufio.NewReader(resp.Body)
	first, err := seek(lines, "data: ", `"kind":"output"`)
	if err == nil {
		_, err = io.Copy(io.Discard, lines)
	}
	return first.Sub(began), errors.Join(err, resp.Body.Close())
}

// startToOutput starts a run through a backend, and follows it.
func startToOutput(ctx context.Context, backend spool.Backend, argv []string) (time.Duration, error) {
	began := time.Now()
	r, err := spool.Start(ctx, backend, spool.Spec{Argv: argv})
	if err != nil {
		return 0, err
	}
	var first time.Duration
	for e, err := range r.Stream(ctx, 0) {
		if err != nil {
			return 0, err
		}
		if e.Kind == spool.KindOutput && first == 0 {
			first = time.Since(began)
		}
	}
	if first == 0 {
		return 0, fmt.Errorf("%v wrote nothing", argv)
	}
	return first, nil
}
