package main

import (
	"bytes"
	"context"
	"fmt"
	"time"
)

// crowdSize is the number of processes alive at once.
const crowdSize = 200

// killed is the exit code of a process that SIGKILL ended.
const killed = 128 + 9

// measureCrowd starts many processes, has each of them echo a line while all
// are alive, kills them, and checks how each of them ended.
func measureCrowd(ctx context.Context, b *bench, s *subject) error {
	c, err := dialWire(ctx, s.url, true)
	if err != nil {
		return err
	}
	defer c.close()
	if err := c.within(30 * time.Second); err != nil {
		return err
	}
	line := []byte("hello from the crowd\n")
	crowd := make([]*wireProcess, crowdSize)
	began := time.Now()
	steps := []struct {
		name string
		send func(i int) error
		done func(p *wireProcess) bool
	}{
		{"start", func(i int) (err error) {
			crowd[i], err = c.start(true, "cat")
			return err
		}, func(p *wireProcess) bool { return p.answered }},
		{"write", func(i int) error {
			return c.write(crowd[i], line)
		}, func(p *wireProcess) bool { return p.answered && p.bytes == int64(len(line)) }},
		{"terminate", func(i int) error {
			return c.terminate(crowd[i])
		}, (*wireProcess).done},
	}
	for _, step := range steps {
		if err := c.forEach(crowd, step.send, step.done, line); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	took := time.Since(began)
	for _, p := range crowd {
		if err := p.check(killed, int64(len(line))); err != nil {
			return err
		}
	}
	b.addTime(s.name, "crowd", took)
	return nil
}

// forEach sends a request for each process, a few at a time, and returns once
// all of them are done. Each output must be line.
func (c *wireClient) forEach(crowd []*wireProcess, send func(i int) error, done func(*wireProcess) bool, line []byte) error {
	ready := make(map[*wireProcess]bool, len(crowd))
	for sent := 0; len(ready) < len(crowd); {
		for ; sent < len(crowd) && sent < len(ready)+maxInFlight; sent++ {
			if err := send(sent); err != nil {
				return err
			}
		}
		p, err := c.receive()
		if err != nil {
			return fmt.Errorf("after %d of %d processes: %w", len(ready), len(crowd), err)
		}
		if p == nil {
			continue
		}
		if c.msg.kind == kindOutput && !bytes.Equal(c.data, line) {
			return fmt.Errorf("process %s wrote %q, want %q", p.id, c.data, line)
		}
		if done(p) {
			ready[p] = true
		}
	}
	return nil
}
