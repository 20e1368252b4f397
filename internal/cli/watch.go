package cli

import (
	"context"
	"io"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// watchEvery is the time between two screens of a --watch flag.
const watchEvery = time.Second

// refresh shows a text on the terminal, again and again in place, until a signal.
// A new size of the terminal shows it at once, and so does a change. The function
// gets the width of the terminal.
func (a *app) refresh(ctx context.Context, changed <-chan struct{}, text func(ctx context.Context, cols int) (string, error)) error {
	if !isTerminal(a.stdout) {
		return usageErrorf("--watch needs a terminal")
	}
	signals, stop := notify(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGWINCH)
	defer stop()
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	if _, err := io.WriteString(a.stdout, "\x1b[2J"); err != nil {
		return err
	}
	for {
		size, _ := terminalSize(a.stdout)
		shown, err := text(ctx, int(size.Cols))
		if err != nil {
			return err
		}
		if _, err := io.WriteString(a.stdout, frame(shown, int(size.Rows))); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-changed:
		case s := <-signals:
			if s != unix.SIGWINCH {
				return exit(exitSignal + signalNumber(s))
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// frame returns what writes lines over those that are on the screen, as many as
// fit.
func frame(text string, rows int) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if rows > 1 && len(lines) > rows-1 {
		lines = lines[:rows-1]
	}
	return "\x1b[H" + strings.Join(lines, "\x1b[K\n") + "\x1b[K\n\x1b[J"
}
