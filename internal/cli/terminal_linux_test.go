package cli_test

import (
	"cmp"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/screen"
	"github.com/spool-run/spool/internal/servertest"
)

// terminal is a spool command on a terminal, with a simulated user.
type terminal struct {
	t      *testing.T
	keys   *os.File // the user's side: write keys, read output
	screen *os.File // the command's side
	before unix.Termios
	cmd    *exec.Cmd
	ended  chan struct{}  // closed when the command has ended
	err    error          // how it ended
	output chan []byte    // output of the command
	shown  string         // output that see has not matched yet
	drawn  int            // how much of shown until wrote to a screen
	all    string         // output so far
	emu    *screen.Screen // what the user sees
}

func typeIn(t *testing.T, state string, args ...string) *terminal {
	t.Helper()
	return typeInDir(t, "", state, args...)
}

// typeInDir is typeIn in a working directory; empty means that of the test.
func typeInDir(t *testing.T, dir, state string, args ...string) *terminal {
	t.Helper()
	keys, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { keys.Close(); tty.Close() })
	if err := pty.Setsize(keys, &pty.Winsize{Rows: 30, Cols: 100}); err != nil {
		t.Fatal(err)
	}
	c := &terminal{t: t, keys: keys, screen: tty, ended: make(chan struct{}), output: make(chan []byte), emu: screen.New(30, 100)}
	c.before = c.settings()
	c.cmd = exec.Command(cmp.Or(os.Getenv("TEST_SPOOL"), "spool"), args...)
	c.cmd.Dir = dir
	kind := os.Getenv("TEST_TERM")
	if kind == "" {
		kind = "xterm"
	}
	c.cmd.Env = append(os.Environ(), "SPOOL_STATE="+state, "SPOOL_SERVER=", "TERM="+kind, "GORACE="+raceOptions)
	for _, name := range []string{"NO_COLOR", "TMUX", "STY", "KITTY_WINDOW_ID", "TERM_PROGRAM", "LC_TERMINAL", "KONSOLE_VERSION"} {
		if os.Getenv("TEST_"+name) == "" { // what the tests run in is not what they test
			c.cmd.Env = append(c.cmd.Env, name+"=")
		} else {
			c.cmd.Env = append(c.cmd.Env, name+"="+os.Getenv("TEST_"+name))
		}
	}
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = tty, tty, tty
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(c.ended)
		c.err = c.cmd.Wait()
	}()
	over := make(chan struct{})
	t.Cleanup(func() {
		close(over)
		_ = c.cmd.Process.Kill()
		<-c.ended
	})
	go func() {
		for {
			buf := make([]byte, 4096)
			n, err := keys.Read(buf)
			if err != nil {
				return
			}
			select {
			case c.output <- buf[:n]:
			case <-over:
				return
			}
		}
	}()
	return c
}

func (c *terminal) settings() unix.Termios {
	c.t.Helper()
	s, err := unix.IoctlGetTermios(int(c.screen.Fd()), unix.TCGETS)
	if err != nil {
		c.t.Fatal(err)
	}
	return *s
}

// see waits until the output contains text, and drops the output up to its end.
func (c *terminal) see(text string) {
	c.t.Helper()
	timeout := time.After(3 * time.Minute)
	for {
		if _, after, ok := strings.Cut(c.shown, text); ok {
			c.shown = after
			return
		}
		select {
		case b := <-c.output:
			c.received(b)
		case <-timeout:
			c.t.Fatalf("%q is not shown, but %q", text, c.shown)
		}
	}
}

// received takes output of the command.
func (c *terminal) received(b []byte) {
	c.shown += string(b)
	c.all += string(b)
	_, _ = c.emu.Write(b) // it takes everything
}

// prompt waits until the editor of a prompt begins, which is after the last cell
// is done.
func (c *terminal) prompt() {
	c.t.Helper()
	c.see("\x1b[?2004h")
	c.see(">>> ")
}

// screenEnds waits until these are the last lines on the screen, with the cursor
// at the end of the last one; a | in a line is the cursor.
func (c *terminal) screenEnds(lines ...string) {
	c.t.Helper()
	timeout := time.After(3 * time.Minute)
	row, column := len(lines)-1, -1
	for i, line := range lines {
		if at := strings.IndexByte(line, '|'); at >= 0 {
			row, column = i, at
			lines[i] = line[:at] + line[at+1:]
		}
	}
	if column < 0 {
		column = len(lines[row])
	}
	want := make([]string, len(lines))
	for i, line := range lines {
		want[i] = strings.TrimRight(line, " ")
	}
	for {
		shown := c.emu.Rows()
		atRow, atColumn, _ := c.emu.Cursor()
		last := atRow + len(lines) - 1 - row
		if first := last - len(lines) + 1; first >= 0 && last < len(shown) && atColumn == column &&
			slices.Equal(shown[first:last+1], want) && strings.Join(shown[last+1:], "") == "" {
			return
		}
		select {
		case b := <-c.output:
			c.received(b)
		case <-timeout:
			c.t.Fatalf("the screen does not end with %q (cursor in line %d, column %d), but is, with the cursor in %d, %d:\n%s",
				want, row, column, atRow, atColumn, strings.Join(shown, "\n"))
		}
	}
}

// styleOf returns the parameters of the style of the last occurrence of a word on
// the screen, and whether the word is there in one style.
func (c *terminal) styleOf(word string) (style string, ok bool) {
	rows, cols := c.emu.Size()
	painted := string(c.emu.Paint(rows, cols))
	at := strings.LastIndex(painted, word)
	if at < 0 {
		return "", false
	}
	styles := regexp.MustCompile(`\x1b\[0;?([0-9;:]*)m`).FindAllStringSubmatch(painted[:at], -1)
	if len(styles) == 0 {
		return "", true
	}
	return styles[len(styles)-1][1], true
}

// sees reports whether the output contains text within a time, and drops the
// output up to its end.
func (c *terminal) sees(text string, within time.Duration) bool {
	c.t.Helper()
	timeout := time.After(within)
	for {
		if _, after, ok := strings.Cut(c.shown, text); ok {
			c.shown = after
			return true
		}
		select {
		case b := <-c.output:
			c.received(b)
		case <-timeout:
			return false
		}
	}
}

func (c *terminal) typed(keys string) {
	c.t.Helper()
	if _, err := c.keys.WriteString(keys); err != nil {
		c.t.Fatal(err)
	}
}

func (c *terminal) raw() bool {
	s := c.settings()
	return s.Lflag&(unix.ICANON|unix.ECHO|unix.ISIG) == 0
}

// exits waits for the command to exit with a code. The command must restore the
// terminal's settings.
func (c *terminal) exits(code int) {
	c.t.Helper()
	timeout := time.After(3 * time.Minute)
	for waiting := true; waiting; {
		select {
		case <-c.ended:
			waiting = false
		case b := <-c.output:
			c.received(b)
		case <-timeout:
			c.t.Fatalf("the command does not exit; shown: %q", c.shown)
		}
	}
	var exit *exec.ExitError
	if c.err != nil && !errors.As(c.err, &exit) {
		c.t.Fatal(c.err)
	}
	if got := c.cmd.ProcessState.ExitCode(); got != code {
		c.t.Errorf("exit code %d, want %d; shown: %q", got, code, c.shown)
	}
	if diff := gocmp.Diff(c.before, c.settings()); diff != "" {
		c.t.Errorf("the settings of the terminal changed: %s", diff)
	}
}

func TestRunTTY(t *testing.T) {
	c := typeIn(t, servertest.StateDir(t), "run", "--tty", "--", "sh", "-c", `
		stty size; echo ready
		read line; echo "got <$line>"
		until [ "$(stty size)" = "40 120" ]; do sleep 0.01; done; echo resized
		exit 5`)
	c.see("30 100\r\nready\r\n")
	if !c.raw() {
		t.Error("the terminal is not raw")
	}
	c.typed("hello\r")
	c.see("got <hello>\r\n")
	if err := pty.Setsize(c.keys, &pty.Winsize{Rows: 40, Cols: 120}); err != nil {
		t.Fatal(err)
	}
	c.see("resized\r\n")
	c.exits(5)
}

func TestRunTTYInterrupt(t *testing.T) {
	c := typeIn(t, servertest.StateDir(t), "run", "--tty", "--", "sh", "-c", "echo ready; exec sleep 60")
	c.see("ready\r\n")
	c.typed("\x03")
	c.exits(130)
}

func TestRunTTYTerminated(t *testing.T) {
	c := typeIn(t, servertest.StateDir(t), "run", "--tty", "--", "sh", "-c", "echo ready; exec sleep 60")
	c.see("ready\r\n")
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	c.exits(143)
}

func TestRunInterruptWithoutTTY(t *testing.T) {
	c := typeIn(t, servertest.StateDir(t), "run", "--", "sh", "-c", `trap "echo caught; exit 11" INT; echo ready; while :; do sleep 0.01; done`)
	c.see("ready\r\n")
	if c.raw() {
		t.Error("the terminal is raw")
	}
	c.typed("\x03")
	c.see("caught\r\n")
	c.exits(11)
}

func TestRunReadsTerminalWithoutTTY(t *testing.T) {
	c := typeIn(t, servertest.StateDir(t), "run", "--", "sh", "-c", `echo ready; cat; echo end`)
	c.see("ready\r\n")
	c.typed("hello\n")
	c.see("hello\r\nhello\r\n") // once by the terminal, once by cat
	c.typed("\x04")
	c.see("end\r\n")
	c.exits(0)
}

func TestAttachTTY(t *testing.T) {
	state := servertest.StateDir(t)
	run := typeIn(t, state, "run", "--tty", "--name", "shell", "--", "sh", "-c", `
		echo ready; while read line; do [ "$line" = bye ] && exit 6; echo "got <$line>"; done`)
	run.see("ready\r\n")

	first := typeIn(t, state, "attach", "shell")
	first.see("press Ctrl-P Ctrl-Q to detach\r\n")
	run.typed("hello\r")
	first.see("got <hello>\r\n")
	run.see("got <hello>\r\n")
	if !first.raw() {
		t.Error("the terminal is not raw")
	}
	first.typed("a\x10b\r") // a Ctrl-P alone is sent to the run
	first.see("got <a\x10b>\r\n")
	first.typed("\x10\x11")
	first.see("is still running")
	first.exits(0)

	second := typeIn(t, state, "attach", "--after", "0", "shell")
	second.see("got <hello>\r\n")
	second.typed("bye\r")
	second.exits(6)
	run.exits(6)
}

func TestAttachInterruptDetaches(t *testing.T) {
	state := servertest.StateDir(t)
	run := typeIn(t, state, "run", "--name", "loop", "--", "sh", "-c", `echo ready; exec sleep 60`)
	run.see("ready\r\n")
	a := typeIn(t, state, "attach", "--after", "0", "loop")
	a.see("press Ctrl-C to detach\r\n")
	a.see("ready\r\n")
	a.typed("\x03")
	a.see("is still running")
	a.exits(0)
	run.typed("\x03")
	run.exits(130)
}

// TestTerminalIsGuarded checks that the output of a run sets neither the title
// nor the clipboard of the terminal, unless --raw is given.
func TestTerminalIsGuarded(t *testing.T) {
	const script = `printf 'a\033]52;c;eA==\007b\033]0;title\007c\033[6nd\033[1me\033[0m.\n'`
	state := servertest.StateDir(t)
	c := typeIn(t, state, "run", "--", "sh", "-c", script)
	c.see("abcd\x1b[1me\x1b[0m.")
	c.exits(0)
	c = typeIn(t, state, "run", "--raw", "--", "sh", "-c", script)
	c.see("a\x1b]52;c;eA==\ab\x1b]0;title\ac\x1b[6nd\x1b[1me\x1b[0m.")
	c.exits(0)
}

// Lists that are shown again and again stay in place, fit the terminal, and end
// with Ctrl-C.
func TestWatch(t *testing.T) {
	state := servertest.StateDir(t)
	spool := func(args ...string) {
		t.Helper()
		cmd := exec.Command("spool", args...)
		cmd.Env = append(os.Environ(), "SPOOL_STATE="+state, "SPOOL_SERVER=")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("spool %v: %v: %s", args, err, out)
		}
	}
	name := strings.Repeat("名前", 60) // 240 columns
	spool("run", "--detach", "--name", name, "--", "sleep", "600")
	t.Cleanup(func() { spool("kill", "--all", "--now") })
	for _, args := range [][]string{{"ps", "--watch"}, {"stats", "--watch"}, {"top"}} {
		t.Run(args[0], func(t *testing.T) {
			c := typeIn(t, state, args...)
			c.see("\x1b[2J\x1b[H")
			c.see("NAME")
			c.see("名前名")
			c.see("…")
			c.see("sleep 600")
			if err := pty.Setsize(c.keys, &pty.Winsize{Rows: 30, Cols: 400}); err != nil {
				t.Fatal(err)
			}
			c.see("\x1b[H")
			c.see(name)
			if args[0] == "ps" { // changes are shown as they come
				spool("run", "--detach", "--name", "another", "--", "sh", "-c", "exit $((3+4))")
				c.see("another")
				c.see("exited 7")
			}
			c.typed("\x03")
			c.exits(130)
		})
	}
}

// Ps fits the terminal, with wide characters in names.
func TestListFitsTheTerminal(t *testing.T) {
	state := servertest.StateDir(t)
	for _, name := range []string{strings.Repeat("n", 300), strings.Repeat("宽", 200)} {
		cmd := exec.Command("spool", "run", "--name", name, "--", "true")
		cmd.Env = append(os.Environ(), "SPOOL_STATE="+state, "SPOOL_SERVER=")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	c := typeIn(t, state, "ps")
	c.see("COMMAND\r\n")
	for range 2 {
		c.see("\r\n")
	}
	c.exits(0)
	c = typeIn(t, state, "ps")
	c.exits(0)
	for line := range strings.Lines(c.shown) {
		line = strings.TrimRight(regexp.MustCompile("\x1b\\[[0-9;]*[A-Za-z]").ReplaceAllString(line, ""), "\r\n")
		width := 0
		for _, r := range line {
			if width++; r == '宽' {
				width++
			}
		}
		if width > 100 {
			t.Errorf("%d columns: %q", width, line)
		}
	}
}

// TestRunDetaches checks that the detach keys leave a run and attach comes back.
func TestRunDetaches(t *testing.T) {
	state := servertest.StateDir(t)
	const script = `echo ready; read line; echo "got <$line>"; exit 4`
	c := typeIn(t, state, "run", "--tty", "--name", "shell", "--", "sh", "-c", script)
	c.see("ready\r\n")
	c.typed("\x10\x11")
	c.see(`detached; shell is still running; "spool attach shell" connects again`)
	c.exits(0)
	a := typeIn(t, state, "attach", "shell")
	a.see("press Ctrl-P Ctrl-Q to detach\r\n")
	a.typed("hello\r")
	a.see("got <hello>\r\n")
	a.exits(4)

	c = typeIn(t, state, "run", "--tty", "--detach-keys", "ctrl-a,d", "--name", "other", "--", "sh", "-c", script)
	c.see("ready\r\n")
	c.typed("\x10\x11\x01d")
	c.see("other is still running")
	c.exits(0)
	a = typeIn(t, state, "attach", "--detach-keys", "ctrl-x", "other")
	a.see("press Ctrl-X to detach\r\n")
	a.typed("\x18")
	a.see("other is still running")
	a.exits(0)
	typeIn(t, state, "kill", "other").exits(0)
}

// TestTerminalHangup checks that SIGHUP of the terminal leaves the run, unless
// --hangup stop is given.
func TestTerminalHangup(t *testing.T) {
	state := servertest.StateDir(t)
	c := typeIn(t, state, "run", "--tty", "--name", "kept", "--", "sh", "-c", `echo ready; read line; exit 4`)
	c.see("ready\r\n")
	if err := c.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	c.see(`kept is still running; "spool attach kept"`)
	c.exits(129)
	a := typeIn(t, state, "attach", "kept")
	a.see("to detach\r\n")
	a.typed("\r")
	a.exits(4)

	c = typeIn(t, state, "run", "--tty", "--hangup", "stop", "--name", "stopped", "--", "sh", "-c", `trap "exit 9" TERM; echo ready; while :; do sleep 0.01; done`)
	c.see("ready\r\n")
	if err := c.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	c.see("stopped stopped")
	c.exits(129)
	w := typeIn(t, state, "wait", "stopped")
	w.exits(9)
}

// TestClosedTerminalKeepsRun checks that a run continues when its terminal is
// gone: neither the end of input nor a failed write reaches it.
func TestClosedTerminalKeepsRun(t *testing.T) {
	state := servertest.StateDir(t)
	keys, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("spool", "run", "--tty", "--name", "kept", "--", "sh", "-c",
		`echo ready; while read line; do [ "$line" = bye ] && exit 4; done; exit 5`)
	cmd.Env = append(os.Environ(), "SPOOL_STATE="+state, "SPOOL_SERVER=", "TERM=xterm", "GORACE="+raceOptions)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	tty.Close()
	shown, buf := "", make([]byte, 4096)
	for !strings.Contains(shown, "ready") {
		n, err := keys.Read(buf)
		if err != nil {
			t.Fatalf("%v after %q", err, shown)
		}
		shown += string(buf[:n])
	}
	keys.Close()
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 129 {
		t.Errorf("the command ended with %v, want exit code 129", err)
	}
	a := typeIn(t, state, "attach", "kept")
	a.see("to detach\r\n")
	a.typed("bye\r")
	a.exits(4)
}

// TestAttachInsideRefused checks that a process of a run can neither attach to
// the run nor follow it on its terminal.
func TestAttachInsideRefused(t *testing.T) {
	c := typeIn(t, servertest.StateDir(t), "run", "--tty", "--name", "shell", "--", "sh", "-c", `
		spool attach shell; echo "code $?"
		spool logs -f shell; echo "code $?"
		spool run --tty -- sh -c 'spool attach shell; echo "inner $?"'
		spool logs shell >/dev/null; echo "end $?"`)
	c.see("this terminal is inside run shell")
	c.see("code 125")
	c.see("this terminal is inside run shell")
	c.see("code 1")
	c.see("this terminal is inside run shell")
	c.see("inner 125")
	c.see("end 0")
	c.exits(0)
}
