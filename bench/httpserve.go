package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/pause"
)

// httpServe measures the start of a server, its memory while it has nothing to do, and
// the size of its code.
func httpServe(ctx context.Context, b *bench) error {
	for range b.pick(5, 3) {
		began := time.Now()
		err := b.withServe(ctx, filepath.Join(b.dir, "http-ready"), func(s *webServer) error {
			resp, err := s.Do(ctx, "GET", "/healthz", "*/*", nil)
			if err != nil {
				return err
			}
			b.addTime(subjectSpool, "http.ready", time.Since(began))
			_, err = io.Copy(io.Discard, resp.Body)
			if err := errors.Join(err, resp.Body.Close()); err != nil {
				return err
			}
			rss, err := b.restingMemory(ctx, s.memory)
			b.add(subjectSpool, "http.idle", rss)
			return err
		})
		if err != nil {
			return err
		}
	}
	err := b.beside(ctx, subjectSandboxAgent, func(p *measuredPeer, ready time.Duration) error {
		b.addTime(p.Name, "http.ready", ready)
		rss, err := b.restingMemory(ctx, p.memory)
		b.add(p.Name, "http.idle", rss)
		return err
	})
	if err != nil || len(b.samples[sampleKey{subjectSpool, "http.binary"}]) > 0 {
		return err
	}
	return b.serverSize(ctx)
}

// restingMemory is the memory of a server that nobody has used for half a second.
func (b *bench) restingMemory(ctx context.Context, rss func() (int64, error)) (float64, error) {
	if err := pause.For(ctx, 500*time.Millisecond); err != nil {
		return 0, err
	}
	n, err := rss()
	return float64(n), err
}

// serverSize builds two small programs without symbols: one that runs commands on this
// machine and is a client of servers, and one that also serves the HTTP API, the
// console and the tools for models. What the second is larger by is the server. The
// first must use the backend: the linker leaves out what nobody calls.
func (b *bench) serverSize(ctx context.Context) error {
	const program = `package main

import (
	"context"
	"os"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/local"
%s)

func main() {
	backend, err := local.Open(os.Args[1], local.Options{})
	if err != nil {
		os.Exit(1)
	}
	_, _ = client.Dial(nil, "", client.Options{})
	if info, err := backend.Start(context.Background(), spool.Spec{Argv: os.Args[2:]}); err == nil {
		_, _ = backend.Read(context.Background(), info.ID, spool.Query{})
	}
%s	backend.Close()
}
`
	var sizes [2]int64
	for i, text := range []string{
		fmt.Sprintf(program, "", ""),
		fmt.Sprintf(program, "\t\"net/http\"\n\n\t\"github.com/spool-run/spool/serve\"\n", "\thandler, err := serve.New(backend, serve.Options{})\n\tif err != nil {\n\t\tos.Exit(1)\n\t}\n\t_ = http.ListenAndServe(\"\", handler)\n"),
	} {
		dir := filepath.Join(b.dir, fmt.Sprintf("size%d", i))
		source, out := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(source, []byte(text), 0o600)); err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, source)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build a program with a server: %w: %s", err, text)
		}
		fi, err := os.Stat(out)
		if err != nil {
			return err
		}
		sizes[i] = fi.Size()
	}
	b.add(subjectSpool, "http.binary", float64(sizes[1]-sizes[0]))
	return nil
}

// listedRuns is the number of finished runs that a server lists.
const listedRuns = 10_000

// httpList lists many runs, and measures how soon a watcher learns of a new one.
func httpList(ctx context.Context, b *bench) error {
	home := filepath.Join(b.dir, "http-list")
	state := filepath.Join(home, "spool")
	if _, err := os.Stat(state); errors.Is(err, os.ErrNotExist) {
		if err := generateRuns(ctx, state, 0, listedRuns); err != nil {
			return err
		}
	}
	return b.withServe(ctx, home, func(s *webServer) error {
		var page struct {
			Runs []spool.Info
			Next string
		}
		for range b.pick(50, 10) {
			began := time.Now()
			if err := s.Call(ctx, "GET", "/v1/runs", nil, &page); err != nil {
				return err
			}
			b.addTime(subjectSpool, "http.list", time.Since(began))
			if len(page.Runs) != 100 {
				return fmt.Errorf("%d runs on a page", len(page.Runs))
			}
		}
		for range b.pick(5, 2) {
			began, total := time.Now(), 0
			for path := "/v1/runs?limit=1000"; path != ""; {
				page.Runs, page.Next = nil, ""
				if err := s.Call(ctx, "GET", path, nil, &page); err != nil {
					return err
				}
				total += len(page.Runs)
				if path = ""; page.Next != "" {
					path = "/v1/runs?limit=1000&cursor=" + page.Next
				}
			}
			if total < listedRuns {
				return fmt.Errorf("%d of %d runs", total, listedRuns)
			}
			b.addTime(subjectSpool, "http.list.all", time.Since(began))
		}
		return b.watchChanges(ctx, s)
	})
}

// watchChanges starts runs while a stream watches the live ones.
func (b *bench) watchChanges(ctx context.Context, s *webServer) error {
	resp, err := s.Do(ctx, "GET", "/v1/watch?live=1", formEvents, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewReaderSize(resp.Body, 1<<20)
	if _, err := seek(lines, "event: sync", ""); err != nil {
		return err
	}
	for range b.pick(20, 5) {
		var info spool.Info
		began := time.Now()
		if err := s.Call(ctx, "POST", "/v1/runs", spool.Spec{Argv: []string{"sleep", "1"}}, &info); err != nil {
			return err
		}
		seen, err := seek(lines, "data: ", string(info.ID))
		if err != nil {
			return err
		}
		b.addTime(subjectSpool, "http.change", seen.Sub(began))
	}
	return nil
}
