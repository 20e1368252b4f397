package wasipy_test

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/python"
)

// live is how many interpreters live at once in TestAThousandInterpretersLiveAtOnce,
// and perInterpreter what each of them may have for itself.
const (
	live           = 1000
	perInterpreter = 512 << 10
)

func TestAThousandInterpretersLiveAtOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, i python.Isolation) {
		warm := open(t, i, guest.Options{})
		prints(t, warm, "x = 1", "")
		before := private(t)
		contexts := make([]guest.Context, live)
		for n := range contexts {
			contexts[n] = open(t, i, guest.Options{})
			if res, h := run(t, contexts[n], fmt.Sprintf("x = %d\nprint(x)", n)); res.ExitCode != 0 {
				t.Fatalf("interpreter %d: %+v %s", n, res, h.stderr())
			}
		}
		each := (private(t) - before) / live
		t.Logf("%d kB each", each>>10)
		if each > perInterpreter {
			t.Errorf("each interpreter has %d bytes for itself", each)
		}
		var all sync.WaitGroup
		for n := 0; n < live; n += 50 {
			all.Go(func() { prints(t, contexts[n], "print(x)", fmt.Sprintln(n)) })
		}
		all.Wait()
	})
}

// private is the private memory of this process and its children.
func private(t *testing.T) int {
	t.Helper()
	sum := privateOf(t, "self")
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		children, err := os.ReadFile(filepath.Join("/proc/self/task", thread.Name(), "children"))
		if err != nil {
			continue // the thread is gone
		}
		for _, pid := range strings.Fields(string(children)) {
			sum += privateOf(t, pid)
		}
	}
	return sum
}

func privateOf(t *testing.T, pid string) int {
	t.Helper()
	f, err := os.Open("/proc/" + pid + "/smaps_rollup")
	if (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)) && pid != "self" {
		return 0 // it ended
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sum := 0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, rest, _ := strings.Cut(lines.Text(), ":"); strings.HasPrefix(name, "Private_") {
			n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
			if err != nil {
				t.Fatal(err)
			}
			sum += n << 10
		}
	}
	return sum
}
