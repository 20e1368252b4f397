package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"

	"github.com/spool-run/spool/internal/wire/execserver"
)

// servedRole makes this program an exec-server that owns its processes: the
// same protocol and engine as spool exec-server, without a keeper.
const servedRole = "exec-server"

// serveInProcess runs that server. It prints its URL like spool exec-server.
func serveInProcess() (err error) {
	debug.SetGCPercent(400) // as spool exec-server does
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	h, err := openHost(filepath.Join(os.Getenv("XDG_STATE_HOME"), "spool"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := execserver.New(execserver.Options{Backend: h})
	defer server.Close()
	s := &http.Server{Handler: server}
	context.AfterFunc(ctx, func() { _ = s.Close() })
	fmt.Printf("ws://%s\n", ln.Addr())
	if err := s.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// served starts processes through a server with a keeper and through one
// without, in turns.
func (b *bench) served(ctx context.Context) (err error) {
	var all []*subject
	for _, of := range []struct{ metric, path string }{{"keeper.served", b.spool}, {"keeper.served.host", b.self}} {
		path, err := filepath.Abs(of.path)
		if err != nil {
			return err
		}
		s := &subject{name: of.metric, path: path, dir: filepath.Join(b.dir, of.metric)}
		if err := s.restart(ctx); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.shutdown()) }()
		all = append(all, s)
	}
	for range b.pick(12, 5) {
		for _, s := range all {
			took, err := sequence(ctx, s, s.name, true, 20)
			if err != nil {
				return err
			}
			for _, d := range took {
				b.addTime(subjectSpool, s.name, d)
			}
		}
	}
	return nil
}
