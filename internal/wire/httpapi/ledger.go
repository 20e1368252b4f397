package httpapi

import (
	"net/http"
	"time"

	"github.com/spool-run/spool/internal/ledger"
)

// RunStats is what runs used, in groups and in all.
type RunStats struct {
	By     string         `json:"by"`
	Groups []ledger.Group `json:"groups"`
	Total  ledger.Group   `json:"total"`
	// Errors are about runs that could not be read and do not count.
	Errors []Problem `json:"errors,omitempty"`
}

// ledger answers what a run used.
func (c *call) ledger() error {
	info, err := c.backend.Stat(c.ctx, c.run())
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, ledger.Of(&info, time.Now()))
}

// stats answers what runs used.
func (c *call) stats() error {
	f, err := c.filter()
	if err != nil {
		return err
	}
	by, err := ledger.ParseBy(c.text("by"), time.UTC)
	if err != nil {
		return err
	}
	sum, err := ledger.Sum(c.ctx, c.backend, f, nil, by)
	if err != nil {
		return err
	}
	answer := RunStats{By: sum.By, Groups: sum.Groups, Total: sum.Total}
	for _, err := range sum.Unread[:min(len(sum.Unread), c.server.limits.List)] {
		answer.Errors = append(answer.Errors, c.complete(*toProblem(err)))
	}
	return c.reply(http.StatusOK, answer)
}
