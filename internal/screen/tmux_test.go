//go:build linux

package screen

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool/internal/skiptest"
)

// tmux shows output in a real terminal emulator and returns what it shows in the
// form of text: the rows, the cursor and whether the alternate screen is shown.
func tmux(t *testing.T, output []byte) string {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		skiptest.Missing(t, "tmux is missing: make deps installs it")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "output")
	if err := os.WriteFile(file, output, 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("tmux", append([]string{"-S", filepath.Join(dir, "socket"), "-f", "/dev/null"}, args...)...)
		cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "TERM=xterm-256color", "TMUX=")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("tmux %q: %v: %s", args, err, out)
		}
		return string(out)
	}
	// The answer to the question comes when tmux has read everything before it.
	script := fmt.Sprintf(`stty raw -echo; cat %q; printf '\x18\e[6n'; IFS= read -rsd R; tmux wait-for -S drawn; sleep 1000`, file)
	run("new-session", "-d", "-x", "100", "-y", "30", "bash", "-c", script)
	defer run("kill-server")
	run("wait-for", "drawn")
	rows := strings.Split(strings.TrimSuffix(run("capture-pane", "-p"), "\n"), "\n")
	for len(rows) < 30 {
		rows = append(rows, "")
	}
	for i := range rows {
		rows[i] = strings.TrimRight(rows[i], " ")
	}
	at := strings.TrimSpace(run("display-message", "-p", "#{cursor_y},#{cursor_x} #{alternate_on} #{cursor_flag}"))
	return strings.Join(rows, "\n") + "\n@" + at
}

// ours is what this package shows of output, as tmux returns it.
func ours(output []byte) string {
	s := New(30, 100)
	_, _ = s.Write(append(bytes.Clone(output), can)) // as in tmux
	row, col, visible := s.Cursor()
	if s.page.cursor.wrap { // tmux counts the column after the last one
		col++
	}
	number := map[bool]int{true: 1}
	return strings.Join(s.Rows(), "\n") + fmt.Sprintf("\n@%d,%d %d %d", row, col, number[s.Alternate()], number[visible])
}

// record returns the output of a program on a terminal, until it shows text.
func record(t *testing.T, keys, until string, argv ...string) []byte {
	t.Helper()
	path, err := exec.LookPath(argv[0])
	if err != nil {
		skiptest.Missing(t, "%s is missing: make deps installs it", argv[0])
	}
	cmd := exec.Command(path, argv[1:]...)
	cmd.Env = append(os.Environ(), "TERM=xterm-256color", "LC_ALL=C.UTF-8", "LESS=", "HOME="+t.TempDir())
	f, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 30, Cols: 100})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		f.Close()
		_ = cmd.Wait()
	}()
	timer := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Signal(syscall.SIGKILL) })
	defer timer.Stop()
	var output []byte
	buf := make([]byte, 64<<10)
	s := New(30, 100)
	for {
		n, err := f.Read(buf)
		output = append(output, buf[:n]...)
		_, _ = s.Write(buf[:n])
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.EIO) {
				t.Fatal(err)
			}
			t.Fatalf("%q ended; it shows %q", argv, s.Rows())
		}
		shown := strings.Join(s.Rows(), "\n")
		if keys != "" && strings.Contains(shown, "line 1\n") {
			if _, err := f.WriteString(keys); err != nil {
				t.Fatal(err)
			}
			keys = ""
		}
		if keys == "" && strings.Contains(shown, until) && s.parser.state == ground {
			return output
		}
	}
}

// Real programs show the same here as in tmux.
func TestProgramsAgainstTmux(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lines")
	var b strings.Builder
	for i := range 500 {
		fmt.Fprintf(&b, "line %d\n", i+1)
		if i%3 == 0 {
			fmt.Fprintf(&b, "\t日本語 and \x1b[1mescapes\x1b[0m, %s\n", strings.Repeat("long ", 30))
		}
	}
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, keys, until string
		argv              []string
	}{
		{"less", " kkkj/line 77\r", "line 77\n", []string{"less", "-R", file}},
		{"vi", "\x06jjddp:set number\r:77\rOhello world", "hello world", []string{"vi", "-u", "NONE", file}},
		{"shell", "", "end\n", []string{"bash", "-c", "printf 'line 1\n'; seq 1 80; printf '\\e[3;5Hcolumn\\e[40;1Hend\n'; sleep 100"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			output := record(t, tt.keys, tt.until, tt.argv...)
			if diff := cmp.Diff(tmux(t, output), ours(output)); diff != "" {
				t.Errorf("tmux (-) and this package (+) differ: %s", diff)
			}
			// So does a terminal on which the screen was painted.
			s := New(30, 100)
			_, _ = s.Write(output)
			if diff := cmp.Diff(tmux(t, s.Paint(30, 100)), ours(output)); diff != "" {
				t.Errorf("the painted tmux (-) and this package (+) differ: %s", diff)
			}
		})
	}
}

// Random sequences show the same here as in tmux. Left out are saved cursors,
// character sets, origin mode and the cursor after a change of lines, in which
// tmux differs from xterm.
func TestSequencesAgainstTmux(t *testing.T) {
	var common []string
	for _, p := range pieces {
		if !strings.ContainsAny(p, "()\x0e\x0f") && !slices.Contains([]string{"\xff", "\x1b7", "\x1b8", "\x1b[?1049h", "\x1b[?1049l", "\x1b[?6h", "\x1b[?6l", "\x1b[>1u", "\x1b[<u", "\x1b[2L", "\x1b[M"}, p) {
			common = append(common, p)
		}
	}
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 4))
		var output []byte
		for range 200 {
			output = append(output, common[r.IntN(len(common))]...)
		}
		if diff := cmp.Diff(tmux(t, output), ours(output)); diff != "" {
			t.Errorf("seed %d: tmux (-) and this package (+) differ after %q: %s", seed, output, diff)
		}
	}
}
