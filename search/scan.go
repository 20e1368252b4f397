package search

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/sieve"
)

// Bounds of one page.
const (
	pageTime   = 2 * time.Second // without a flag: a page that ends early says where to go on
	maxWorkers = 8               // runs that are searched at the same time
	blockBytes = 1 << 20         // that are read at once
	// minBlockBytes are read at once at the end of a part.
	minBlockBytes = 64 << 10
	maxErrors     = 100 // of runs that cannot be read
)

// scanPage is [Search] by reading the logs in this process. It lists runs and reads
// records; a backend that implements [record.Reader] hands them out as they are.
func scanPage(ctx context.Context, b spool.Backend, q Query) (Page, error) {
	if err := q.check(); err != nil {
		return Page{}, err
	}
	m, err := newMatcher(&q)
	if err != nil {
		return Page{}, err
	}
	from, err := parseCursor(q.After)
	if err != nil {
		return Page{}, err
	}
	if q.From > 0 && q.After == "" {
		from = cursor{run: q.Runs[0], at: place{next: q.From}}
	}
	if q.Limit == 0 || q.Limit > maxHits {
		q.Limit = maxHits
	}
	s := &scan{backend: b, match: m, limit: q.Limit, named: len(q.Runs) > 0}
	if m.sieve != nil {
		s.sifter, _ = b.(sieve.Sifter)
	}
	s.deadline = sync.OnceValue(func() time.Time { return time.Now().Add(pageTime) })
	return s.page(ctx, &q, from)
}

// scan searches many runs at the same time.
type scan struct {
	backend spool.Backend
	sifter  sieve.Sifter // nil if there is none, or it cannot help
	match   *matcher
	limit   int  // of hits
	named   bool // the query names the runs
	// deadline is when a page ends. The time begins with the first run: the list
	// may take long.
	deadline func() time.Time
}

// job is the search of one run.
type job struct {
	info   spool.Info
	err    error  // of the list
	before string // the place of the run before
	after  string // the place of this run
	from   place

	done  chan struct{} // closed when the rest is set
	hits  []Hit
	bytes int64
	at    place // where it stopped
	ended bool  // it did not stop early
}

// page searches runs in their order until there are enough hits or it took long
// enough.
func (s *scan) page(ctx context.Context, q *Query, from cursor) (Page, error) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	workers := min(runtime.GOMAXPROCS(0), maxWorkers)
	ordered := make(chan *job, 2*workers)
	queue := make(chan *job, 2*workers)
	wg.Go(func() {
		defer close(ordered)
		defer close(queue)
		before := from.before
		for info, err := range runs(ctx, s.backend, q, from) {
			j := &job{info: info, err: err, before: before, after: before, done: make(chan struct{})}
			if err == nil {
				j.after = placeOf(q, before, &info)
				if info.ID == from.run {
					j.from = from.at
				}
			}
			before, from.run = j.after, "" // only the first run was searched in part
			select {
			case ordered <- j:
			case <-ctx.Done():
				return
			}
			select {
			case queue <- j:
			case <-ctx.Done():
				return
			}
		}
	})
	for range workers {
		wg.Go(func() {
			var w worker
			for j := range queue {
				if j.err == nil {
					w.run(ctx, s, j)
				}
				close(j.done)
			}
		})
	}
	return s.collect(ctx, ordered)
}

// collect makes the page of jobs in their order.
func (s *scan) collect(ctx context.Context, ordered <-chan *job) (Page, error) {
	var page Page
	for j := range ordered {
		select {
		case <-j.done:
		case <-ctx.Done():
			return Page{}, context.Cause(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return Page{}, context.Cause(ctx)
		case errors.Is(j.err, spool.ErrClosed), errors.Is(j.err, spool.ErrDenied), errors.Is(j.err, spool.ErrInvalid):
			return Page{}, j.err
		case j.err != nil && s.named && j.info.ID == "":
			return Page{}, j.err
		case errors.Is(j.err, spool.ErrNotFound): // it was removed meanwhile
			continue
		case j.err != nil && len(page.Errors) < maxErrors:
			page.Errors = append(page.Errors, j.err)
		}
		if len(page.Hits) > 0 && len(page.Hits)+len(j.hits) > s.limit {
			// The search of this run begins again with the next page.
			page.Next = cursor{before: j.before, run: j.info.ID, at: j.from}.String()
			return page, nil
		}
		page.Hits = append(page.Hits, j.hits...)
		page.Bytes += j.bytes
		if !j.ended && j.err == nil {
			page.Next = cursor{before: j.before, run: j.info.ID, at: j.at}.String()
			return page, nil
		}
		if time.Now().After(s.deadline()) {
			page.Next = cursor{before: j.after}.String()
			return page, nil
		}
	}
	if ctx.Err() != nil {
		return Page{}, context.Cause(ctx)
	}
	return page, nil
}

// runs yields the runs that a query selects from a place on.
func runs(ctx context.Context, b spool.Backend, q *Query, from cursor) iter.Seq2[spool.Info, error] {
	if len(q.Runs) == 0 {
		f := q.Filter
		f.After = from.before
		return b.List(ctx, f)
	}
	return func(yield func(spool.Info, error) bool) {
		done := 0
		if from.before != "" {
			var err error
			if done, err = strconv.Atoi(from.before); err != nil || done < 0 {
				yield(spool.Info{}, fmt.Errorf("search: %w: %.200q is no cursor of a search in named runs", spool.ErrInvalid, q.After))
				return
			}
		}
		for _, id := range q.Runs[min(done, len(q.Runs)):] {
			info, err := b.Stat(ctx, id)
			if err != nil {
				err = fmt.Errorf("search: %w", err)
			}
			if !yield(info, err) {
				return
			}
		}
	}
}

// placeOf returns what a cursor has to name the place of a run: after the run before
// it.
func placeOf(q *Query, before string, info *spool.Info) string {
	if len(q.Runs) == 0 {
		return info.Cursor()
	}
	n, _ := strconv.Atoi(before) // empty before the first
	return strconv.Itoa(n + 1)
}
