//go:build amd64 || arm64

package isolate

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/skiptest"
)

// Verbs of processes of the tests: to lead a cell, in which another looks around.
const (
	leadVerb = "lead"
	lookVerb = "look"
)

// programPlace is where the program of the tests is in a tree.
const programPlace = "/program"

// leadMain is the first process of a cell.
func leadMain(args []string) int {
	exe, err := os.Executable()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	in, err := Enter()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0) // under the race detector it complains that there is no /proc
	if err != nil {
		fmt.Println(err)
		return 1
	}
	pid, err := in.Fork(in.Path(Place{From: exe, To: programPlace}), append([]string{"spool", Role, lookVerb}, args...), &syscall.ProcAttr{Dir: "/", Env: []string{}, Files: []uintptr{null.Fd(), 1, null.Fd()}}, CellFilter())
	if err != nil {
		fmt.Println(err)
		return 1
	}
	reap(pid)
	return 7
}

// lookMain says what a process of the cell finds: of two paths what it reads, and what it
// can do to a directory, to the network, and to other processes.
func lookMain(args []string) int {
	for _, path := range args[:2] {
		b, err := os.ReadFile(path)
		fmt.Printf("%s %t\n", b, err == nil)
	}
	err := os.WriteFile(filepath.Join(args[2], "new"), nil, 0o644)
	fmt.Println("write", err == nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	fmt.Println("listen", err == nil)
	if err == nil {
		_ = l.Close()
	}
	fmt.Println("signal", unix.Kill(os.Getppid(), 0) == nil)
	return 0
}

// TestCellStart checks what a program finds that the first process of a cell starts, by
// each mechanism. TestNodeCannotEscape makes every attempt in such a cell.
func TestCellStart(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	listed, other := filepath.Join(dir, "listed"), filepath.Join(dir, "other")
	for _, path := range []string{listed, other} {
		if err := os.WriteFile(path, []byte(filepath.Base(path)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	places := []Place{{exe, programPlace}, {listed, "/data/listed"}}
	for _, dir := range []string{"/lib", "/lib64"} { // under the race detector the program needs some
		if _, err := os.Stat(dir); err == nil {
			places = append(places, Place{dir, dir})
		}
	}
	for mechanism, test := range map[string]struct {
		listed string
		want   string
	}{
		Namespaces: {"/data/listed", "listed true, false, write false, listen false, signal false"},
		Landlock:   {listed, "listed true, false, write false, listen false, signal false"},
		Filter:     {listed, "listed true, other true, write true, listen false, signal false"},
	} {
		t.Run(mechanism, func(t *testing.T) {
			c := NewCell(CellOptions{Places: places})
			c.proven.proof = &CellProof{Mechanism: mechanism, Has: NewSet(Rootless)}
			out, in, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			first, err := c.Start(self, []string{"spool", Role, leadVerb, test.listed, other, dir}, &syscall.ProcAttr{Env: []string{}, Files: []uintptr{in.Fd(), in.Fd(), in.Fd()}})
			_ = in.Close()
			if err != nil {
				skiptest.Missing(t, "%v", err)
			}
			b, err := io.ReadAll(out)
			if werr := first.Wait(); err != nil || werr == nil || werr.Error() != "exit status 7" {
				t.Errorf("%v, %v", err, werr)
			}
			var got []string
			for line := range strings.Lines(string(b)) {
				got = append(got, strings.TrimSpace(line))
			}
			if text := strings.Join(got, ", "); text != test.want {
				t.Errorf("it found %s\nwant %s", text, test.want)
			}
		})
	}
}
