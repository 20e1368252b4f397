package cli_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/screen"
	"github.com/spool-run/spool/internal/servertest"
	"github.com/spool-run/spool/internal/skiptest"
)

// until writes what the terminal shows to a screen until the screen is right.
func (c *terminal) until(s *screen.Screen, what string, right func() bool) {
	c.t.Helper()
	timeout := time.After(3 * time.Minute)
	for {
		_, _ = s.Write([]byte(c.shown[c.drawn:]))
		c.drawn = len(c.shown)
		if right() {
			return
		}
		select {
		case b := <-c.output:
			c.shown += string(b)
		case <-timeout:
			c.t.Fatalf("%s: the screen shows\n%s", what, strings.Join(s.Rows(), "\n"))
		}
	}
}

// needs skips the test without a program, or fails it in CI.
func needs(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		skiptest.Missing(t, "%s is missing: make deps installs it", program)
	}
}

// server is a server for the runs in a state directory.
type server struct {
	cmd *exec.Cmd
	url string
}

func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// startServer starts a server with a socket in a directory. The runs outlive it.
func startServer(t *testing.T, state, dir string) *server {
	t.Helper()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("spool", "exec-server", "--on-exit", "keep", "--listen", "unix://"+filepath.Join(dir, "socket"))
	cmd.Env = append(os.Environ(), "SPOOL_STATE="+state, "SPOOL_SERVER=", "GORACE="+raceOptions)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	s := &server{cmd: cmd}
	t.Cleanup(s.kill)
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	s.url = strings.TrimSpace(url)
	return s
}

// endRuns kills the runs in a state directory after the test.
func endRuns(t *testing.T, state string) {
	t.Helper()
	t.Cleanup(func() {
		cmd := exec.Command("spool", "kill", "--all", "--now")
		cmd.Env = append(os.Environ(), "SPOOL_STATE="+state, "SPOOL_SERVER=")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("end the runs: %v: %s", err, out)
		}
	})
}

// TestAttachRepaints checks that attach shows the screen of a program that draws
// only what changes, that the program continues from there, and that the
// terminal is as before after the user detached.
func TestAttachRepaints(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lines")
	var lines strings.Builder
	for i := range 500 {
		fmt.Fprintf(&lines, "line %d\n", i+1)
	}
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	state := servertest.StateDir(t)
	endRuns(t, state)
	url := startServer(t, state, t.TempDir()).url
	for _, tt := range []struct {
		name, next, first, second string
		argv, flags               []string
	}{
		{"less", " ", "line 1", "line 30", []string{"less", file}, nil},
		{"less-server", " ", "line 1", "line 30", []string{"less", file}, []string{"--server", url}},
		{"vi", "\x06", "line 1", "line 28", []string{"vi", "-u", "NONE", file}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			needs(t, tt.argv[0])
			spool := func(args ...string) (*terminal, *screen.Screen) {
				return typeIn(t, state, slices.Concat(args[:1], tt.flags, args[1:])...), screen.New(30, 100)
			}
			run, original := spool(append([]string{"run", "--tty", "--name", tt.name, "-e", "TERM=xterm", "-e", "LESS=", "--"}, tt.argv...)...)
			run.until(original, "the program", func() bool { return original.Rows()[0] == tt.first && original.Rows()[28] == "line 29" })
			attach, shown := spool("attach", tt.name)
			attach.until(shown, "attach", func() bool { return shown.Alternate() && slices.Equal(shown.Rows()[:29], original.Rows()[:29]) })
			attach.typed(tt.next)
			run.until(original, "the program after a key", func() bool { return original.Rows()[0] == tt.second })
			attach.until(shown, "attach after a key", func() bool { return shown.Rows()[0] == tt.second })

			attach.typed("\x10\x11")
			attach.exits(0)
			attach.until(shown, "after detaching", func() bool {
				_, _, visible := shown.Cursor()
				return visible && !shown.Alternate() && strings.Contains(strings.Join(shown.Rows(), ""), "connects again")
			})
			if got := strings.Join(shown.Rows(), "\n"); !strings.Contains(got, "spool: attached to ") || strings.Contains(got, "line 30") {
				t.Errorf("the terminal shows\n%s", got)
			}
			again, shown := spool("attach", tt.name)
			again.until(shown, "attach again", func() bool { return shown.Alternate() && shown.Rows()[0] == tt.second })
			again.typed(map[string]string{"vi": ":q!\r", "less": "q"}[tt.argv[0]])
			again.exits(0)
			run.exits(0)
			again.until(shown, "after the end", func() bool { return !shown.Alternate() })
		})
	}
}

// TestAttachShowsWhatIsOld checks that attach shows what a program drew long ago
// and never again, with more output after it than attach reads at first.
func TestAttachShowsWhatIsOld(t *testing.T) {
	state := servertest.StateDir(t)
	endRuns(t, state)
	run := typeIn(t, state, "run", "--tty", "--name", "top", "--", "sh", "-c", fmt.Sprintf(`
		printf '\033[?1049h\033[?25l\033[H\033[2Jlabel'
		yes "$(printf '\033[5;5H12345\033[7;5H67890')" | head -c %d | tr -d '\n'
		printf '\033[9;5Hdone'; read x; exit 3`, 3*screen.Window/2))
	original := screen.New(30, 100)
	run.until(original, "the program", func() bool { return original.Rows()[8] == "    done" })
	attach, shown := typeIn(t, state, "attach", "top"), screen.New(30, 100)
	attach.until(shown, "attach", func() bool {
		_, _, visible := shown.Cursor()
		return !visible && shown.Alternate() && slices.Equal(shown.Rows(), original.Rows())
	})
	if got := shown.Rows()[0]; got != "label" {
		t.Errorf("the first row is %q", got)
	}
	attach.typed("\r")
	attach.exits(3)
	run.exits(3)
}

// TestTerminalIsRestored checks that a program which changed the terminal leaves
// it as it was, when the user detaches and when the program is killed.
func TestTerminalIsRestored(t *testing.T) {
	const script = `printf '\033[?1049h\033[?1h\033=\033[?25l\033[?1000h\033[?1006h\033[?2004h\033[>4;2m\033[5 qdrawn'; read x`
	restored := func(c *terminal, s *screen.Screen) {
		t.Helper()
		c.until(s, "restore", func() bool {
			_, _, visible := s.Cursor()
			return visible && !s.Alternate()
		})
		for _, want := range []string{"\x1b[?1049l", "\x1b[?1l", "\x1b>", "\x1b[?25h", "\x1b[?1000l", "\x1b[?1006l", "\x1b[?2004l", "\x1b[>4m", "\x1b[0 q"} {
			c.until(s, fmt.Sprintf("%q is missing", want), func() bool { return strings.Contains(c.shown, want) })
		}
	}
	state := servertest.StateDir(t)
	endRuns(t, state)
	c, s := typeIn(t, state, "run", "--tty", "--name", "app", "--", "sh", "-c", script), screen.New(30, 100)
	c.until(s, "the program", func() bool { return s.Alternate() && strings.HasPrefix(s.Rows()[0], "drawn") })
	c.typed("\x10\x11")
	c.exits(0)
	restored(c, s)

	// Attaching brings the modes back.
	c, s = typeIn(t, state, "attach", "app"), screen.New(30, 100)
	for _, want := range []string{"\x1b[?1049h", "\x1b[?1h", "\x1b=", "\x1b[?25l", "\x1b[?1000h", "\x1b[?1006h", "\x1b[?2004h", "\x1b[>4;2m", "\x1b[5 q"} {
		c.until(s, fmt.Sprintf("%q is missing", want), func() bool { return strings.Contains(c.shown, want) })
	}
	kill := exec.Command("spool", "kill", "--now", "app")
	kill.Env = append(os.Environ(), "SPOOL_STATE="+state, "SPOOL_SERVER=")
	if out, err := kill.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c.exits(137)
	restored(c, s)
}

// TestLookDoesNotResize checks that attach without input leaves the size of the
// run's terminal alone.
func TestLookDoesNotResize(t *testing.T) {
	state := servertest.StateDir(t)
	endRuns(t, state)
	run := exec.Command("spool", "run", "--detach", "--tty", "--name", "small", "--", "sh", "-c", `trap 'echo resized' WINCH; echo ready; while read x; do stty size; done`)
	run.Env = append(os.Environ(), "SPOOL_STATE="+state, "SPOOL_SERVER=")
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	look, shown := typeIn(t, state, "attach", "--no-stdin", "small"), screen.New(30, 100)
	look.until(shown, "look", func() bool { return shown.Rows()[0] == "ready" || strings.Contains(look.shown, "ready") })
	send := exec.Command("spool", "attach", "small")
	send.Stdin = strings.NewReader("\n")
	send.Env = append(os.Environ(), "SPOOL_STATE="+state, "SPOOL_SERVER=")
	if err := send.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = send.Process.Kill()
		_ = send.Wait()
	}()
	look.until(shown, "the size", func() bool { return strings.Contains(look.shown, "24 80") })
	if strings.Contains(look.shown, "resized") {
		t.Errorf("the run was resized: %q", look.shown)
	}
	look.typed("\x03")
	look.exits(0)
}

// TestLostServer checks that a terminal shows that the server is lost in one
// place, that the screen of the run is painted again when the server is back,
// and that one sentence says that it did not come back.
func TestLostServer(t *testing.T) {
	state := servertest.StateDir(t)
	endRuns(t, state)
	dir := t.TempDir()
	first := startServer(t, state, dir)
	run := typeIn(t, state, "run", "--server", first.url, "--reconnect", "10m", "--tty", "--name", "app", "--", "sh", "-c",
		`printf '\033[?1049h\033[H\033[2Jtop\033[30;1Hbottom\033[1;4H'; read x; exit 3`)
	shown := screen.New(30, 100)
	run.until(shown, "the program", func() bool { return shown.Rows()[29] == "bottom" })
	first.kill()
	run.until(shown, "lost", func() bool { return strings.HasPrefix(shown.Rows()[29], "spool: reconnecting… ") })
	again := startServer(t, state, dir)
	run.until(shown, "back", func() bool { return shown.Rows()[0] == "top" && shown.Rows()[29] == "bottom" })
	run.typed("\r")
	run.exits(3)

	c := typeIn(t, state, "run", "--server", again.url, "--reconnect", "10m", "--name", "plain", "--", "sh", "-c", `echo ready; read x; exit 4`)
	c.see("ready\r\n")
	again.kill()
	c.see("\r\x1b[Kspool: reconnecting… ")
	last := startServer(t, state, dir)
	c.see("\r\x1b[K")
	c.typed("\n")
	c.exits(4)

	c = typeIn(t, state, "run", "--server", last.url, "--reconnect", "0s", "--name", "lost", "--", "sh", "-c", `echo ready; read x`)
	c.see("ready\r\n")
	last.kill()
	c.see("spool: run: lost the server: ")
	c.see("try again when the server is back\r\n")
	c.exits(125)
	if strings.Contains(c.shown, "spool: ") {
		t.Errorf("more is shown: %q", c.shown)
	}
}

// BenchmarkLateAttach measures the time from the start of "spool attach" until the
// screen of a run with 100 MB of terminal output is there.
func BenchmarkLateAttach(b *testing.B) {
	state := servertest.StateDir(b)
	environment := append(os.Environ(), "SPOOL_STATE="+state, "SPOOL_SERVER=", "TERM=xterm")
	spool := func(args ...string) string {
		cmd := exec.Command("spool", args...)
		cmd.Env = environment
		out, err := cmd.CombinedOutput()
		if err != nil {
			b.Fatalf("spool %v: %v: %s", args, err, out)
		}
		return string(out)
	}
	// Full redraws and changes between them, as of a program that shows progress.
	const program = `awk 'BEGIN {
  line = sprintf("%90s", ""); gsub(/ /, "x", line)
  while (bytes < 100 * 1024 * 1024) {
    printf "\033[H\033[2J"
    for (i = 0; i < 400; i++) { printf "\033[%d;1H\033[3%dm%s\033[m", i % 28 + 1, i % 8, line; bytes += 105 }
  }
  printf "\033[30;1Hready"
}'; read -r _`
	spool("run", "--detach", "--tty", "--name", "late", "--output-limit", "1G", "--", "sh", "-c", program)
	b.Cleanup(func() { spool("kill", "--now", "late") })
	polltest.Until(b, "ready", func() bool { return strings.HasSuffix(spool("logs", "--tail", "1", "late"), "ready") })
	var used time.Duration
	attached := 0
	for b.Loop() {
		keys, tty, err := pty.Open()
		if err != nil {
			b.Fatal(err)
		}
		cmd := exec.Command("spool", "attach", "late")
		cmd.Env = environment
		cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		tty.Close()
		var shown []byte
		for !strings.Contains(string(shown), "ready") {
			buf := make([]byte, 64<<10)
			n, err := keys.Read(buf)
			if err != nil {
				b.Fatalf("the terminal ended after %q: %v", shown, err)
			}
			shown = append(shown, buf[:n]...)
		}
		b.StopTimer()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		keys.Close()
		used += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		attached++
		b.StartTimer()
	}
	b.ReportMetric(float64(used.Milliseconds())/float64(attached), "cpu-ms/op") // of the command, on a busy machine too
}
