package environ

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"unsafe"
)

// keepPrefix begins the one variable that [HideBlock] leaves: it says to which
// run this process belongs, for the Spool that started it.
const keepPrefix = "SPOOL_TREE="

// The indexes of env_start and env_end in /proc/PID/stat, counted from the state
// of the process, which follows its name.
const (
	envStart = 47
	envEnd   = 48
)

// HideBlock erases the environment that this process was started with, where the
// kernel shows it to all processes of the same user: /proc/PID/environ. Go has
// copied the variables, so this process still has them.
func HideBlock() error {
	stat, err := os.ReadFile("/proc/self/stat")
	if errors.Is(err, fs.ErrNotExist) {
		return nil // without /proc they are not shown
	}
	if err != nil {
		return fmt.Errorf("hide the environment: %w", err)
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // the name may have spaces
	if len(fields) <= envEnd {
		return errors.New("hide the environment: /proc/self/stat does not say where it is")
	}
	start, err1 := strconv.ParseUint(string(fields[envStart]), 10, strconv.IntSize)
	end, err2 := strconv.ParseUint(string(fields[envEnd]), 10, strconv.IntSize)
	if err := errors.Join(err1, err2); err != nil || start == 0 || end < start {
		return errors.Join(errors.New("hide the environment: /proc/self/stat does not say where it is"), err)
	}
	// The block is on the stack that the kernel made, outside of Go's memory.
	addr := uintptr(start)
	block := unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), int(end-start))
	for len(block) > 0 {
		n := bytes.IndexByte(block, 0) + 1
		if n == 0 {
			n = len(block)
		}
		if !bytes.HasPrefix(block, []byte(keepPrefix)) {
			clear(block[:n])
		}
		block = block[n:]
	}
	return nil
}
