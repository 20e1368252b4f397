package httpapi

import (
	"fmt"
	"mime"
	"net/http"

	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/export"
)

// exportOperation is a log as a file.
func exportOperation() operation {
	format := param{name: "format", doc: "The form of the file; jsonl without it"}
	var forms []string
	for _, f := range export.Formats {
		format.oneOf = append(format.oneOf, string(f))
		if name, _, err := mime.ParseMediaType(f.Type()); err == nil && f != export.Cast2 {
			forms = append(forms, name)
		}
	}
	return operation{method: "GET", pattern: "/v1/runs/{run}/export", name: "exportRun", scope: access.Read, summary: "The log of a run as a file for other programs",
		query: []param{format}, status: 200, forms: forms, problems: []string{"not_found", "unsupported"}, serve: (*call).export}
}

// export answers with a file, which is written as the log is read.
func (c *call) export() error {
	info, err := c.backend.Stat(c.ctx, c.run())
	if err != nil {
		return err
	}
	format := export.Format(c.text("format"))
	if format == "" {
		format = export.JSONL
	}
	if err := format.Check(&info); err != nil {
		return err
	}
	h := c.unbuffered(format.Type())
	h.Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", format.FileName(&info)))
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'; frame-ancestors 'self'")
	h.Set("X-Frame-Options", "SAMEORIGIN")
	c.w.WriteHeader(http.StatusOK)
	if c.r.Method == http.MethodHead {
		return nil
	}
	if err := export.Write(c.ctx, c.w, c.handle(), format); err != nil {
		c.server.log.Info("an export ended", "request", c.id, "run", c.run(), "err", err)
		panic(http.ErrAbortHandler) // the client must not take a part for the whole
	}
	return nil
}
