package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/internal/pause"
)

// quiet is how long a server may take to give memory back.
const quiet = 10 * time.Second

// measureResident measures the memory of a new server and its keeper: idle, after
// a thousand runs, and at most while many clients read the output of one run;
// each also after a while in which nothing happens.
func measureResident(ctx context.Context, b *bench, s *subject) (err error) {
	dir := s.dir + "-resident"
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	srv, err := launch(ctx, s.path, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, srv.stop()) }()
	c, err := client.Dial(ctx, srv.url, client.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := runOnce(ctx, c, 0, shortest); err != nil { // there is a keeper from now on
		return err
	}
	note := func(metric string) error {
		rss, err := srv.memory()
		if err != nil {
			return err
		}
		b.add(s.name, metric, float64(rss))
		return nil
	}
	rest := func(metric string) error {
		if err := pause.For(ctx, quiet); err != nil {
			return err
		}
		return note(metric)
	}
	if err := rest("resident.idle"); err != nil {
		return err
	}
	for range 1000 {
		if err := runOnce(ctx, c, 0, shortest); err != nil {
			return err
		}
	}
	if err := errors.Join(note("resident.runs"), rest("resident.runs.quiet")); err != nil {
		return err
	}
	for _, readers := range []int{100, 400} {
		metric := fmt.Sprintf("resident.readers.%d", readers)
		peak, err := srv.peakWith(ctx, readers, int64(b.pick(64<<20, 16<<20)))
		if err != nil {
			return fmt.Errorf("%d readers: %w", readers, err)
		}
		b.add(s.name, metric, float64(peak))
		if err := rest(metric + ".quiet"); err != nil {
			return err
		}
		if err := srv.forget(); err != nil {
			return err
		}
	}
	return nil
}

// peakWith has clients with a connection each read n bytes of one run while it
// writes them, and returns the most memory that the server had.
func (s *server) peakWith(ctx context.Context, readers int, n int64) (peak int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	clients := make([]*client.Client, readers)
	defer func() {
		for _, c := range clients {
			if c != nil {
				err = errors.Join(err, c.Close())
			}
		}
	}()
	for i := range clients {
		if clients[i], err = client.Dial(ctx, s.url, client.Options{}); err != nil {
			return 0, err
		}
	}
	mark := filepath.Join(s.cmd.Dir, "go")
	defer func() { err = errors.Join(err, os.Remove(mark)) }()
	first, err := spool.Start(ctx, clients[0], spool.Spec{
		Argv: append([]string{"sh", "-c", `while ! [ -e "$0" ]; do sleep 0.01; done; exec "$@"`, mark}, zeros(n)...),
		Env:  map[string]string{"PATH": os.Getenv("PATH")},
	})
	if err != nil {
		return 0, err
	}
	var wg sync.WaitGroup
	failed := make([]error, readers)
	for i, c := range clients {
		wg.Go(func() {
			r, err := spool.Find(ctx, c, string(first.ID()))
			if err != nil {
				failed[i] = err
				return
			}
			var got int64
			for e, err := range r.Stream(ctx, 0) {
				if err != nil {
					failed[i] = err
					return
				}
				got += int64(len(e.Bytes))
			}
			if got != n {
				failed[i] = fmt.Errorf("%d bytes of %d", got, n)
			}
		})
	}
	over := make(chan struct{})
	go func() { wg.Wait(); close(over) }()
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		return 0, err
	}
	for {
		rss, err := s.memory()
		if err != nil {
			return 0, err
		}
		peak = max(peak, rss)
		select {
		case <-over:
			return peak, errors.Join(failed...)
		case <-time.After(5 * time.Millisecond):
		}
	}
}
