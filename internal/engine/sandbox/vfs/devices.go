package vfs

import (
	"crypto/rand"
	"strings"
)

// devices is the layer of /dev.
type devices struct{ Layer }

// Devices returns a layer with the devices that programs take for granted:
// null, zero, full, random and urandom.
func Devices() Layer {
	m := NewMemory(nil)
	for _, name := range []string{"null", "zero", "full", "random", "urandom"} {
		n := newNode(TypeChar | 0o666)
		m.root.children[name] = n
	}
	return devices{ReadOnly(m)}
}

func (d devices) open(path string, flags Flags, perm Mode) (File, error) {
	info, err := d.lstat(path)
	if err != nil || info.Mode&TypeMask != TypeChar {
		return d.Layer.open(path, flags, perm)
	}
	switch {
	case flags&(Create|Exclusive) == Create|Exclusive:
		return nil, EEXIST
	case flags&Directory != 0:
		return nil, ENOTDIR
	}
	return &device{name: strings.TrimPrefix(path, "u"), info: info, flags: flags}, nil
}

// device is an open one.
type device struct {
	name  string
	info  Info
	flags Flags
}

func (d *device) Stat() (Info, error) { return d.info, nil }

func (d *device) ReadAt(p []byte, _ int64) (int, error) {
	switch {
	case d.flags&Read == 0:
		return 0, EBADF
	case d.name == "null":
		return 0, nil
	case d.name == "random":
		return rand.Read(p)
	}
	clear(p)
	return len(p), nil
}

func (d *device) WriteAt(p []byte, _ int64) (int, error) {
	switch {
	case d.flags&Write == 0:
		return 0, EBADF
	case d.name == "full":
		return 0, ENOSPC
	}
	return len(p), nil
}

func (d *device) Append(p []byte) (int, int64, error) {
	n, err := d.WriteAt(p, 0)
	return n, 0, err
}

func (d *device) Truncate(int64) error { return EINVAL }
func (d *device) Sync() error          { return EINVAL }
func (d *device) Close() error         { return nil }
