package main

import (
	"context"
	"fmt"
	"os/exec"
	"time"
)

// shortest is a program that does nothing.
const shortest = "/bin/true"

// measureReady launches a server and measures the time until it listens.
func measureReady(ctx context.Context, b *bench, s *subject) error {
	for range max(1, 10/b.rounds) {
		srv, err := launch(ctx, s.path, s.dir+"-ready")
		if err != nil {
			return err
		}
		b.addTime(s.name, "ready", srv.ready)
		if err := srv.stop(); err != nil {
			return err
		}
	}
	return nil
}

// floor runs the program with os/exec. It is part of every measurement that is
// compared with it, so that both see the same load of the machine.
func (b *bench) floor(ctx context.Context) error {
	for range b.pick(100, 50) {
		began := time.Now()
		if err := exec.CommandContext(ctx, shortest).Run(); err != nil {
			return err
		}
		b.addTime(subjectFloor, "start", time.Since(began))
	}
	return nil
}

// measureLatency runs the program one at a time, for a client whose kernel
// delays acknowledgements, which is the default, and for one whose kernel does
// not.
func measureLatency(ctx context.Context, b *bench, s *subject) error {
	if err := b.floor(ctx); err != nil {
		return err
	}
	for _, client := range []struct {
		metric string
		quick  bool
		n      int
	}{{"start.ordinary", false, b.pick(60, 25)}, {"start.quick", true, b.pick(200, 100)}} {
		took, err := sequence(ctx, s, client.metric, client.quick, client.n)
		if err != nil {
			return err
		}
		for _, d := range took {
			b.addTime(s.name, client.metric, d)
		}
	}
	return nil
}

// sequence runs the program n times over one connection.
func sequence(ctx context.Context, s *subject, what string, quick bool, n int) ([]time.Duration, error) {
	c, err := dialWire(ctx, s.url, quick)
	if err != nil {
		return nil, err
	}
	defer c.close()
	const warmup = 3
	var all []time.Duration
	for i := range warmup + n {
		if err := c.within(10 * time.Second); err != nil {
			return nil, err
		}
		began := time.Now()
		p, err := c.run(shortest)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		took := time.Since(began)
		if err := p.check(0, 0); err != nil {
			return nil, err
		}
		if i >= warmup {
			all = append(all, took)
		}
	}
	return all, nil
}

// measureStarts keeps a connection full of short processes and measures each
// from its start to its closed event.
func measureStarts(ctx context.Context, b *bench, s *subject) error {
	c, err := dialWire(ctx, s.url, true)
	if err != nil {
		return err
	}
	defer c.close()
	if err := c.within(60 * time.Second); err != nil {
		return err
	}
	span := time.Duration(b.pick(2000, 1000)) * time.Millisecond
	began := time.Now()
	done := 0
	for range maxInFlight {
		if _, err := c.start(false, shortest); err != nil {
			return err
		}
	}
	for len(c.live) > 0 {
		p, err := c.receive()
		if err != nil {
			return fmt.Errorf("after %d processes: %w", done, err)
		}
		if p == nil || !p.done() {
			continue
		}
		if err := p.check(0, 0); err != nil {
			return err
		}
		done++
		if time.Since(began) < span {
			if _, err := c.start(false, shortest); err != nil {
				return err
			}
		}
	}
	b.add(s.name, "starts", float64(done)/time.Since(began).Seconds())
	return nil
}
