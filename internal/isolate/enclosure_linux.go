//go:build amd64 || arm64

package isolate

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
)

// enclosure starts programs behind a wall.
type enclosure interface {
	fork(path string, argv []string, attr *syscall.ProcAttr, l rlimits) (int, error)
	on() func(func()) // calls a function on the thread that is to fork; nil if any may
	kill()
	close()
	alive() bool
	traces() bool          // it made directories that others see
	gateway() net.Listener // what a proxy may serve; nil for none
}

// enclose puts up a wall for runs with the policy. The spares may be nil.
func (w wall) enclose(p *Policy, from *spares) (enclosure, error) {
	if w.mechanism == Landlock {
		return newFence(p)
	}
	if w.mechanism == GVisor {
		s, err := newGuestSandbox(p, w.subuid, from)
		if err != nil {
			return nil, err
		}
		return s, nil
	}
	s, err := newSandbox(p, w.subuid, landlockABI(), from)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// fence is the wall without namespaces: Landlock and a filter.
type fence struct {
	rules *os.File
	c     child
	tmp   string
}

// fenceWritable is what every run behind a fence may write to.
var fenceWritable = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/ptmx", "/dev/pts"}

func newFence(p *Policy) (_ *fence, err error) {
	f := &fence{}
	if f.tmp, err = os.MkdirTemp("", "spool-tmp-"); err != nil {
		return nil, fmt.Errorf("make a directory for temporary files: %w", err)
	}
	writable := append([]string{f.tmp}, fenceWritable...)
	abi := landlockABI()
	if err = fenceable(abi); err == nil {
		f.rules, err = newRuleset(abi, append(writable, p.Writable...), p.reads("/proc"), false)
	}
	if err != nil {
		return nil, errors.Join(err, os.Remove(f.tmp))
	}
	n := hostNetwork
	if p.Need.Has(NoNetwork) {
		n = emptyNetwork
	}
	f.c = child{join: none, dropCaps: true, ruleset: f.rules.Fd(), filter: program(newFilter(n, nil))}
	return f, nil
}

func (f *fence) fork(path string, argv []string, attr *syscall.ProcAttr, l rlimits) (int, error) {
	c := f.c
	return c.forkExec(path, argv, attr, l)
}

func (f *fence) on() func(func()) { return nil }

func (f *fence) kill() {}

func (f *fence) alive() bool { return true }

func (f *fence) traces() bool { return false }

func (f *fence) gateway() net.Listener { return nil }

func (f *fence) close() {
	_ = f.rules.Close()
	_ = os.RemoveAll(f.tmp)
}
