package pyodide

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A fork has the descriptors of the zygote, and with them its pipes and event
// counters: what one interpreter writes there another could read. So every copy
// gets new ones under the same numbers before its first instruction. Those that
// an event loop does not need are closed.

// descriptor is one that copies of the zygote inherit.
type descriptor struct {
	fd      int
	kind    descriptorKind
	pipe    string // names the pipe, the same for both of its ends
	writes  bool   // is the end of a pipe to write to
	watches []watch
}

type descriptorKind int

const (
	closedDescriptor descriptorKind = iota // not needed by a copy
	nullDescriptor
	eventDescriptor
	pipeDescriptor
	pollDescriptor
)

// watch is a descriptor in the set of an epoll instance.
type watch struct {
	fd     int
	events uint32
	data   uint64
}

// inherited lists the descriptors of the zygote, but for those that each copy
// is given: its connection, fd, and standard error.
func inherited(proc *os.File, pid, fd int) ([]descriptor, error) {
	dir, err := openProc(proc, pid, "fd")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var list []descriptor
	for _, name := range names {
		d := descriptor{}
		if d.fd, err = strconv.Atoi(name); err != nil {
			return nil, err
		}
		if d.fd == fd || d.fd == stderrFD {
			continue
		}
		buf := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(int(dir.Fd()), name, buf)
		if err != nil {
			return nil, err
		}
		switch target := string(buf[:n]); {
		case d.fd < stderrFD: // standard input and output
			d.kind = nullDescriptor
		case target == "anon_inode:[eventfd]":
			d.kind = eventDescriptor
		case target == "anon_inode:[eventpoll]":
			d.kind = pollDescriptor
		case strings.HasPrefix(target, "pipe:"):
			d.kind, d.pipe = pipeDescriptor, target
		}
		if err := d.describe(proc, pid); err != nil {
			return nil, err
		}
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b descriptor) int { return a.fd - b.fd })
	return list, nil
}

// describe reads what the kernel says about a descriptor.
func (d *descriptor) describe(proc *os.File, pid int) error {
	info, err := openProc(proc, pid, "fdinfo/"+strconv.Itoa(d.fd))
	if err != nil {
		return err
	}
	defer info.Close()
	lines := bufio.NewScanner(info)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		switch {
		case len(f) >= 2 && f[0] == "flags:":
			flags, err := strconv.ParseUint(f[1], 8, 32)
			if err != nil {
				return fmt.Errorf("read fdinfo: %w", err)
			}
			d.writes = flags&unix.O_ACCMODE == unix.O_WRONLY
		case len(f) >= 6 && f[0] == "tfd:":
			fd, err1 := strconv.Atoi(f[1])
			events, err2 := strconv.ParseUint(f[3], 16, 32)
			data, err3 := strconv.ParseUint(f[5], 16, 64)
			if err := errors.Join(err1, err2, err3); err != nil {
				return fmt.Errorf("read fdinfo: %w", err)
			}
			d.watches = append(d.watches, watch{fd, uint32(events), data})
		}
	}
	return lines.Err()
}

// replaceDescriptors gives a stopped copy its own descriptors.
func (m *zygote) replaceDescriptors(pid int) error {
	kept := make(map[int]bool)
	pipes := make(map[string][2]uint64)
	var temporary []uint64
	for _, d := range m.inherited {
		var made uint64
		var err error
		switch d.kind {
		case nullDescriptor:
			made, err = m.call(pid, unix.SYS_OPENAT, 0, m.room+atNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
		case eventDescriptor:
			made, err = m.call(pid, unix.SYS_EVENTFD2, 0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		case pollDescriptor:
			made, err = m.call(pid, unix.SYS_EPOLL_CREATE1, unix.EPOLL_CLOEXEC)
		case pipeDescriptor:
			ends, ok := pipes[d.pipe]
			if !ok {
				if ends, err = m.pipe(pid); err != nil {
					break
				}
				pipes[d.pipe] = ends
				temporary = append(temporary, ends[0], ends[1])
			}
			made = ends[0]
			if d.writes {
				made = ends[1]
			}
		default:
			if _, err := m.call(pid, unix.SYS_CLOSE, uint64(d.fd)); err != nil {
				return fmt.Errorf("close descriptor %d: %w", d.fd, err)
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("replace descriptor %d: %w", d.fd, err)
		}
		if _, err := m.call(pid, unix.SYS_DUP3, made, uint64(d.fd), unix.O_CLOEXEC); err != nil {
			return fmt.Errorf("replace descriptor %d: %w", d.fd, err)
		}
		if d.kind != pipeDescriptor {
			temporary = append(temporary, made)
		}
		kept[d.fd] = true
	}
	for _, fd := range temporary {
		if _, err := m.call(pid, unix.SYS_CLOSE, fd); err != nil {
			return fmt.Errorf("close descriptor: %w", err)
		}
	}
	for _, d := range m.inherited {
		for _, w := range d.watches {
			if !kept[w.fd] {
				continue
			}
			event := binary.LittleEndian.AppendUint32(nil, w.events)
			event = binary.LittleEndian.AppendUint64(event, w.data)
			if _, err := unix.PtracePokeData(pid, uintptr(m.room+atByte), event); err != nil {
				return fmt.Errorf("watch descriptor %d: %w", w.fd, err)
			}
			if _, err := m.call(pid, unix.SYS_EPOLL_CTL, uint64(d.fd), unix.EPOLL_CTL_ADD, uint64(w.fd), m.room+atByte); err != nil {
				return fmt.Errorf("watch descriptor %d: %w", w.fd, err)
			}
		}
	}
	return nil
}

// pipe has a stopped copy make a pipe.
func (m *zygote) pipe(pid int) (ends [2]uint64, err error) {
	if _, err := m.call(pid, unix.SYS_PIPE2, m.room+atByte, unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return ends, err
	}
	var b [8]byte
	if _, err := unix.PtracePeekData(pid, uintptr(m.room+atByte), b[:]); err != nil {
		return ends, err
	}
	return [2]uint64{uint64(binary.LittleEndian.Uint32(b[:])), uint64(binary.LittleEndian.Uint32(b[4:]))}, nil
}
