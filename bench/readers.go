package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spool-run/spool"
)

// measureReaders has a process write as fast as it can while one reader follows
// its run, and while a thousand do.
func measureReaders(ctx context.Context, b *bench) error {
	n := int64(b.pick(256<<20, 64<<20))
	for _, readers := range []int{1, 1000} {
		if err := b.followed(ctx, fmt.Sprintf("readers.%d", readers), readers, n); err != nil {
			return fmt.Errorf("%d readers: %w", readers, err)
		}
	}
	return nil
}

// followed runs a process that writes n bytes while readers follow it.
func (b *bench) followed(ctx context.Context, metric string, readers int, n int64) (err error) {
	h, err := openHost(filepath.Join(b.dir, metric))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	began := time.Now()
	r, err := spool.Start(ctx, h, spool.Spec{Argv: zeros(n), EnvPolicy: &spool.EnvPolicy{Inherit: "core"}})
	if err != nil {
		return err
	}
	var (
		wg        sync.WaitGroup
		delivered atomic.Int64
		wrong     atomic.Int64
	)
	for range readers {
		wg.Go(func() {
			var events, bytes int64
			for e, err := range r.Events(ctx, 0) {
				if err != nil {
					break
				}
				events++
				bytes += int64(len(e.Bytes))
			}
			delivered.Add(events)
			if bytes != n {
				wrong.Add(1)
			}
		})
	}
	// The process exits when its last byte has been read. That time is the
	// speed of the writer, whenever the readers finish.
	exited := time.Time{}
	for e, err := range r.Events(ctx, 0) {
		if err != nil {
			return err
		}
		if e.Kind == spool.KindExited {
			exited = e.Time
		}
	}
	wg.Wait()
	if k := wrong.Load(); k > 0 {
		return errors.Join(fmt.Errorf("%d readers did not get every byte", k), ctx.Err())
	}
	b.add(subjectSpool, metric, float64(n)/exited.Sub(began).Seconds())
	b.add(subjectSpool, metric+".delivered", float64(delivered.Load())/time.Since(began).Seconds())
	return nil
}
