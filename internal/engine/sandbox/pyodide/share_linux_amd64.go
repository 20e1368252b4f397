package pyodide

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A fork copies the page tables of anonymous memory, entry by entry, which
// takes longer than all else about it. Of a file that is mapped privately it
// copies nothing: the first access to a page finds it in the file. So the zygote's
// memory is put into one.

// region is memory of a process.
type region struct {
	low, high uint64
	prot      uint64
	anonymous bool  // it is of no file
	resident  int64 // bytes of it that are there and of no file
	kept      bool  // it is not inherited
	special   bool  // it has to stay as it is
}

// regions lists the memory of a process.
func regions(proc *os.File, pid int) ([]region, error) {
	f, err := openProc(proc, pid, "smaps")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var list []region
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := lines.Text()
		if low, high, ok := addresses(line); ok {
			list = append(list, newRegion(low, high, strings.Fields(line)))
			continue
		}
		if len(list) == 0 {
			continue
		}
		r := &list[len(list)-1]
		name, rest, _ := strings.Cut(line, ":")
		switch rest = strings.TrimSpace(rest); name {
		case "Anonymous":
			n, err := strconv.ParseInt(strings.TrimSuffix(rest, " kB"), 10, 64)
			if err != nil {
				return nil, fmt.Errorf("read smaps: %w", err)
			}
			r.resident = n << 10
		case "ProtectionKey":
			r.special = r.special || rest != "0"
		case "VmFlags":
			for _, flag := range strings.Fields(rest) {
				switch flag {
				case "dc":
					r.kept = true
				case "sh", "gd", "lo", "io", "pf", "wf": // shared, a stack, locked, a device's, or not to be copied
					r.special = true
				}
			}
		}
	}
	return list, lines.Err()
}

// newRegion makes sense of the first line about a region.
func newRegion(low, high uint64, f []string) region {
	r := region{low: low, high: high}
	if len(f) < 5 {
		r.special = true
		return r
	}
	for i, bit := range []uint64{unix.PROT_READ, unix.PROT_WRITE, unix.PROT_EXEC} {
		if f[1][i] != '-' {
			r.prot |= bit
		}
	}
	r.anonymous = f[4] == "0" && (len(f) == 5 || f[5] == "[heap]")
	return r
}

// minShared is the least memory in one piece that is worth a mapping.
const minShared = 32 << 10

// worthSharing says whether a region is memory that forks should find in a
// file. Code is not, which may have keys of its own, nor what is mostly not
// there.
func (r *region) worthSharing() bool {
	return r.anonymous && !r.special && r.prot&unix.PROT_EXEC == 0 && r.prot&unix.PROT_READ != 0 &&
		r.resident >= minShared && 2*uint64(r.resident) >= r.high-r.low
}

// share puts the memory of the stopped process into a file. give sends it a
// descriptor by its fd.
func (m *zygote) share(proc *os.File, fd int, give func(*os.File) error) error {
	list, err := regions(proc, m.pid)
	if err != nil {
		return err
	}
	raw, err := unix.MemfdCreate("memory", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("make a file in memory: %w", err)
	}
	file := os.NewFile(uintptr(raw), "memory")
	defer file.Close()
	mem, err := openProc(proc, m.pid, "mem")
	if err != nil {
		return err
	}
	defer mem.Close()
	theirs, err := m.receive(m.pid, fd, func() error { return give(file) })
	if err != nil {
		return err
	}
	var end uint64 // of the file
	for _, r := range list {
		if !r.worthSharing() {
			continue
		}
		size := r.high - r.low
		if err := file.Truncate(int64(end + size)); err != nil {
			return err
		}
		if err := copyPages(file, int64(end), mem, int64(r.low), int64(size)); err != nil {
			return err
		}
		if _, err := m.call(m.pid, unix.SYS_MMAP, r.low, size, r.prot, unix.MAP_PRIVATE|unix.MAP_FIXED, theirs[0], end); err != nil {
			return fmt.Errorf("mmap: %w", err)
		}
		// The zygote maps it too, so that no fork appears to be its only owner.
		if _, err := m.call(m.pid, unix.SYS_MADVISE, r.low, size, unix.MADV_POPULATE_READ); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("madvise: %w", err)
		}
		end += size
	}
	_, err = m.call(m.pid, unix.SYS_CLOSE, theirs[0])
	return err
}

// copyPages copies memory into a file, which has none of it yet.
func copyPages(to io.WriterAt, at int64, from io.ReaderAt, low, size int64) error {
	buf := make([]byte, min(size, 1<<20))
	zero := make([]byte, os.Getpagesize())
	for done := int64(0); done < size; {
		b := buf[:min(int64(len(buf)), size-done)]
		if _, err := from.ReadAt(b, low+done); err != nil {
			return fmt.Errorf("read memory: %w", err)
		}
		for i := 0; i < len(b); i += len(zero) {
			if page := b[i : i+len(zero)]; !bytes.Equal(page, zero) {
				if _, err := to.WriteAt(page, at+done+int64(i)); err != nil {
					return fmt.Errorf("copy memory: %w", err)
				}
			}
		}
		done += int64(len(b))
	}
	return nil
}
