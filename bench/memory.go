package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// stalledBytes is the output of a process whose client does not read.
const stalledBytes = 200_000_000

// measureStalled connects to a new server, starts a process that writes a lot,
// and does not read. It measures how the server's memory grows and whether the
// process finishes regardless. Then it reads and checks that the output is
// complete.
func measureStalled(ctx context.Context, b *bench, s *subject) (err error) {
	dir := s.dir + "-stalled"
	srv, err := launch(ctx, s.path, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, srv.stop()) }()
	c, err := dialWire(ctx, srv.url, false)
	if err != nil {
		return err
	}
	defer c.close()
	if err := c.within(60 * time.Second); err != nil {
		return err
	}
	idle, err := srv.memory()
	if err != nil {
		return err
	}
	mark := filepath.Join(dir, "written")
	if err := os.Remove(mark); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	began := time.Now()
	p, err := c.start(false, "sh", "-c", "head -c $1 /dev/zero; : >$2", "sh", strconv.Itoa(stalledBytes), mark)
	if err != nil {
		return err
	}
	peak, written, err := srv.watch(began, time.Duration(b.pick(2000, 1000))*time.Millisecond, mark)
	if err != nil {
		return err
	}
	if err := c.wait(p); err != nil {
		return fmt.Errorf("reading again: %w", err)
	}
	if err := p.check(0, stalledBytes); err != nil {
		return err
	}
	b.add(s.name, "stalled.growth", float64(peak-idle))
	b.add(s.name, "stalled.written", written)
	return nil
}

// watch samples the server's memory for a while. It returns its peak, and the
// seconds until the file appeared, or infinity.
func (s *server) watch(began time.Time, d time.Duration, mark string) (peak int64, seconds float64, err error) {
	seconds = math.Inf(1)
	for time.Since(began) < d {
		rss, err := s.memory()
		if err != nil {
			return 0, 0, err
		}
		peak = max(peak, rss)
		if math.IsInf(seconds, 1) {
			if _, err := os.Stat(mark); err == nil {
				seconds = time.Since(began).Seconds()
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	return peak, seconds, nil
}

// measureMemory measures the server's memory after all other measurements.
func measureMemory(ctx context.Context, b *bench, s *subject) error {
	rss, err := s.memory()
	if err != nil {
		return err
	}
	b.add(s.name, "rss.loaded", float64(rss))
	return nil
}
