package httpapi

import (
	"errors"
	"net/http"

	"github.com/spool-run/spool"
)

// ApplyRequest names the changes of a run to make in its directory.
type ApplyRequest struct {
	Paths []string `json:"paths,omitempty"` // none means all
	// PathsBase64 are paths that are not UTF-8.
	PathsBase64 [][]byte `json:"paths_base64,omitempty"`
	// Dry changes nothing: the answer is what would be changed.
	Dry bool `json:"dry,omitempty"`
}

func (c *call) changes() error {
	w, err := power[spool.Workspaces](c, "list changes")
	if err != nil {
		return err
	}
	q := spool.ChangeQuery{Patch: c.flag("patch"), After: c.text("after"), MaxBytes: int(c.number("max_bytes", changesBytes))}
	page, err := w.Changes(c.ctx, c.run(), q)
	if err != nil {
		return err
	}
	if page.Changes == nil {
		page.Changes = []spool.Change{}
	}
	return c.reply(http.StatusOK, page)
}

// changesBytes is about how large a page of changes is whose query names no size.
const changesBytes = 1 << 20

func (c *call) apply() error {
	var r ApplyRequest
	if err := c.decode(&r, "request"); err != nil {
		return err
	}
	w, err := power[spool.Workspaces](c, "apply changes")
	if err != nil {
		return err
	}
	for _, path := range r.PathsBase64 {
		r.Paths = append(r.Paths, string(path))
	}
	page, err := w.Apply(c.ctx, c.run(), r.Paths, r.Dry)
	if page.Changes == nil {
		page.Changes = []spool.Change{}
	}
	if errors.Is(err, spool.ErrExists) {
		p := toProblem(err)
		p.Changes = &page // say which conflict
		return p
	}
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, page)
}

func (c *call) discard() error {
	w, err := power[spool.Workspaces](c, "discard changes")
	if err != nil {
		return err
	}
	if err := w.Discard(c.ctx, c.run()); err != nil {
		return err
	}
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}
