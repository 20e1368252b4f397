package main

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"syscall"
	"time"
)

// chattyLine is the line of a chatty process, one system call each.
var chattyLine = append(bytes.Repeat([]byte("."), 99), '\n')

// chatter runs the chatty process: it writes count lines and computes for a
// while before each.
func chatter(count, work string) error {
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	d, err := time.ParseDuration(work)
	if err != nil {
		return err
	}
	for range n {
		if d > 0 {
			for began := time.Now(); time.Since(began) < d; {
			}
		}
		if _, err := syscall.Write(1, chattyLine); err != nil {
			return err
		}
	}
	return nil
}

// measureChatty has a process make very many small writes, and measures the
// number of messages and the time to the first byte. A process that does
// nothing else fills the pipe faster than any server empties it; a process that
// computes in between shows how a server handles single lines.
func measureChatty(ctx context.Context, b *bench, s *subject) error {
	c, err := dialWire(ctx, s.url, true)
	if err != nil {
		return err
	}
	defer c.close()
	for range b.pick(20, 10) {
		if err := c.within(10 * time.Second); err != nil {
			return err
		}
		began := time.Now()
		p, err := c.run(b.self, "-chatty", "1", "0s")
		if err != nil {
			return fmt.Errorf("first byte: %w", err)
		}
		if err := p.check(0, int64(len(chattyLine))); err != nil {
			return err
		}
		b.addTime(s.name, "chatty.first", p.first.Sub(began))
	}
	if err := b.chatty(c, s, "chatty", b.pick(200_000, 100_000), 0); err != nil {
		return err
	}
	return b.chatty(c, s, "working", b.pick(50_000, 25_000), 10*time.Microsecond)
}

// chatty runs one process that writes n lines.
func (b *bench) chatty(c *wireClient, s *subject, metric string, n int, work time.Duration) error {
	if err := c.within(60 * time.Second); err != nil {
		return err
	}
	before, err := s.cpu()
	if err != nil {
		return err
	}
	began := time.Now()
	p, err := c.run(b.self, "-chatty", strconv.Itoa(n), work.String())
	if err != nil {
		return err
	}
	took := time.Since(began)
	after, err := s.cpu()
	if err != nil {
		return err
	}
	if err := p.check(0, int64(n*len(chattyLine))); err != nil {
		return err
	}
	b.add(s.name, metric+".messages", float64(p.outputs))
	b.addTime(s.name, metric+".cpu", after-before)
	b.addTime(s.name, metric+".time", took)
	return nil
}
