package wasipy

import (
	"github.com/spool-run/spool/internal/engine/sandbox/vfs"
)

// The descriptors that every interpreter has. They must be the same for the
// image and its copies.
const (
	stdin  = 0
	stdout = 1
	stderr = 2
	root   = 3
)

// descriptor is an open file, as a guest knows it.
type descriptor struct {
	file    vfs.File // nil for the standard streams and the root
	path    string   // for directories, and for what needs a path; absolute
	dir     bool
	append  bool
	read    bool
	write   bool
	offset  int64
	entries []vfs.Entry // of a directory that is being listed
}

// descriptors is the table of an interpreter.
type descriptors struct {
	max  int
	open map[uint32]*descriptor
	next uint32 // no lower one is free
}

func newDescriptors(limit int) *descriptors {
	return &descriptors{max: limit, next: root + 1, open: map[uint32]*descriptor{
		stdin:  {read: true},
		stdout: {write: true},
		stderr: {write: true},
		root:   {path: "/", dir: true},
	}}
}

func (t *descriptors) get(fd uint32) (*descriptor, error) {
	if d := t.open[fd]; d != nil {
		return d, nil
	}
	return nil, vfs.EBADF
}

// full says that no further file may be opened.
func (t *descriptors) full() bool { return len(t.open) >= t.max+root+1 }

// add gives a descriptor the lowest free number.
func (t *descriptors) add(d *descriptor) uint32 {
	for t.open[t.next] != nil {
		t.next++
	}
	t.open[t.next] = d
	return t.next
}

func (t *descriptors) remove(fd uint32) error {
	d, err := t.get(fd)
	if err != nil {
		return err
	}
	delete(t.open, fd)
	if fd > root {
		t.next = min(t.next, fd)
	}
	return d.close()
}

// renumber puts one descriptor in the place of another.
func (t *descriptors) renumber(from, to uint32) error {
	d, err := t.get(from)
	if err != nil {
		return err
	}
	if _, err := t.get(to); err != nil || from == to {
		return err
	}
	err = t.remove(to)
	delete(t.open, from)
	t.open[to] = d
	if from > root {
		t.next = min(t.next, from)
	}
	return err
}

func (t *descriptors) closeAll() {
	for fd := range t.open {
		_ = t.remove(fd)
	}
}

func (d *descriptor) close() error {
	if d.file == nil {
		return nil
	}
	return d.file.Close()
}
