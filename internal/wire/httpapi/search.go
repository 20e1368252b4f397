package httpapi

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/lens"
	"github.com/spool-run/spool/render"
	"github.com/spool-run/spool/search"
)

// SearchPage is a page of hits.
type SearchPage struct {
	Hits []search.Hit `json:"hits"`
	// Next is the cursor of the next page; empty after the last one. A page
	// without hits need not be the last: a search takes about two seconds for
	// each.
	Next  string `json:"next,omitempty"`
	Bytes int64  `json:"read_bytes"` // how much of logs was read
	// Errors are those of runs that cannot be read.
	Errors []Problem `json:"errors,omitempty"`
}

// RunHit is a line of one run that matches.
type RunHit struct {
	// N is the number of the line, of output; see LogLine.
	N int64 `json:"n,omitempty"`
	search.Hit
}

// RunSearch is a page of hits in one run.
type RunSearch struct {
	Hits []RunHit `json:"hits"`
	// Next is the cursor of the next page; empty after the last one. A page
	// without hits need not be the last: a search takes about two seconds for
	// each.
	Next  string `json:"next,omitempty"`
	Bytes int64  `json:"read_bytes"` // how much of the log was read
}

// searchRun finds lines in one run.
func (c *call) searchRun() error {
	form, err := c.accepts(formNDJSON, formJSON)
	if err != nil {
		return err
	}
	c.w.Header().Add("Vary", "Accept")
	from := c.number("from", 0)
	find := func(cursor string, limit int) (*RunSearch, error) {
		q, err := c.searchQuery()
		if err != nil {
			return nil, err
		}
		if from > 0 && cursor == "" {
			l, err := c.look()
			if err != nil {
				return nil, err
			}
			first, err := l.Rows(c.ctx, c.run(), lens.RowsQuery{From: from, Count: 1})
			if err != nil || len(first.Lines) == 0 {
				return &RunSearch{Hits: []RunHit{}}, err
			}
			q.From = first.Lines[0].Seq
		}
		q.Runs, q.After, q.Limit = []spool.RunID{c.run()}, cursor, min(limit, c.server.limits.Hits)
		page, err := search.Search(c.ctx, c.backend, q)
		if err == nil && len(page.Errors) > 0 {
			err = page.Errors[0] // of the one run
		}
		if err != nil {
			return nil, err
		}
		result := &RunSearch{Hits: make([]RunHit, len(page.Hits)), Next: page.Next, Bytes: page.Bytes}
		for i := range page.Hits {
			result.Hits[i].Hit = page.Hits[i]
		}
		err = c.numberHits(result.Hits)
		result.Hits = slices.DeleteFunc(result.Hits, func(h RunHit) bool { return h.N > 0 && h.N < from })
		return result, err
	}
	if form == formNDJSON {
		return c.streamHits(find)
	}
	page, err := find(c.text("cursor"), int(c.number("limit", int64(c.server.limits.Hits))))
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, page)
}

// searchQuery returns what to find.
func (c *call) searchQuery() (search.Query, error) {
	q := search.Query{Pattern: c.text("q"), Literal: c.text("mode") != "regex", IgnoreCase: c.flag("ignore_case")}
	if most := c.server.limits.Pattern; len(q.Pattern) > most {
		return q, problemf("invalid", "q has %d bytes, and may have %d", len(q.Pattern), most)
	}
	return q, nil
}

// searchAll finds lines in the runs that the query selects.
func (c *call) searchAll() error {
	f, err := c.filter()
	if err != nil {
		return err
	}
	q, err := c.searchQuery()
	if err != nil {
		return err
	}
	q.Filter = f
	for _, id := range c.query["run"] {
		q.Runs = append(q.Runs, spool.RunID(id))
	}
	q.Limit, q.After = int(c.number("limit", 0)), c.text("cursor")
	page, err := search.Search(c.ctx, c.backend, q)
	if err != nil {
		return err
	}
	result := SearchPage{Hits: page.Hits, Next: page.Next, Bytes: page.Bytes}
	if result.Hits == nil {
		result.Hits = []search.Hit{}
	}
	for _, err := range page.Errors {
		p := c.complete(*toProblem(err))
		result.Errors = append(result.Errors, p)
	}
	return c.reply(http.StatusOK, result)
}

// defaultBudget is the size of a transcript whose query names none, in tokens.
const defaultBudget = 8000

// transcript answers with what a person, or a model with a budget, reads of the log.
func (c *call) transcript() error {
	form, err := c.accepts("application/json", "text/plain")
	if err != nil {
		return err
	}
	info, err := c.backend.Stat(c.ctx, c.run())
	if err != nil {
		return err
	}
	b := render.Budget{
		Tokens: int(c.number("budget_tokens", defaultBudget)), After: spool.Seq(c.number("after", 0)), To: info.Last,
		Stream: spool.Stream(c.text("stream")),
	}
	excerpt, err := b.Read(c.ctx, c.handle())
	if err != nil {
		return err
	}
	c.w.Header().Set("Spool-Next", strconv.FormatUint(uint64(info.Last), 10))
	if form == "application/json" {
		return c.reply(http.StatusOK, excerpt)
	}
	return c.send(http.StatusOK, "text/plain; charset=utf-8", []byte(excerpt.Text))
}
