package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/bench/internal/peers"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/keeper"
)

// measureKeeper repeats measureLocal through a keeper, in turns with one in
// process, and restarts a server with many runs.
func measureKeeper(ctx context.Context, b *bench) error {
	if err := b.keptBeside(ctx); err != nil {
		return err
	}
	if err := b.served(ctx); err != nil {
		return err
	}
	return b.restart(ctx)
}

// keptBeside starts processes and transfers a gibibyte, through a handle in
// this process and through a keeper.
func (b *bench) keptBeside(ctx context.Context) (err error) {
	h, err := openHost(filepath.Join(b.dir, "beside"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	dir, err := os.MkdirTemp(b.dir, "kept") // a new keeper in every round
	if err != nil {
		return err
	}
	bin, err := filepath.Abs(b.spool)
	if err != nil {
		return err
	}
	k, err := keeper.Open(keeper.Options{
		Dir: dir, Build: "bench", Host: host.Options{Dir: dir},
		Keeper: func(dir string) *exec.Cmd {
			cmd := exec.Command(bin, "keeper-role", "-state", dir, "-build", "bench")
			cmd.Env = keeper.Environ()
			return cmd
		},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	if err := runOnce(ctx, k, 0, "true"); err != nil {
		return err
	}
	owners, err := host.Owners(dir)
	if err != nil || len(owners) != 1 {
		return fmt.Errorf("find the keeper: found %d: %w", len(owners), err)
	}
	rss, err := peers.RSS(owners[0].Pid)
	if err != nil {
		return err
	}
	b.add(subjectSpool, "keeper.rss", float64(rss)) // without live runs
	for range 4 {                                   // in turns, because the speed of the machine varies
		if err := b.runs(ctx, h, "keeper.start.host", 20); err != nil {
			return err
		}
		if err := b.runs(ctx, k, "keeper.start", 20); err != nil {
			return err
		}
	}
	n := b.bulkBytes()
	for _, of := range []struct {
		metric  string
		backend spool.Backend
	}{{"keeper.rate.host", h}, {"keeper.rate", k}} {
		began := time.Now()
		if err := runOnce(ctx, of.backend, n, zeros(n)...); err != nil {
			return err
		}
		b.add(subjectSpool, of.metric, float64(n)/time.Since(began).Seconds())
	}
	return nil
}

// restart kills a server that has many runs on disk and one live run, starts
// another server, and measures the time until the live run can be read again.
func (b *bench) restart(ctx context.Context) (err error) {
	dir := filepath.Join(b.dir, "restart")
	bin, err := filepath.Abs(b.spool)
	if err != nil {
		return err
	}
	s, err := launch(ctx, bin, dir)
	if err != nil {
		return err
	}
	c, err := client.Dial(ctx, s.url, client.Options{})
	if err != nil {
		return errors.Join(err, s.stop())
	}
	for range b.pick(1000, 200) {
		if err := runOnce(ctx, c, 0, "true"); err != nil {
			return errors.Join(err, c.Close(), s.stop())
		}
	}
	live, err := spool.Start(ctx, c, spool.Spec{Argv: []string{"/bin/sleep", "1000"}})
	if err == nil {
		err = s.cmd.Process.Kill()
	}
	if err != nil {
		return errors.Join(err, c.Close(), s.stop())
	}
	<-s.exited
	_ = c.Close() // its server has ended

	began := time.Now()
	if s, err = launch(ctx, bin, dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	if c, err = client.Dial(ctx, s.url, client.Options{}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	r := spool.Attach(c, live.ID())
	info, err := r.Info(ctx)
	if err != nil || info.State != spool.StateRunning {
		return fmt.Errorf("the live run is %s after the restart: %w", info.State, err)
	}
	b.add(subjectSpool, "restart", time.Since(began).Seconds())
	return r.Kill(ctx)
}
