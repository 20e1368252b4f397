package eventlog_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/eventlog"
)

// BenchmarkAppend measures one append while a number of readers follow.
func BenchmarkAppend(b *testing.B) {
	for _, readers := range []int{0, 1, 1000} {
		b.Run(fmt.Sprintf("readers=%d", readers), func(b *testing.B) {
			log := eventlog.New(eventlog.Options{Run: "r", Tier: nil, Memory: 1 << 20})
			ctx, cancel := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			for range readers {
				wg.Go(func() {
					for range log.Follow(ctx, 0) {
					}
				})
			}
			payload := make([]byte, 100)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := log.Append(spool.Event{Kind: spool.KindOutput, Stream: spool.Stdout, Bytes: payload}); err != nil {
					b.Fatal(err)
				}
			}
			cancel()
			wg.Wait()
		})
	}
}

// BenchmarkDeliver measures how long a number of readers take to receive each
// of 10,000 events that are appended meanwhile.
func BenchmarkDeliver(b *testing.B) {
	const events = 10_000
	for _, readers := range []int{1, 1000} {
		b.Run(fmt.Sprintf("readers=%d", readers), func(b *testing.B) {
			payload := make([]byte, 100)
			b.ReportAllocs()
			for b.Loop() {
				log := eventlog.New(eventlog.Options{Run: "r", Memory: 64 << 20})
				var wg sync.WaitGroup
				for range readers {
					wg.Go(func() {
						for range log.Follow(context.Background(), 0) {
						}
					})
				}
				for range events {
					if _, err := log.Append(spool.Event{Kind: spool.KindOutput, Stream: spool.Stdout, Bytes: payload}); err != nil {
						b.Fatal(err)
					}
				}
				if _, err := log.Append(spool.Event{Kind: spool.KindClosed}); err != nil {
					b.Fatal(err)
				}
				wg.Wait()
			}
			b.ReportMetric(float64(b.N)*events*float64(readers)/b.Elapsed().Seconds()/1e6, "Mdeliveries/s")
		})
	}
}

// BenchmarkWake measures one append and the reader that waited for it.
func BenchmarkWake(b *testing.B) {
	log := eventlog.New(eventlog.Options{Run: "r", Memory: 1 << 20})
	seen := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		defer close(seen)
		for _, err := range log.Follow(ctx, 0) {
			if err != nil {
				return
			}
			seen <- struct{}{}
		}
	}()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := log.Append(spool.Event{Kind: spool.KindOutput, Stream: spool.Stdout}); err != nil {
			b.Fatal(err)
		}
		<-seen
	}
	cancel()
	<-seen
}
