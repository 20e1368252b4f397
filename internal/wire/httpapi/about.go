package httpapi

import (
	"fmt"
	"net/http"

	"github.com/spool-run/spool"
)

// plain answers with text.
func (c *call) plain(text string) error {
	return c.send(http.StatusOK, "text/plain; charset=utf-8", []byte(text))
}

func (c *call) explain() error {
	code := c.r.PathValue("code")
	kind := problemOf(code)
	if kind.code != code {
		return problemf("no_route", "there is no problem %.100q", code)
	}
	return c.plain(fmt.Sprintf("%s: %s\nstatus %d\n\n%s\n", kind.code, kind.title, kind.status, kind.text))
}

func (c *call) getDocument() error {
	b, err := c.server.openAPI()
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, formJSON, b)
}

func (c *call) healthy() error { return c.plain("ok\n") }

// ready asks the backend for something cheap that needs all of it.
func (c *call) ready() error {
	for _, err := range c.server.backend.List(c.ctx, spool.Filter{Live: true, Limit: 1}) {
		if err != nil {
			return problemf("backend_lost", "%s", err)
		}
	}
	return c.plain("ok\n")
}
