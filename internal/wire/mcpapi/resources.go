package mcpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/python"
	"github.com/spool-run/spool/render"
)

// maxResource is how much of a run one read of a resource returns.
const maxResource = 1 << 20

// listedRuns is how many runs are listed as resources.
const listedRuns = 20

// runsURI is what the addresses of runs begin with.
const runsURI = "spool://runs/"

// formURI is the address of a form of a display.
func formURI(run spool.RunID, seq spool.Seq, mime string) string {
	return fmt.Sprintf("%s%s/events/%d/forms/%s", runsURI, run, seq, mime)
}

// addResources offers runs as resources to those who may read.
func (s *Server) addResources() {
	if s.opts.Subject.Scopes.Require("runs:read") != nil {
		return
	}
	for _, t := range []*mcp.ResourceTemplate{
		{URITemplate: runsURI + "{run}", Name: "run", Title: "A run", Description: "What is known about a run.", MIMEType: "application/json"},
		{URITemplate: runsURI + "{run}/output{?after,tail}", Name: "output", Title: "Output of a run", Description: "What a run wrote, after an event or the last bytes; 1 MiB at a time.", MIMEType: "text/plain"},
		{URITemplate: runsURI + "{run}/transcript", Name: "transcript", Title: "Transcript of a run", Description: "What a run showed, in its last state.", MIMEType: "text/plain"},
		{URITemplate: runsURI + "{run}/events/{seq}/forms/{type}/{subtype}", Name: "form", Title: "A form of a display", Description: "One form of what a cell displayed, such as image/png."},
	} {
		s.mcp.AddResourceTemplate(t, s.readResource)
	}
	s.mcp.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			result, err := next(ctx, method, req)
			if list, ok := result.(*mcp.ListResourcesResult); ok && err == nil {
				list.Resources = s.runResources(ctx)
				list.TTLMs = 0
			}
			return result, err
		}
	})
}

// runResources lists the newest runs.
func (s *Server) runResources(ctx context.Context) []*mcp.Resource {
	list := []*mcp.Resource{}
	for info, err := range s.opts.Backend.List(ctx, spool.Filter{Limit: listedRuns}) {
		if err != nil {
			continue
		}
		list = append(list, &mcp.Resource{URI: runsURI + string(info.ID), Name: shownName(&info), Title: what(&info), MIMEType: "application/json"})
	}
	return list
}

// readResource reads what an address names.
func (s *Server) readResource(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	uri := req.Params.URI
	c := &call{Server: s, ctx: ctx}
	contents, err := c.resource(uri)
	switch {
	case errors.Is(err, spool.ErrNotFound):
		return nil, mcp.ResourceNotFoundError(uri)
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", uri, err)
	}
	contents.URI = uri
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{contents}}, nil
}

// resourceRun returns the run that a resource is of.
func (c *call) resourceRun(uri string) (*spool.Run, spool.Info, error) {
	if err := c.opts.Subject.Scopes.Require(access.Read); err != nil {
		return nil, spool.Info{}, err
	}
	u, path, err := splitURI(uri)
	if err != nil || u.Scheme != "spool" || u.Host != "runs" {
		return nil, spool.Info{}, spool.ErrNotFound
	}
	return c.find(path[0])
}

// splitURI returns the parts of the address of a resource: a run, and what of it.
func splitURI(uri string) (u *url.URL, path []string, err error) {
	if u, err = url.Parse(uri); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", spool.ErrInvalid, err)
	}
	return u, strings.Split(strings.TrimPrefix(u.Path, "/"), "/"), nil
}

func (c *call) resource(uri string) (*mcp.ResourceContents, error) {
	u, path, err := splitURI(uri)
	if err != nil {
		return nil, err
	}
	run, info, err := c.find(path[0])
	if err != nil {
		return nil, err
	}
	switch {
	case len(path) == 1:
		data, err := json.Marshal(info)
		return &mcp.ResourceContents{MIMEType: "application/json", Text: string(data)}, err
	case len(path) == 2 && path[1] == "output":
		return c.outputResource(run, &info, u.Query())
	case len(path) == 2 && path[1] == "transcript":
		v := &RunView{Next: info.Last}
		err := c.transcript(v, run, 0, 0, maxResource)
		return &mcp.ResourceContents{MIMEType: "text/plain", Text: v.Text}, err
	case len(path) == 6 && path[1] == "events" && path[3] == "forms":
		seq, err := strconv.ParseUint(path[2], 10, 63)
		if err != nil || seq == 0 {
			return nil, fmt.Errorf("event %.40q: %w", path[2], spool.ErrNotFound)
		}
		return c.formResource(run, spool.Seq(seq), path[4]+"/"+path[5])
	}
	return nil, spool.ErrNotFound
}

// outputResource reads output after an event, or the last bytes. Where to go on from is
// in the metadata.
func (c *call) outputResource(run *spool.Run, info *spool.Info, query url.Values) (*mcp.ResourceContents, error) {
	number := func(name string) (uint64, error) {
		if !query.Has(name) {
			return 0, nil
		}
		n, err := strconv.ParseUint(query.Get(name), 10, 63)
		if err != nil {
			return 0, fmt.Errorf("%w: %s is a number", spool.ErrInvalid, name)
		}
		return n, nil
	}
	after, err := number("after")
	if err != nil {
		return nil, err
	}
	tail, err := number("tail")
	if err != nil {
		return nil, err
	}
	tail = min(tail, maxResource)
	var out bytes.Buffer
	next := spool.Seq(after)
	errFull := errors.New("full")
	err = each(c.ctx, run, next, info.Last, func(e *spool.Event) error {
		if e.Kind == spool.KindOutput {
			if tail == 0 && out.Len() > 0 && out.Len()+len(e.Bytes) > maxResource {
				return errFull
			}
			out.Write(e.Bytes)
			if keep := int(tail); tail > 0 && out.Len() > 2*keep {
				out.Next(out.Len() - keep)
			}
		}
		next = e.Seq
		return nil
	})
	if err != nil && !errors.Is(err, errFull) {
		return nil, err
	}
	if keep := int(tail); tail > 0 && out.Len() > keep {
		out.Next(out.Len() - keep)
	}
	return &mcp.ResourceContents{
		MIMEType: "text/plain", Text: strings.ToValidUTF8(out.String(), "\uFFFD"),
		Meta: mcp.Meta{"next": next, "more": next < info.Last, "state": info.State},
	}, nil
}

// formResource reads a form of a display.
func (c *call) formResource(run *spool.Run, seq spool.Seq, mime string) (*mcp.ResourceContents, error) {
	page, err := run.Read(c.ctx, spool.Query{After: seq - 1, MaxBytes: 1})
	if err != nil {
		return nil, err
	}
	if len(page.Events) == 0 || page.Events[0].Seq != seq {
		return nil, fmt.Errorf("event %d: %w", seq, spool.ErrNotFound)
	}
	var d python.Display
	e := &page.Events[0]
	if e.Kind != python.KindDisplay && e.Kind != python.KindResult || json.Unmarshal(e.Data, &d) != nil || d.Bundle[mime] == nil {
		return nil, fmt.Errorf("form %.80q of event %d: %w", mime, seq, spool.ErrNotFound)
	}
	for _, p := range withDisplay(nil, seq, &d) {
		if p.value.MIME != mime {
			continue
		}
		data, err := readValue(c.ctx, run, p.value)
		return &mcp.ResourceContents{MIMEType: mime, Blob: data}, err
	}
	out, err := render.Renderer{Blobs: run, MaxText: maxResource}.Display(c.ctx, &python.Display{Bundle: map[string]json.RawMessage{mime: d.Bundle[mime]}})
	if err != nil {
		return nil, err
	}
	if out.Text == "" {
		out.Text = string(d.Bundle[mime])
	}
	return &mcp.ResourceContents{MIMEType: mime, Text: out.Text}, nil
}

// readValue reads a value that is not too large.
func readValue(ctx context.Context, run *spool.Run, v render.Value) ([]byte, error) {
	if v.Size() > maxImageRead {
		return nil, fmt.Errorf("a value of %d bytes: %w", v.Size(), spool.ErrUnsupported)
	}
	f, err := v.Open(ctx, run)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxImageRead))
	return data, errors.Join(err, f.Close())
}
