package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/pause"
)

// terminalBytes is what a program writes to the terminal whose screen is asked for.
const terminalBytes = 100_000_000

// terminalScript draws a title, which stays, and scrolls coloured lines below it: so
// that the last megabytes are not enough to know what the screen shows.
const terminalScript = `printf '\033[2J\033[1;1HTITLE\033[2;24r\033[2;1H'
yes "$(printf '\033[32mok\033[0m internal/wire/httpapi 1.2s \033[1mcached\033[0m of the last hour')" | head -c "$0"
exec sleep 1000`

// httpScreen asks for the screen of a terminal that lives and has written much.
func httpScreen(ctx context.Context, b *bench) error {
	home := filepath.Join(b.dir, "http")
	n := int64(b.pick(terminalBytes, terminalBytes/10))
	return b.withServe(ctx, home, func(s *webServer) (err error) {
		c, err := s.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		r, err := spool.Start(ctx, c, spool.Spec{
			Argv: []string{"sh", "-c", terminalScript, fmt.Sprint(n)}, TTY: &spool.Size{Rows: 24, Cols: 80},
		})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.Kill(ctx)) }()
		for {
			info, err := r.Info(ctx)
			if err != nil {
				return err
			}
			if info.Bytes >= n {
				break
			}
			if err := pause.For(ctx, 20*time.Millisecond); err != nil {
				return err
			}
		}
		path := "/v1/runs/" + string(r.ID()) + "/screen"
		for _, of := range []struct {
			metric, query string
			exact         bool
		}{{"http.screen", "", false}, {"http.screen.first", "?exact=1", true}, {"http.screen.exact", "?exact=1", true}} {
			var screen struct {
				Exact bool
				Ansi  string
			}
			began := time.Now()
			if err := s.Call(ctx, "GET", path+of.query, nil, &screen); err != nil {
				return err
			}
			b.addTime(subjectSpool, of.metric, time.Since(began))
			if screen.Ansi == "" || of.exact && !screen.Exact {
				return fmt.Errorf("%s: exact %t, %d bytes", of.metric, screen.Exact, len(screen.Ansi))
			}
		}
		return nil
	})
}
