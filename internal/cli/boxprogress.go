package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
)

// preparation is the line on a terminal that says which step of the preparation
// of a sandbox runs. The first output of the code ends it.
type preparation struct {
	w io.Writer

	mu    sync.Mutex
	shown bool // the line is on the terminal
	over  bool // output follows: no line any more
}

// follow shows the steps until the code starts.
func (p *preparation) follow(ctx context.Context, run *spool.Run) {
	for e, err := range run.Events(ctx, 0) {
		if err != nil {
			return
		}
		var n spool.Notice
		if e.Kind == spool.KindNotice && json.Unmarshal(e.Data, &n) == nil && n.Code == python.NoticePrepare {
			p.show(n.Text)
			continue
		}
		p.clear(false)
		if e.Turn != 0 {
			return
		}
	}
}

// show replaces the line.
func (p *preparation) show(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return
	}
	p.shown = true
	fmt.Fprintf(p.w, "\r\x1b[Kspool: %s …", text)
}

// clear removes the line; with over it stays away.
func (p *preparation) clear(over bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown {
		p.shown = false
		fmt.Fprint(p.w, "\r\x1b[K")
	}
	p.over = p.over || over
}

// before returns a writer that removes the line before it writes to w.
func (p *preparation) before(w io.Writer) io.Writer { return &afterPreparation{p, w} }

type afterPreparation struct {
	preparation *preparation
	w           io.Writer
}

func (a *afterPreparation) Write(b []byte) (int, error) {
	a.preparation.clear(true)
	return a.w.Write(b)
}
