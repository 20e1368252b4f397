package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/eventlog"
)

// paceOfProcess is how many events a second a busy process makes: in chunks
// of 64 KiB, 655 MB.
const paceOfProcess = 10_000

// measureReaders appends to a log that one reader follows, and to one that
// many follow: as fast as it can, and as fast as a process would.
func measureReaders(ctx context.Context, b *bench) error {
	d := time.Duration(b.pick(1000, 300)) * time.Millisecond
	for _, of := range []struct {
		metric  string
		readers int
		pace    int
	}{
		{"readers.1", 1, 0},
		{"readers.1000", 1000, 0},
		{"paced.1", 1, paceOfProcess},
		{"paced.1000", 1000, paceOfProcess},
	} {
		if err := b.followed(ctx, of.metric, of.readers, of.pace, d); err != nil {
			return fmt.Errorf("%s: %w", of.metric, err)
		}
	}
	return nil
}

// followed appends for a while with so many readers following, at that many
// events a second unless pace is zero.
func (b *bench) followed(ctx context.Context, metric string, readers, pace int, d time.Duration) error {
	log := eventlog.New(eventlog.Options{})
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var (
		wg        sync.WaitGroup
		delivered atomic.Int64
		unclosed  atomic.Int64
	)
	for range readers {
		wg.Go(func() {
			var n int64
			closed := false
			for e, err := range log.Follow(ctx, 0) {
				if err != nil {
					break
				}
				n++
				closed = e.Kind == spool.KindClosed
			}
			delivered.Add(n)
			if !closed {
				unclosed.Add(1)
			}
		})
	}
	payload := make([]byte, 100)
	appended := 0
	began := time.Now()
	for ; appended%64 != 0 || time.Since(began) < d; appended++ {
		if _, err := log.Append(spool.Event{Kind: spool.KindOutput, Stream: spool.Stdout, Bytes: payload}); err != nil {
			return err
		}
		if pace > 0 && appended%16 == 0 {
			time.Sleep(time.Until(began.Add(time.Duration(appended) * time.Second / time.Duration(pace))))
		}
	}
	took := time.Since(began)
	if _, err := log.Append(spool.Event{Kind: spool.KindClosed}); err != nil {
		return err
	}
	wg.Wait()
	if n := unclosed.Load(); n > 0 {
		return errors.Join(fmt.Errorf("%d did not see the end", n), ctx.Err())
	}
	b.add(subjectSpool, metric, float64(appended)/took.Seconds())
	b.add(subjectSpool, metric+".delivered", float64(delivered.Load())/time.Since(began).Seconds())
	return nil
}
