//go:build amd64 || arm64

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

// openProc opens a file about a process below an opened /proc.
func openProc(proc *os.File, pid int, name string) (*os.File, error) {
	path := strconv.Itoa(pid) + "/" + name
	fd, err := unix.Openat(int(proc.Fd()), path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: "/proc/" + path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// fields sums up what lines of a file about a process say in kB, in bytes.
func fields(proc *os.File, pid int, file string, names ...string) (int64, error) {
	f, err := openProc(proc, pid, file)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var sum int64
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		for _, name := range names {
			if rest, ok := strings.CutPrefix(lines.Text(), name+":"); ok {
				n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 10, 64)
				if err != nil {
					return 0, fmt.Errorf("read %s: %w", file, err)
				}
				sum += n << 10
			}
		}
	}
	return sum, lines.Err()
}

// dataSize is what RLIMIT_DATA counts of a process.
func dataSize(proc *os.File, pid int) (int64, error) { return fields(proc, pid, "status", "VmData") }

// privateSize returns the size of a process's private memory.
func privateSize(proc *os.File, pid int) (int64, error) {
	return fields(proc, pid, "smaps_rollup", "Private_Dirty", "Private_Clean")
}

// The runner marks the memory in which it looks for interrupts: from markFrom
// to its end each byte follows from its place.
const (
	markSize = 4096
	markFrom = 64
)

// findMark returns the address of that memory.
func findMark(proc *os.File, pid int, mark byte) (uint64, error) {
	pattern := make([]byte, markSize-markFrom)
	for i := range pattern {
		pattern[i] = mark + byte((i+markFrom)*167)
	}
	maps, err := openProc(proc, pid, "maps")
	if err != nil {
		return 0, err
	}
	defer maps.Close()
	mem, err := openProc(proc, pid, "mem")
	if err != nil {
		return 0, err
	}
	defer mem.Close()
	buf := make([]byte, 1<<20)
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		f := strings.Fields(lines.Text())
		// Anonymous memory that may be written.
		if len(f) < 5 || !strings.HasPrefix(f[1], "rw-p") || f[4] != "0" || len(f) > 5 && f[5] != "[heap]" {
			continue
		}
		low, high, ok := addresses(f[0])
		if !ok {
			continue
		}
		at, err := search(mem, low, high, pattern, buf)
		if err != nil {
			return 0, err
		}
		if at != 0 {
			return at - markFrom, nil
		}
	}
	return 0, errors.New("find the interrupt buffer: not in memory")
}

func search(mem io.ReaderAt, low, high uint64, pattern, buf []byte) (uint64, error) {
	for at := low; at < high; {
		n := min(uint64(len(buf)), high-at)
		got, err := mem.ReadAt(buf[:n], int64(at))
		if i := bytes.Index(buf[:got], pattern); i >= 0 {
			return at + uint64(i), nil
		}
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, unix.EIO) {
			return 0, fmt.Errorf("read memory: %w", err)
		}
		if uint64(got) < n || at+n == high {
			break
		}
		at += n - uint64(len(pattern)) // it may lie across
	}
	return 0, nil
}

// poke writes into the memory of a process.
func poke(proc *os.File, pid int, at uint64, b []byte) error {
	path := strconv.Itoa(pid) + "/mem"
	fd, err := unix.Openat(int(proc.Fd()), path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: "/proc/" + path, Err: err}
	}
	defer unix.Close(fd)
	_, err = unix.Pwrite(fd, b, int64(at))
	return err
}

// waitFor waits for something to happen to a process.
func waitFor(pid int) (unix.WaitStatus, error) {
	for {
		var ws unix.WaitStatus
		_, err := unix.Wait4(pid, &ws, unix.WALL, nil)
		if !errors.Is(err, unix.EINTR) {
			return ws, err
		}
	}
}

// addresses are those at the beginning of a mapping's first line.
func addresses(line string) (low, high uint64, ok bool) {
	area, _, _ := strings.Cut(line, " ")
	l, h, ok := strings.Cut(area, "-")
	if !ok {
		return 0, 0, false
	}
	low, err := strconv.ParseUint(l, 16, 64)
	high, err2 := strconv.ParseUint(h, 16, 64)
	return low, high, err == nil && err2 == nil
}

// threads lists those of a process.
func threads(proc *os.File, pid int) ([]int, error) {
	dir, err := openProc(proc, pid, "task")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	list := make([]int, len(names))
	for i, name := range names {
		if list[i], err = strconv.Atoi(name); err != nil {
			return nil, err
		}
	}
	return list, nil
}
