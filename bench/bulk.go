package main

import (
	"context"
	"strconv"
	"time"
)

const gibibyte = 1 << 30

// bulkBytes is the output of one process in the throughput measurement.
func (b *bench) bulkBytes() int64 { return int64(b.pick(gibibyte, gibibyte/4)) }

// zeros is a process that writes n bytes as fast as they are read.
func zeros(n int64) []string {
	const block = 64 << 10
	return []string{"dd", "if=/dev/zero", "bs=" + strconv.Itoa(block), "count=" + strconv.FormatInt(n/block, 10), "status=none"}
}

// measureBulk has one process write a lot to a client that counts the bytes.
func measureBulk(ctx context.Context, b *bench, s *subject) error {
	c, err := dialWire(ctx, s.url, false)
	if err != nil {
		return err
	}
	defer c.close()
	if err := c.within(90 * time.Second); err != nil {
		return err
	}
	before, err := s.cpu()
	if err != nil {
		return err
	}
	n := b.bulkBytes()
	began := time.Now()
	p, err := c.run(zeros(n)...)
	if err != nil {
		return err
	}
	took := time.Since(began)
	after, err := s.cpu()
	if err != nil {
		return err
	}
	if err := p.check(0, n); err != nil {
		return err
	}
	b.add(s.name, "bulk.rate", float64(n)/took.Seconds())
	b.add(s.name, "bulk.cpu", (after-before).Seconds()*gibibyte/float64(n))
	b.add(s.name, "bulk.chunk", float64(n)/float64(p.outputs))
	return s.forget()
}
