package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/client"
)

// measureClient uses a server through package client: processes one at a time,
// then one that writes a lot.
func measureClient(ctx context.Context, b *bench, s *subject) (err error) {
	c, err := client.Dial(ctx, s.url, client.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := b.runs(ctx, c, "start.client", b.pick(200, 100)); err != nil {
		return err
	}
	before, err := s.cpu()
	if err != nil {
		return err
	}
	n := b.bulkBytes()
	began := time.Now()
	if err := runOnce(ctx, c, n, zeros(n)...); err != nil {
		return err
	}
	took := time.Since(began)
	after, err := s.cpu()
	if err != nil {
		return err
	}
	b.add(s.name, "client.rate", float64(n)/took.Seconds())
	b.add(s.name, "client.cpu", (after-before).Seconds()*gibibyte/float64(n))
	return s.forget()
}

// runs starts processes one after the other.
func (b *bench) runs(ctx context.Context, backend spool.Backend, metric string, n int) error {
	const warmup = 3
	for i := range warmup + n {
		began := time.Now()
		if err := runOnce(ctx, backend, 0, shortest); err != nil {
			return err
		}
		if i >= warmup {
			b.addTime(subjectSpool, metric, time.Since(began))
		}
	}
	return nil
}

// runOnce starts a process and follows it to its end. It checks the outcome and
// the number of output bytes.
func runOnce(ctx context.Context, backend spool.Backend, want int64, argv ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	r, err := spool.Start(ctx, backend, spool.Spec{Argv: argv, Env: map[string]string{"PATH": os.Getenv("PATH")}})
	if err != nil {
		return err
	}
	var got int64
	for e, err := range r.Stream(ctx, 0) {
		if err != nil {
			return fmt.Errorf("follow %v: %w", argv, err)
		}
		switch e.Kind {
		case spool.KindOutput:
			got += int64(len(e.Bytes))
		case spool.KindExited, spool.KindClosed:
		default:
			return fmt.Errorf("follow %v: unexpected event %s", argv, e.AppendJSON(nil))
		}
	}
	info, err := r.Info(ctx)
	if err != nil {
		return err
	}
	if info.Outcome == nil || info.Outcome.ExitCode() != 0 || got != want {
		return fmt.Errorf("%v: outcome %v after %d bytes, want %d bytes", argv, info.Outcome, got, want)
	}
	return nil
}
