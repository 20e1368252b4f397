//go:build amd64 || arm64

package isolate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
)

// A Cell is a wall around processes of Spool itself that execute untrusted code, such
// as the workers of sandboxes. They read what the cell lists, write nothing but
// temporary files of their own, and have no network. A process of a cell may give up
// more itself, before it executes anything untrusted: the proof of a cell is made by a
// process that has done so.
type Cell struct {
	opts   CellOptions
	proven *proven

	mu     sync.Mutex
	in     enclosure // nil without one
	closed bool
}

// proven is what is known of cells with the same wall.
type proven struct {
	opts CellOptions // of the first of them

	mu    sync.Mutex
	proof *CellProof // nil until it was proven
}

// NewCell returns a cell. It is made when it is first needed, and must be closed.
func NewCell(o CellOptions) *Cell { return &Cell{opts: o, proven: &proven{opts: o}} }

// With returns a cell with the same wall around other places. What is proven of one of
// them is proven of both.
func (c *Cell) With(places []Place) *Cell {
	o := c.opts
	o.Places = places
	return &Cell{opts: o, proven: c.proven}
}

// cellNeed is what the wall of a cell has to give by itself.
var cellNeed = NewSet(Writes, Reads, NoNetwork, Apart)

// policy returns the policy of the cell's processes.
func (o *CellOptions) policy() (*Policy, error) {
	p := &Policy{Profile: Strict, Need: cellNeed, Cwd: "/", Only: true, Readable: slices.Clone(o.Readable)}
	if path, _ := o.Attempt(""); path != self {
		p.Readable = append(p.Readable, path)
	}
	return p, p.resolve()
}

// walls returns the walls that a cell may have, the best first, and none as the last.
// gVisor is none of them: it takes too long to start.
func (o *CellOptions) walls() []wall {
	return append(slices.DeleteFunc(walls(), func(w wall) bool { return w.mechanism == GVisor || slices.Contains(o.Without, w.mechanism) }), wall{mechanism: Filter})
}

// Proof returns what the cell gives. The first call tests it, unless an earlier process
// has.
func (c *Cell) Proof(ctx context.Context) (CellProof, error) {
	p, err := c.proven.prove(ctx)
	if err != nil {
		return CellProof{}, err
	}
	return *p, nil
}

// prove chooses the wall.
func (k *proven) prove(ctx context.Context) (*CellProof, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.proof != nil {
		return k.proof, nil
	}
	file := k.opts.proofFile()
	if k.proof = readCellProof(file); k.proof != nil {
		return k.proof, nil
	}
	p, err := k.opts.test(ctx)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		p = unproven(err)
	}
	k.proof = p
	if p.Mechanism == Namespaces && p.Has.Has(Survives) { // others may have failed by chance
		keep(file, p)
	}
	return p, nil
}

// unproven is the proof of a cell that could not be tested: it gives nothing.
func unproven(err error) *CellProof {
	p := &CellProof{Mechanism: Filter, Why: make(map[Guarantee]string)}
	for _, g := range guarantees() {
		p.Why[g] = "it could not be tested: " + err.Error()
	}
	return p
}

// Fork starts a program in the cell, in place of [syscall.ForkExec]. It is a child of
// this process.
func (c *Cell) Fork(path string, argv []string, attr *syscall.ProcAttr) (int, error) {
	e, err := c.enclosure()
	if err != nil {
		return 0, err
	}
	pid, err := forkIn(e, path, argv, attr)
	if step := (*StepError)(nil); err != nil && e != nil && (errors.As(err, &step) && step.Step == stepText[stepSetns] || !e.alive()) {
		c.drop(e) // its first process has ended, or is about to
		if e, err = c.enclosure(); err != nil {
			return 0, err
		}
		return forkIn(e, path, argv, attr)
	}
	return pid, err
}

// drop takes a wall down, unless there is another by now.
func (c *Cell) drop(e enclosure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.in == e {
		c.in = nil
		e.close()
	}
}

// forkIn starts a program behind a wall, which may be nil.
func forkIn(e enclosure, path string, argv []string, attr *syscall.ProcAttr) (int, error) {
	l, err := cellLimits()
	if err != nil {
		return 0, err
	}
	if e != nil {
		return e.fork(path, argv, attr, l)
	}
	plain := child{join: none, ruleset: none}
	return plain.forkExec(path, argv, attr, l)
}

// cellLimits are the limits of a process of a cell: that of open files is the highest.
func cellLimits() (rlimits, error) {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return rlimits{}, fmt.Errorf("read the limit of open files: %w", err)
	}
	return rlimits{files: int(min(files.Max, 1<<30))}, nil
}

// enclosure returns the wall, and puts it up if it is not there or was broken down
// from outside.
func (c *Cell) enclosure() (enclosure, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errors.New("the cell is closed")
	}
	ctx, cancel := context.WithTimeout(context.Background(), proofTime)
	defer cancel()
	proof, err := c.proven.prove(ctx)
	if err != nil {
		return nil, err
	}
	if c.in != nil && !c.in.alive() {
		c.in.close()
		c.in = nil
	}
	if c.in != nil || proof.Mechanism == Filter {
		return c.in, nil
	}
	policy, err := c.opts.policy()
	if err != nil {
		return nil, err
	}
	c.in, err = putUp(c, proof, func(w wall) (enclosure, error) { return w.enclose(policy, nil) })
	return c.in, err
}

// putUp puts up the wall of a proof.
func putUp[T any](c *Cell, p *CellProof, enclose func(wall) (T, error)) (_ T, err error) {
	var made T
	err = fmt.Errorf("no mechanism %q", p.Mechanism)
	for _, w := range c.opts.walls() {
		if w.mechanism != p.Mechanism || w.subuid && !p.Has.Has(Rootless) {
			continue
		}
		if made, err = enclose(w); err == nil {
			return made, nil
		}
	}
	_ = os.Remove(c.proven.opts.proofFile()) // the next process tests again: runs were told of this wall, so there is no other
	return made, fmt.Errorf("isolate a process: %w", err)
}

// Close ends the processes of the cell.
func (c *Cell) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.in != nil {
		c.in.close()
		c.in = nil
	}
}

// test makes the attempts behind each wall until one gives all that a cell needs, and
// else takes the one that gives most.
func (o *CellOptions) test(ctx context.Context) (*CellProof, error) {
	ctx, cancel := context.WithTimeout(ctx, proofTime)
	defer cancel()
	r, err := newRig()
	if err != nil {
		return nil, fmt.Errorf("prepare the attempts: %w", err)
	}
	defer r.close()
	var best *tested
	var causes []Cause
	for _, w := range o.walls() {
		t, err := r.tryCell(ctx, func(arg string) (*trial, error) { return o.try(w, arg) })
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil && w.mechanism == Filter && best == nil:
			return nil, err
		case err != nil:
			causes = append(causes, Cause{w.mechanism, err.Error()})
			continue
		}
		t.proof.Mechanism = w.mechanism
		if best == nil || len(t.outer) > len(best.outer) {
			best = t
		}
		if len(cellNeed.Without(t.outer)) == 0 {
			break
		}
	}
	best.proof.Causes = causes
	return best.proof, nil
}

// proofFile is where the proof of the cell is kept, for this program and that in it.
func (o *CellOptions) proofFile() string {
	path, _ := o.Attempt("")
	var st unix.Stat_t
	if o.Name == "" || unix.Stat(path, &st) != nil {
		return ""
	}
	return proofFileNamed(fmt.Sprintf("cell %q %q %q %q %d %d %d", o.Name, o.Without, o.Readable, o.Places, st.Dev, st.Ino, st.Mtim.Nano()))
}

func readCellProof(file string) *CellProof {
	p := new(CellProof)
	if !readKept(file, p) || len(p.Has) == 0 {
		return nil
	}
	return p
}

// Grant returns what a run has whose wall is of a mechanism, for [spool.Info], or a
// [*Refusal] if that is less than it asks for. The request may be nil. It must have no
// paths and hosts: the wall is there already.
func Grant(request *spool.Isolation, mechanism string, has Set, why map[Guarantee]string) (*spool.Isolation, error) {
	if request == nil {
		request = &spool.Isolation{}
	}
	p, err := NewPolicy(request, "/")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", spool.ErrInvalid, err)
	}
	missing := p.Need.Without(has)
	r := &Refusal{Profile: p.Profile, Missing: missing}
	var causes []string
	for _, g := range missing {
		if text := why[g]; text != "" {
			causes = append(causes, fmt.Sprintf("%s: %s", g, text))
		}
	}
	if p.Mechanism != "" && p.Mechanism != mechanism {
		r.Missing = p.Need
		causes = []string{fmt.Sprintf("the mechanism is not %s", p.Mechanism)}
	}
	if len(r.Missing) > 0 {
		r.Causes = []Cause{{mechanism, strings.Join(causes, "; ")}}
		p.Limited = NewSet(Memory, Processor) // other limits do not help
		r.complete(p, "")
		return nil, r
	}
	return p.Report(request, mechanism, has), nil
}
