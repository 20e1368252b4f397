package fdtable

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// size returns the size of the table of this process.
func size(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if text, ok := strings.CutPrefix(line, "FDSize:"); ok {
			n, err := strconv.Atoi(strings.TrimSpace(text))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("the kernel does not tell the size of the table")
	return 0
}

func open(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

// TestReserve checks that the table has room, that no file stays open, and that a limit of
// open files is no obstacle.
func TestReserve(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	before := open(t)
	for _, c := range []struct{ limit, reserve, want int }{{100, Size, 100}, {Size, 1000, 1000}, {2 * Size, Size, Size}} {
		lower := unix.Rlimit{Cur: min(uint64(c.limit), limit.Max), Max: limit.Max}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &lower); err != nil {
			t.Fatal(err)
		}
		Reserve(c.reserve)
		if n := size(t); n < c.want {
			t.Errorf("the table has room for %d files, want %d", n, c.want)
		}
	}
	if n := open(t); n != before {
		t.Errorf("%d files are open, and were %d", n, before)
	}
}
