package torture

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// dieWithParent makes the kernel kill a server when the torture process dies.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// workers returns the live processes of a torture, by run.
func workers(mark string) (map[uint32][]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("look for workers: %w", err)
	}
	found := make(map[uint32][]int)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if run, ok := workerOf(pid, mark); ok {
			found[run] = append(found[run], pid)
		}
	}
	return found, nil
}

// workerOf returns the run that a process belongs to.
func workerOf(pid int, mark string) (run uint32, ok bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || !bytes.Contains(b, []byte(mark)) {
		return 0, false
	}
	argv := bytes.Split(b, []byte{0})
	var p Plan
	if len(argv) < 3 || string(argv[1]) != WorkerVerb || json.Unmarshal(argv[2], &p) != nil || p.Mark != mark {
		return 0, false
	}
	return p.Run, true
}

// keeperProcesses returns the keepers of a state directory, also those that start or
// end and have no file there.
func keeperProcesses(state string) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && bytes.Contains(b, []byte("\x00keeper-role\x00-state\x00"+state+"\x00")) {
			found = append(found, pid)
		}
	}
	return found
}

// resident returns the resident memory of a process, or zero.
func resident(pid int) int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// mountDisk mounts a small file system on dir, which can be filled.
func mountDisk(dir string, size int64) (unmount func() error, err error) {
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", size)); err != nil {
		return nil, fmt.Errorf("mount a disk on %s: %w", dir, err)
	}
	return func() error { return unix.Unmount(dir, unix.MNT_DETACH) }, nil
}

// fillDisk uses up all free space on the disk of a directory.
func fillDisk(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("fill disk: %w", err)
	}
	defer f.Close()
	var off int64
	for size := int64(64 << 20); size >= 1; {
		err := unix.Fallocate(int(f.Fd()), 0, off, size)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			size /= 2
		default:
			off += size
		}
	}
	return nil
}
