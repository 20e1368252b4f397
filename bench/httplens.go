package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"time"
)

// httpLens has a new server find its way in the long log: count its lines, show some
// from anywhere, and search it.
func httpLens(ctx context.Context, b *bench) error {
	home, err := b.longLog()
	if err != nil {
		return err
	}
	const run = "/v1/runs/" + longRun
	return b.withServe(ctx, home, func(s *webServer) error {
		var index struct {
			Lines    int64
			Complete bool
		}
		began := time.Now()
		for !index.Complete {
			if err := s.Call(ctx, "GET", run+"/index?wait_ms=30000", nil, &index); err != nil {
				return err
			}
		}
		b.addTime(subjectSpool, "http.index", time.Since(began))
		random := rand.New(rand.NewPCG(1, 2))
		for range b.pick(300, 100) {
			const count = 400
			var page struct{ Lines []struct{ N int64 } }
			began := time.Now()
			if err := s.Call(ctx, "GET", fmt.Sprintf("%s/lines?from=%d&count=%d", run, 1+random.Int64N(index.Lines-count), count), nil, &page); err != nil {
				return err
			}
			b.addTime(subjectSpool, "http.jump", time.Since(began))
			if len(page.Lines) != count {
				return fmt.Errorf("%d lines of %d", len(page.Lines), count)
			}
		}
		for metric, query := range map[string]url.Values{
			"text":   {"q": {needle}},
			"folded": {"q": {"xYLOPHONE42"}, "ignore_case": {"1"}},
			"regex":  {"q": {"[XY]ylophone[0-9]+"}, "mode": {"regex"}},
		} {
			began := time.Now()
			hits, err := s.search(ctx, run, query)
			if err == nil && hits != 1 {
				err = fmt.Errorf("%d hits", hits)
			}
			if err != nil {
				return fmt.Errorf("search for %v: %w", query, err)
			}
			b.add(subjectSpool, "http.search."+metric, float64(b.bulkBytes())/time.Since(began).Seconds())
		}
		took, err := s.firstHit(ctx, run, url.Values{"q": {"[0-9]+ms|[0-9]+ errors?"}, "mode": {"regex"}})
		b.addTime(subjectSpool, "http.search.first", took)
		return err
	})
}

// search finds all hits, page by page, and returns their number.
func (s *webServer) search(ctx context.Context, run string, query url.Values) (hits int, err error) {
	for {
		var page struct {
			Hits []struct{}
			Next string
		}
		if err := s.Call(ctx, "GET", run+"/search?"+query.Encode(), nil, &page); err != nil {
			return hits, err
		}
		hits += len(page.Hits)
		if page.Next == "" {
			return hits, nil
		}
		query.Set("cursor", page.Next)
	}
}

// firstHit returns how long the first hit takes, of hits that come as they are found.
func (s *webServer) firstHit(ctx context.Context, run string, query url.Values) (time.Duration, error) {
	began := time.Now()
	resp, err := s.Do(ctx, "GET", run+"/search?"+query.Encode(), formLines, nil)
	if err != nil {
		return 0, err
	}
	first, err := seek(bufio.NewReader(resp.Body), "{", `"seq"`)
	return first.Sub(began), errors.Join(err, resp.Body.Close())
}
