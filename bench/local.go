package main

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/process"
	"github.com/spool-run/spool/internal/host"
)

// measureLocal starts processes through a handle in this process, one at a
// time, with a state directory like a server's.
func measureLocal(ctx context.Context, b *bench) (err error) {
	if err := b.floor(ctx); err != nil {
		return err
	}
	h, err := openHost(filepath.Join(b.dir, "local"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	return b.runs(ctx, h, "start.local", b.pick(200, 100))
}

// openHost opens a host with a process engine in this process.
func openHost(dir string) (*host.Host, error) {
	return host.Open(host.Options{
		Dir: dir,
		Engines: map[string]host.NewEngine{
			spool.EngineProcess: func(owner string) (engine.Engine, error) {
				return process.New(process.Options{Owner: owner})
			},
		},
	})
}
