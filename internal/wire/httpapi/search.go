package httpapi

import (
	"net/http"
	"strconv"

	"github.com/spool-run/spool"
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

// search finds lines in one run.
func (c *call) searchRun() error {
	return c.search(search.Query{Runs: []spool.RunID{c.run()}})
}

// searchAll finds lines in the runs that the query selects.
func (c *call) searchAll() error {
	f, err := c.filter()
	if err != nil {
		return err
	}
	q := search.Query{Filter: f}
	for _, id := range c.query["run"] {
		q.Runs = append(q.Runs, spool.RunID(id))
	}
	return c.search(q)
}

func (c *call) search(q search.Query) error {
	q.Pattern, q.Literal, q.IgnoreCase = c.text("q"), c.text("mode") != "regex", c.flag("ignore_case")
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
