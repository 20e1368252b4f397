package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
)

// longPreparation is how long a preparation may take before those who do not look at a
// terminal are told.
const longPreparation = time.Second

// preparation is the line on a terminal that says which step of the preparation
// of a sandbox runs. The first output of the code ends it. In place of a terminal there
// are two lines: one when the preparation takes long, and one at its end.
type preparation struct {
	w        io.Writer
	terminal bool

	mu    sync.Mutex
	shown bool // the line is there
	over  bool // output follows: no line any more

	// Without a terminal:
	step  string      // the present one
	began time.Time   // zero before the first step
	timer *time.Timer // writes the first line; nil before the first step
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
		if e.Kind == spool.KindInput { // it waits for the preparation
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
	if p.terminal {
		p.shown = true
		fmt.Fprintf(p.w, "\r\x1b[Kspool: %s …", text)
		return
	}
	if p.step = text; p.timer == nil {
		p.began, p.timer = time.Now(), time.AfterFunc(longPreparation, p.announce)
	}
}

// announce writes the first line without a terminal.
func (p *preparation) announce() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return
	}
	p.shown = true
	fmt.Fprintf(p.w, "spool: %s …\n", p.step)
}

// clear removes the line, or writes the last one; with over none follows. Without a
// terminal there is one preparation only.
func (p *preparation) clear(over bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = p.over || over || !p.terminal
	if p.timer != nil {
		p.timer.Stop()
	}
	if !p.shown {
		return
	}
	p.shown = false
	if p.terminal {
		fmt.Fprint(p.w, "\r\x1b[K")
	} else {
		fmt.Fprintf(p.w, "spool: the preparation took %.1f s\n", time.Since(p.began).Seconds())
	}
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
