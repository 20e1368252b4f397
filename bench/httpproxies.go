package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/bench/internal/peers"
	"github.com/spool-run/spool/internal/proxytest"
)

// httpProxies has one reader follow a run directly, and others at the same time through
// nginx, Caddy and HAProxy with nothing but what passes requests on. It measures how
// much later each event comes there.
func httpProxies(ctx context.Context, b *bench) error {
	return b.withServe(ctx, filepath.Join(b.dir, "http"), func(s *webServer) error {
		c, err := s.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		to := strings.TrimPrefix(s.url, "http://")
		through := map[string]string{"": s.url}
		for name, proxy := range proxytest.All {
			running, err := proxy.Start("", []string{proxy.Default(to)})
			if errors.Is(err, exec.ErrNotFound) {
				b.web.note("%s was not measured: it is not installed", name)
				continue
			}
			if err != nil {
				return err
			}
			defer running.Close()
			through[name] = running.URLs[0]
		}
		gate := filepath.Join(b.dir, "http", "gate")
		defer func() { _ = os.Remove(gate) }()
		r, err := ticking(ctx, c, gate, b.pick(40, 10))
		if err != nil {
			return err
		}
		var (
			wg, attached sync.WaitGroup
			mu           sync.Mutex
			came         = map[string]map[uint64]time.Time{}
			errs         []error
		)
		attached.Add(len(through))
		for name, url := range through {
			wg.Go(func() {
				api := *s.API
				api.Base, api.Host = url, publicName
				times, err := receipts(ctx, &api, r, sync.OnceFunc(attached.Done))
				mu.Lock()
				defer mu.Unlock()
				came[name] = times
				if err != nil {
					errs = append(errs, fmt.Errorf("through %q: %w", name, err))
				}
			})
		}
		attached.Wait()
		err = os.WriteFile(gate, nil, 0o600)
		wg.Wait()
		if err := errors.Join(append(errs, err)...); err != nil {
			return err
		}
		for name, times := range came {
			if len(times) != len(came[""]) {
				return fmt.Errorf("through %s: %d events of %d", name, len(times), len(came[""]))
			}
			for seq, at := range times {
				if name != "" {
					b.addTime(subjectSpool, "http.proxy."+name, at.Sub(came[""][seq]))
				}
			}
		}
		return nil
	})
}

// receipts follows a run, and returns when each of its events came. It calls attached
// when it is connected or has failed.
func receipts(ctx context.Context, api *peers.API, r *spool.Run, attached func()) (map[uint64]time.Time, error) {
	defer attached()
	resp, err := api.Do(ctx, "GET", eventsPath(r.ID()), formEvents, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	times := map[uint64]time.Time{}
	for lines := bufio.NewReader(resp.Body); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return times, err
		}
		switch text, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("id: ")); {
		case ok:
			seq, err := strconv.ParseUint(string(text), 10, 64)
			if err != nil {
				return times, err
			}
			times[seq] = time.Now()
		case bytes.HasPrefix(line, []byte("event: info")):
			attached()
		case bytes.HasPrefix(line, []byte("event: end")):
			return times, nil
		}
	}
}
