package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/screen"
)

// display is the terminal of the user while it shows the terminal of a run.
type display struct {
	w        io.Writer
	terminal *os.File
	modes    screen.Modes // of the user's terminal, as the run changed them

	views  chan *screen.View // a better screen than the one that is shown
	better *screen.View      // the one that was received
	run    *spool.Run
}

// errRepaint ends a stream of events because the display has a better screen.
var errRepaint = errors.New("repaint")

// terminalOf returns the terminal that a writer of the output writes to.
func terminalOf(w io.Writer) (*os.File, bool) {
	if f, ok := w.(*screenFilter); ok {
		w = f.w
	}
	f, ok := w.(*os.File)
	return f, ok && isTerminal(f)
}

// Write implements [io.Writer].
func (d *display) Write(b []byte) (int, error) {
	_, _ = d.modes.Write(b)
	return d.w.Write(b)
}

// restore makes the terminal as it was before the run changed it. With newLine
// what follows begins on a line of its own.
func (d *display) restore(newLine bool) error {
	b := d.modes.Restore()
	if newLine && !d.modes.Alternate() {
		b = append(b, "\r\n"...)
	}
	d.modes = screen.Modes{}
	if len(b) == 0 {
		return nil
	}
	_, err := d.w.Write(b)
	return err
}

// paint shows the screen that a run has after the last event of info, and
// returns that event. If the end of the log does not tell all of the screen, it
// begins to read the rest.
func (d *display) paint(ctx context.Context, run *spool.Run, info *spool.Info) (spool.Seq, error) {
	view, err := screen.Load(ctx, run, info)
	if err != nil {
		return 0, fmt.Errorf("draw the screen of the run: %w", err)
	}
	if !view.Exact {
		go func() {
			if view, err := screen.Replay(ctx, run, info); err == nil { // otherwise the first paint stays
				d.offer(view)
			}
		}()
	}
	return view.Last, d.show(view)
}

// offer has a view painted, unless one waits already.
func (d *display) offer(view *screen.View) {
	select {
	case d.views <- view:
	default:
	}
}

// refresh paints the screen of the run again, because something else was shown
// on it.
func (d *display) refresh() {
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), refreshIn)
		defer cancel()
		info, err := d.run.Info(ctx)
		if err != nil {
			return // of a server that is lost again
		}
		if view, err := screen.Load(ctx, d.run, &info); err == nil {
			d.offer(view)
		}
	}()
}

// refreshIn is how long a screen may take to be painted again.
const refreshIn = 10 * time.Second

// repaint shows the view that was received, as it is after an event.
func (d *display) repaint(ctx context.Context, run *spool.Run, last spool.Seq) error {
	view := d.better
	d.better = nil
	if err := view.Advance(ctx, run, last); err != nil {
		return fmt.Errorf("draw the screen of the run: %w", err)
	}
	if err := d.restore(false); err != nil {
		return &writeError{err}
	}
	return d.show(view)
}

func (d *display) show(view *screen.View) error {
	size, ok := terminalSize(d.terminal)
	if !ok {
		rows, cols := view.Size()
		size = spool.Size{Rows: uint16(rows), Cols: uint16(cols)}
	}
	if _, err := d.Write(view.Paint(int(size.Rows), int(size.Cols))); err != nil {
		return &writeError{err}
	}
	return nil
}
