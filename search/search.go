// Package search finds lines in the output of runs.
//
//	q := search.Query{Pattern: "connection refused", Literal: true}
//	for hit, err := range search.Find(ctx, backend, q) {
//		…
//	}
//
// A line belongs to one stream of a run, whatever that wrote between its parts, and
// however many events it came in. It is compared without the sequences that colour
// it or move the cursor, and without a carriage return at its end. A line longer than
// 1 MiB is searched in pieces of that size. Other events than output are searched as
// the text that package render shows of them.
//
// A backend of this machine is searched in this process, that of a server on the
// server.
package search

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/spool-run/spool"
)

// Query says what to find, and in which runs.
type Query struct {
	// Pattern is a regular expression in the syntax of package regexp, of at
	// most 4 KiB.
	Pattern    string `json:"pattern"`
	Literal    bool   `json:"literal,omitempty"` // Pattern is the text itself
	IgnoreCase bool   `json:"ignore_case,omitempty"`
	// Filter selects the runs, and orders them; its After and Limit are not
	// used. Runs names them instead, at most 1,000.
	Filter spool.Filter  `json:"filter,omitzero"`
	Runs   []spool.RunID `json:"runs,omitempty"`
	// Limit bounds the hits of a page; zero means 1,000, which is also the
	// most. [Find] ends after so many; zero means all.
	Limit int `json:"limit,omitempty"`
	// After is the Next of the page before.
	After string `json:"after,omitempty"`
	// From is the event with which the search of one run in Runs begins,
	// instead of the first.
	From spool.Seq `json:"from,omitempty"`
}

// Hit is a line that matches.
type Hit struct {
	Run  spool.RunID `json:"run"`
	Seq  spool.Seq   `json:"seq"` // the event in which the line begins
	Time time.Time   `json:"time"`
	Kind spool.Kind  `json:"kind"`
	Turn spool.Seq   `json:"turn,omitempty"`
	// Stream is that of output, and empty for other events.
	Stream spool.Stream `json:"stream,omitempty"`
	// Offset is where in the bytes of the event, or in its text, the line
	// begins.
	Offset int `json:"offset,omitempty"`
	// Text is the line, without escape sequences; of a long one about 4 KiB
	// around the match, which is Text[Start:End].
	Text  string `json:"text"`
	Start int    `json:"start"`
	End   int    `json:"end"`
}

// Page is a part of the hits, run after run. The hits of a run are in the order in
// which their lines end.
type Page struct {
	Hits []Hit
	// Next is the place to go on from; empty after the last page. A page may
	// have no hits and not be the last: a search on a server takes about two
	// seconds for each page.
	Next string
	// Errors are those of runs that could not be read.
	Errors []error
	// Bytes is how much of logs was read.
	Bytes int64
}

// searcher is a backend that searches by itself.
type searcher interface {
	Search(ctx context.Context, q Query) (Page, error)
}

// Search returns one page. The error is [spool.ErrInvalid] for a query that makes no
// sense.
func Search(ctx context.Context, b spool.Backend, q Query) (Page, error) {
	if s, ok := b.(searcher); ok {
		return s.Search(ctx, q)
	}
	return scanPage(ctx, b, q)
}

// Find yields all hits, page after page. The errors of runs that cannot be read come
// between the hits; the search goes on after them. Another error is the last thing it
// yields.
func Find(ctx context.Context, b spool.Backend, q Query) iter.Seq2[Hit, error] {
	return func(yield func(Hit, error) bool) {
		left := q.Limit
		for {
			q.Limit = min(left, maxHits)
			page, err := Search(ctx, b, q)
			if err != nil {
				yield(Hit{}, err)
				return
			}
			for _, err := range page.Errors {
				if !yield(Hit{}, err) {
					return
				}
			}
			for _, hit := range page.Hits {
				if !yield(hit, nil) {
					return
				}
			}
			if page.Next == "" || left > 0 && len(page.Hits) >= left {
				return
			}
			if left > 0 {
				left -= len(page.Hits)
			}
			q.After = page.Next
		}
	}
}

// Bounds of a query and a page.
const (
	maxPattern = 4 << 10
	maxRuns    = 1000
	maxHits    = 1000
	maxText    = 4 << 10 // of a hit
)

// check returns [spool.ErrInvalid] for a query that makes no sense.
func (q *Query) check() error {
	switch {
	case q.Pattern == "":
		return fmt.Errorf("search: %w: the pattern is empty", spool.ErrInvalid)
	case len(q.Pattern) > maxPattern:
		return fmt.Errorf("search: %w: the pattern has %d bytes, and may have %d", spool.ErrInvalid, len(q.Pattern), maxPattern)
	case len(q.Runs) > maxRuns:
		return fmt.Errorf("search: %w: %d runs are named, and %d may be; use a filter", spool.ErrInvalid, len(q.Runs), maxRuns)
	case q.Limit < 0:
		return fmt.Errorf("search: %w: a limit of %d hits", spool.ErrInvalid, q.Limit)
	case q.From > 0 && len(q.Runs) != 1:
		return fmt.Errorf("search: %w: a search from an event on needs one run", spool.ErrInvalid)
	case q.Filter.After != "" || q.Filter.Limit != 0:
		return fmt.Errorf("search: %w: the filter of a search has neither a cursor nor a limit", spool.ErrInvalid)
	}
	if err := q.Filter.Check(); err != nil {
		return fmt.Errorf("search: %w", err)
	}
	return nil
}
