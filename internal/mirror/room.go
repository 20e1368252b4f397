package mirror

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"
)

// grow counts bytes that are about to be written. If they do not fit, the complete copies
// that were written to longest ago are deleted: their runs have ended, and their machines
// have them. The error is [ErrFull] if that does not help.
func (p *Copy) grow(n int64) error {
	c := p.all
	if c.opts.Free > 0 {
		free, err := c.free(c.opts.Dir)
		if err != nil {
			return fmt.Errorf("copy run %s: %w", p.id, err)
		}
		if free-n < c.opts.Free {
			return fmt.Errorf("copy run %s: %w: the disk has %d bytes free, of which copies leave %d", p.id, ErrFull, free, c.opts.Free)
		}
	}
	for !p.count(n) {
		if !c.evict(p) {
			return fmt.Errorf("copy run %s: %w: they may have %d bytes", p.id, ErrFull, c.opts.Bytes)
		}
	}
	return nil
}

// count counts bytes if they fit.
func (p *Copy) count(n int64) bool {
	c := p.all
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bytes+n > c.opts.Bytes {
		return false
	}
	c.bytes += n
	p.mu.Lock()
	p.bytes += n
	p.mu.Unlock()
	return true
}

// shrink counts the copy no more.
func (p *Copy) shrink() {
	p.all.mu.Lock()
	defer p.all.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all.bytes -= p.bytes
	p.bytes = 0
}

// recount counts what the copy takes of the disk.
func (p *Copy) recount() {
	bytes, _ := measure(p.dir)
	p.all.mu.Lock()
	defer p.all.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all.bytes += bytes - p.bytes
	p.bytes = bytes
}

// evict deletes the oldest complete copy, but not one that somebody writes to. It reports
// whether there was one.
func (c *Copies) evict(not *Copy) bool {
	states := c.All()
	slices.SortFunc(states, func(a, b State) int { return cmp.Or(a.Changed.Compare(b.Changed), cmp.Compare(a.Run, b.Run)) })
	for _, s := range states {
		cp := c.get(s.Run)
		if !s.Complete || cp == nil || cp == not || !cp.writing.TryLock() {
			continue
		}
		err := cp.remove()
		cp.writing.Unlock()
		if err == nil {
			c.opts.Log.Info("a copy of a log is deleted: there is no room for all", "run", s.Run)
			return true
		}
	}
	return false
}

// Expire deletes the copies to which nothing was appended for some time and whose logs are
// not followed: their runs have ended, or their machines are gone for good.
func (c *Copies) Expire(age time.Duration) error {
	var errs []error
	for _, s := range c.All() {
		if cp := c.get(s.Run); cp != nil && time.Since(s.Changed) > age && cp.writing.TryLock() {
			errs = append(errs, cp.remove())
			cp.writing.Unlock()
		}
	}
	return errors.Join(errs...)
}

// full makes the error of a full disk an [ErrFull].
func full(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}

// freeBytes returns how much of the disk of a directory is free.
func freeBytes(dir string) (int64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), nil //nolint:unconvert // it is another type on macOS
}
