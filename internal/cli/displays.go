package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
	"github.com/spool-run/spool/render"
)

// updates holds the displays that a turn updates. On a terminal an update
// replaces the display if it was shown last; elsewhere only the last state is
// printed, at the end of the turn, and not every step of a progress bar.
type updates struct {
	last     string // id of the display that was shown last; empty after other output
	lines    int    // lines of that display on the terminal
	pictured bool   // the display is an image on the terminal
	order    []string
	state    map[string]*spool.Event // printed when the turn ends
}

// update handles updates of displays. It reports whether the event is handled
// completely.
func (p *printer) update(ctx context.Context, e *spool.Event) (handled bool, err error) {
	if e.Kind != python.KindDisplay {
		return false, p.flush(ctx)
	}
	var d python.Display
	if json.Unmarshal(e.Data, &d) != nil || d.ID == "" {
		return d.Clear, nil // printed output cannot be cleared
	}
	if p.rows > 0 {
		return true, p.replace(ctx, e, &d)
	}
	if !d.Update {
		return false, nil
	}
	if p.held.state == nil {
		p.held.state = make(map[string]*spool.Event)
	}
	if p.held.state[d.ID] == nil {
		p.held.order = append(p.held.order, d.ID)
	}
	kept := *e
	kept.Data = bytes.Clone(e.Data) // the reader reuses the memory of the event
	p.held.state[d.ID] = &kept
	return true, nil
}

// flush prints the last states.
func (p *printer) flush(ctx context.Context) error {
	for _, id := range p.held.order {
		e := p.held.state[id]
		out, err := render.Renderer{Blobs: p.blobs}.Event(ctx, e)
		if err := errors.Join(err, p.block(ctx, e, out)); err != nil {
			return err
		}
	}
	p.held = updates{}
	return nil
}

// replace shows a display on a terminal. It overwrites the last state if nothing
// else was shown since and all of it is on the screen.
func (p *printer) replace(ctx context.Context, e *spool.Event, d *python.Display) error {
	out, err := render.Renderer{Blobs: p.blobs}.Display(ctx, d)
	if err != nil {
		return p.say(err.Error())
	}
	if d.Update && p.held.last == d.ID && p.held.lines < p.rows {
		if _, err := fmt.Fprintf(p.stdout, "\x1b[%dA\r\x1b[J", p.held.lines); err != nil {
			return err
		}
	}
	p.held.pictured = false
	counter := &lineCounter{w: p.stdout}
	stdout := p.stdout
	p.stdout = counter
	err = p.block(ctx, e, out)
	p.stdout = stdout
	if p.held.last, p.held.lines = d.ID, counter.lines; p.held.pictured {
		p.held.last = ""
	}
	return err
}

type lineCounter struct {
	w     io.Writer
	lines int
}

func (c *lineCounter) Write(b []byte) (int, error) {
	c.lines += bytes.Count(b, []byte("\n"))
	return c.w.Write(b)
}

// imageFiles saves images as files, which a user can open.
type imageFiles struct {
	dir   string // directory of the files; if empty, save makes a temporary one, which a later keeper removes
	count int
}

// describe saves an image and returns a line with its path.
func (f *imageFiles) describe(ctx context.Context, v render.Value, blobs render.Blobs) string {
	if f == nil {
		if v.Blob != nil {
			return fmt.Sprintf("[%s of %d bytes: %s]", v.MIME, v.Size(), v.Blob.Digest)
		}
		return fmt.Sprintf("[%s of %d bytes]", v.MIME, v.Size())
	}
	name, err := f.save(ctx, v, blobs)
	if err != nil {
		return fmt.Sprintf("[%s of %d bytes, not saved: %v]", v.MIME, v.Size(), err)
	}
	return fmt.Sprintf("[%s: %s]", v.MIME, name)
}

func (f *imageFiles) save(ctx context.Context, v render.Value, blobs render.Blobs) (name string, err error) {
	if f.dir == "" {
		if f.dir, err = os.MkdirTemp("", "spool-py-"); err != nil {
			return "", err
		}
	} else if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return "", err
	}
	from, err := v.Open(ctx, blobs)
	if err != nil {
		return "", err
	}
	defer from.Close()
	_, kind, _ := strings.Cut(v.MIME, "/")
	for {
		f.count++
		name = filepath.Join(f.dir, fmt.Sprintf("%d.%s", f.count, kind))
		to, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, os.ErrExist) {
			continue // a file of an earlier command
		}
		if err != nil {
			return "", err
		}
		_, err = io.Copy(to, from)
		return name, errors.Join(err, to.Close())
	}
}
