// Package mirror keeps copies of the logs of runs of other machines, so that most of a log
// outlives its machine.
//
// A copy is made by a reader as any other: it follows the run with a cursor, which is the
// end of the copy, and appends the records as they come to segment files of its own. The
// writer of the log knows nothing of it and never waits for it. Each copy is a small state
// directory, named by the run, so that it reads as any other run does and is deleted
// without a look at others:
//
//	<id>/runs/…
//	<id>/blobs/…
//	<id>/source.json
//
// The machine that has the run is the truth. A copy that differs from what that machine has,
// because it lost the end of a log when it died, is made anew.
package mirror

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/privatedir"
	"github.com/spool-run/spool/internal/store"
)

// The defaults of [Options].
const (
	// DefaultBytes is how much of the disk all copies may take.
	DefaultBytes = 10 << 30
	// DefaultFree is how much of the disk copies leave free for everything else.
	DefaultFree = 512 << 20
)

// overhead is what a copy takes of the disk beside its files: its directories.
const overhead = 16 << 10

// sourceName is the file that says where a run is.
const sourceName = "source.json"

// ErrFull says that there is no room for more of a copy. What there is of it stays.
var ErrFull = errors.New("there is no room for copies of logs")

// Source is the machine that has a run.
type Source struct {
	Node string `json:"node"`
	// Machine tells machines apart that had the same name one after another.
	Machine string `json:"machine,omitempty"`
}

// Options configure the copies of a machine.
type Options struct {
	Dir   string       // made if necessary
	Bytes int64        // of all copies; zero means DefaultBytes
	Free  int64        // bytes of the disk that stay free; zero means DefaultFree, negative none
	Log   *slog.Logger // nil means none
}

// Copies are the copies that a machine has. They are safe for concurrent use.
type Copies struct {
	opts Options
	free func(dir string) (int64, error) // bytes of the disk that are free

	mu     sync.Mutex
	copies map[spool.RunID]*Copy
	bytes  int64 // of all copies
	closed bool
}

// Copy is the copy of one run.
type Copy struct {
	id     spool.RunID
	dir    string
	source Source
	all    *Copies

	// writing is held while something is appended to the copy, and while it is deleted.
	writing sync.Mutex
	store   *store.Store
	journal *store.Journal

	mu      sync.Mutex
	heard   spool.Seq // highest event that the machine of the run has said to have
	bytes   int64     // as counted in Copies.bytes
	changed time.Time // when something was appended
	gone    bool      // it was deleted
}

// Open opens the copies in a directory.
func Open(o Options) (*Copies, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Bytes == 0 {
		o.Bytes = DefaultBytes
	}
	if o.Free == 0 {
		o.Free = DefaultFree
	}
	c := &Copies{opts: o, free: freeBytes, copies: make(map[spool.RunID]*Copy)}
	if err := privatedir.Make(o.Dir); err != nil {
		return nil, fmt.Errorf("open the copies of logs: %w", err)
	}
	entries, err := os.ReadDir(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("open the copies of logs: %w", err)
	}
	for _, e := range entries {
		id := spool.RunID(e.Name())
		if !e.IsDir() || id.Check() != nil {
			continue
		}
		if err := c.open(id); err != nil {
			// It is a copy: the run can be copied again.
			o.Log.Warn("a copy of a log cannot be read and is deleted", "run", id, "err", errors.Join(err, os.RemoveAll(filepath.Join(o.Dir, e.Name()))))
		}
	}
	return c, nil
}

// open opens a copy that an earlier process made.
func (c *Copies) open(id spool.RunID) error {
	cp := &Copy{id: id, dir: filepath.Join(c.opts.Dir, string(id)), all: c}
	b, err := os.ReadFile(filepath.Join(cp.dir, sourceName))
	if err == nil {
		err = json.Unmarshal(b, &cp.source)
	}
	if err != nil {
		return err
	}
	if cp.store, err = store.Open(cp.dir, store.Options{}); err != nil {
		return err
	}
	if cp.journal, _, err = cp.store.Recover(id); err != nil {
		return errors.Join(err, cp.store.Close())
	}
	cp.bytes, cp.changed = measure(cp.dir)
	c.bytes += cp.bytes
	c.copies[id] = cp
	return nil
}

// measure returns how much of the disk a copy takes, and when it was last written to.
func measure(dir string) (bytes int64, changed time.Time) {
	bytes = overhead
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error { // what is gone has no size
		if err == nil && !e.IsDir() {
			if fi, err := e.Info(); err == nil {
				bytes += fi.Size()
				if fi.ModTime().After(changed) {
					changed = fi.ModTime()
				}
			}
		}
		return nil
	})
	return bytes, changed
}

// begin makes an empty copy of a run.
func (c *Copies) begin(source Source, info spool.Info) (cp *Copy, err error) {
	cp = &Copy{id: info.ID, dir: filepath.Join(c.opts.Dir, string(info.ID)), source: source, all: c, changed: time.Now()}
	if err := cp.grow(overhead); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			cp.shrink()
			err = errors.Join(fmt.Errorf("copy run %s: %w", info.ID, full(err)), os.RemoveAll(cp.dir))
		}
	}()
	if err := os.RemoveAll(cp.dir); err != nil {
		return nil, err
	}
	if err := privatedir.Make(cp.dir); err != nil {
		return nil, err
	}
	b, err := json.Marshal(&source)
	if err == nil {
		err = os.WriteFile(filepath.Join(cp.dir, sourceName), b, 0o600)
	}
	if err != nil {
		return nil, err
	}
	if cp.store, err = store.Open(cp.dir, store.Options{}); err != nil {
		return nil, err
	}
	info.Node, info.Mirror = source.Node, nil
	if cp.journal, err = cp.store.Create(info); err != nil {
		return nil, errors.Join(err, cp.store.Close())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.copies[info.ID] != nil {
		return nil, errors.Join(fs.ErrClosed, cp.journal.Close(), cp.store.Close())
	}
	c.copies[info.ID] = cp
	return cp, nil
}

// get returns the copy of a run, nil if there is none.
func (c *Copies) get(id spool.RunID) *Copy {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.copies[id]
}

// Remove deletes the copy of a run, if there is one.
func (c *Copies) Remove(id spool.RunID) error {
	cp := c.get(id)
	if cp == nil {
		return nil
	}
	cp.writing.Lock()
	defer cp.writing.Unlock()
	return cp.remove()
}

// remove deletes the copy. The caller holds writing.
func (p *Copy) remove() error {
	p.mu.Lock()
	gone := p.gone
	p.gone = true
	p.mu.Unlock()
	if gone {
		return nil
	}
	p.all.mu.Lock()
	if p.all.copies[p.id] == p {
		delete(p.all.copies, p.id)
	}
	p.all.mu.Unlock()
	p.shrink()
	err := errors.Join(p.journal.Close(), p.store.Close(), os.RemoveAll(p.dir))
	if err != nil {
		return fmt.Errorf("delete the copy of run %s: %w", p.id, err)
	}
	return nil
}

// Close closes all copies. Nobody may append any more.
func (c *Copies) Close() error {
	c.mu.Lock()
	c.closed = true
	copies := c.copies
	c.copies = make(map[spool.RunID]*Copy)
	c.mu.Unlock()
	var errs []error
	for _, cp := range copies {
		cp.writing.Lock()
		errs = append(errs, cp.journal.Close(), cp.store.Close())
		cp.mu.Lock()
		cp.gone = true
		cp.mu.Unlock()
		cp.writing.Unlock()
	}
	return errors.Join(errs...)
}

// State is what is known of a copy.
type State struct {
	Run      spool.RunID
	Source   Source
	Last     spool.Seq
	Complete bool // it has the whole log
	Changed  time.Time
}

// All returns the state of all copies, in no order.
func (c *Copies) All() []State {
	c.mu.Lock()
	copies := make([]*Copy, 0, len(c.copies))
	for _, cp := range c.copies {
		copies = append(copies, cp)
	}
	c.mu.Unlock()
	states := make([]State, 0, len(copies))
	for _, cp := range copies {
		states = append(states, cp.state())
	}
	return states
}

// Of returns the state of the copy of a run.
func (c *Copies) Of(id spool.RunID) (State, bool) {
	cp := c.get(id)
	if cp == nil {
		return State{}, false
	}
	return cp.state(), true
}

func (p *Copy) state() State {
	last, complete := p.journal.Last()
	p.mu.Lock()
	defer p.mu.Unlock()
	return State{Run: p.id, Source: p.source, Last: last, Complete: complete, Changed: p.changed}
}

// Bytes returns how much of the disk all copies take.
func (c *Copies) Bytes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}

// Limit returns how much of the disk they may take.
func (c *Copies) Limit() int64 { return c.opts.Bytes }

// Hear notes that the machine of a run has said to have events up to a seq: if the machine
// is lost before they are copied, they are known to be gone.
func (c *Copies) Hear(id spool.RunID, last spool.Seq) {
	if cp := c.get(id); cp != nil {
		cp.mu.Lock()
		cp.heard = max(cp.heard, last)
		cp.mu.Unlock()
	}
}
