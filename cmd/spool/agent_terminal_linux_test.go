package main_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"

	"github.com/spool-run/spool/internal/agenttest"
	"github.com/spool-run/spool/internal/fifotest"
	"github.com/spool-run/spool/internal/modeltest"
	"github.com/spool-run/spool/internal/servertest"
)

// The size of the terminal, and that to which it shrinks in the middle of a turn.
const (
	terminalRows  = 30
	terminalCols  = 100
	narrowCols    = 64
	terminalStall = 3 * time.Minute // a busy machine takes a minute to start opencode
)

// screen is a shell with job control on a terminal whose screen an emulator
// shows.
type screen struct {
	t      *testing.T
	keys   *os.File // the user's side of the terminal
	emu    *vt.Emulator
	output chan []byte
}

// openScreen starts a shell in a directory.
func openScreen(t *testing.T, dir string, env []string) *screen {
	t.Helper()
	keys, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	s := &screen{t: t, keys: keys, emu: vt.NewEmulator(terminalCols, terminalRows), output: make(chan []byte)}
	s.resize(terminalCols)
	shell := exec.Command("bash", "--norc", "--noprofile", "--noediting", "-i")
	shell.Dir = dir
	shell.Env = append(slices.Clone(env), "TERM=xterm-256color", "PS1=$ ", "HISTFILE=")
	shell.Stdin, shell.Stdout, shell.Stderr = tty, tty, tty
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	tty.Close()
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			buf := make([]byte, 4096)
			n, err := keys.Read(buf)
			if err != nil {
				return
			}
			select {
			case s.output <- buf[:n]:
			case <-over:
			}
		}
	}()
	t.Cleanup(func() {
		close(over)
		_ = shell.Process.Signal(syscall.SIGHUP) // the shell passes it on to its jobs
		_ = shell.Process.Kill()
		_ = shell.Wait()
		keys.Close()
		<-ended
		s.emu.Close()
	})
	return s
}

// resize changes the width of the terminal.
func (s *screen) resize(cols int) {
	s.t.Helper()
	s.emu.Resize(cols, terminalRows)
	if err := pty.Setsize(s.keys, &pty.Winsize{Rows: terminalRows, Cols: uint16(cols)}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *screen) typed(keys string) {
	s.t.Helper()
	if _, err := s.keys.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

// text returns what the user can scroll to and see.
func (s *screen) text() string {
	var b strings.Builder
	for _, line := range s.emu.Scrollback().Lines() {
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	for line := range strings.Lines(s.emu.String()) {
		b.WriteString(strings.TrimRight(line, " \r\n") + "\n")
	}
	return b.String()
}

// see waits until the text matches an expression, in which ^ and $ match at
// lines, so many times.
func (s *screen) see(expression string, times int) {
	s.t.Helper()
	pattern := regexp.MustCompile("(?m)" + expression)
	timeout := time.After(terminalStall)
	for len(pattern.FindAllStringIndex(s.text(), -1)) < times {
		select {
		case b := <-s.output:
			if _, err := s.emu.Write(b); err != nil {
				s.t.Fatal(err)
			}
		case <-timeout:
			s.t.Fatalf("the terminal does not show %q %d times, but:\n%s", expression, times, s.text())
		}
	}
}

// wait takes output until something else has happened.
func (s *screen) wait(happened <-chan error) {
	s.t.Helper()
	timeout := time.After(terminalStall)
	for {
		select {
		case err := <-happened:
			if err != nil {
				s.t.Fatalf("%v\n%s", err, s.text())
			}
			return
		case b := <-s.output:
			if _, err := s.emu.Write(b); err != nil {
				s.t.Fatal(err)
			}
		case <-timeout:
			s.t.Fatalf("it does not happen:\n%s", s.text())
		}
	}
}

// onTerminal are the five agents as a user starts them on a terminal.
var onTerminal = []struct {
	name, home string
	command    string // PROMPT is the prompt
	asks       bool
	quiet      bool // it tells of an action only at its end
}{
	{name: "codex", home: agenttest.Codex, command: "codex --permissions untrusted --sandbox danger-full-access PROMPT", asks: true},
	{name: "claude", home: agenttest.Claude, command: "claude PROMPT", asks: true},
	{name: "opencode", home: agenttest.OpenCode, command: "opencode PROMPT", quiet: true},
	{name: "pi", home: agenttest.Pi, command: "pi PROMPT"},
	{name: "opencode over acp", home: agenttest.OpenCode, command: "acp PROMPT -- opencode acp", asks: true},
}

// TestAgentOnTerminal has a user work with every agent on a terminal: the turn is
// shown as it happens, approvals take one key, the window shrinks, Ctrl-Z and fg
// work, and all that was printed stays.
func TestAgentOnTerminal(t *testing.T) {
	t.Parallel()
	for _, a := range onTerminal {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			dir, state := t.TempDir(), t.TempDir()
			file := filepath.Join(dir, "notes.txt")
			if a.home == agenttest.Codex {
				file = "notes.txt"
			}
			m, err := modeltest.New(modeltest.ByTurn(
				modeltest.Together(modeltest.Say("I look first."), modeltest.Shell("echo >there; read _ <go; echo ok")),
				modeltest.Write(file, "first line\nsecond line\n"),
				modeltest.Say("All is done.\nGood bye."),
			))
			if err != nil {
				t.Fatal(err)
			}
			env := maps.Clone(agenttest.Home(t, a.home, m))
			env["SPOOL_STATE"] = state
			env["PATH"] = filepath.Dir(servertest.Binary(t)) + ":" + env["PATH"]
			if a.asks {
				env["OPENCODE_PERMISSION"] = `{"*":"ask"}`
			}
			var list []string
			for name, value := range env {
				if name != "TERM" && name != "NO_COLOR" {
					list = append(list, name+"="+value)
				}
			}
			there, proceed := fifotest.New(t, dir, "there"), fifotest.New(t, dir, "go")
			s := openScreen(t, dir, list)
			t.Cleanup(func() {
				servertest.EndKeepers(t, state)
				m.Close()
			})

			s.see(`^\$`, 1)
			s.typed("spool agent --name task --exit-grace 10m " + strings.Replace(a.command, "PROMPT", "Begin.", 1) + "\n")
			s.see(`^I look first\.$`, 1)
			if a.asks {
				s.see(`^    \$ .*echo >there; read _ <go; echo ok`, 1)
				s.see(`^press a key:`, 1)
				s.typed("y")
				s.see(`: allowed \(`, 1)
			}
			began := make(chan error, 1)
			go func() { began <- there.Wait(t.Context()) }()
			s.wait(began)
			if a.quiet {
				s.see(`^. .*working \d+(m\d+)?s`, 1)
			} else {
				s.see(`^. .*\$ echo >there; read _ <go; echo ok \d+(m\d+)?s`, 1)
			}
			s.resize(narrowCols)
			s.typed("\x1a")
			s.see(`Stopped +spool agent`, 1)
			s.typed("echo back-$((6*7)); stty -a | grep -o ' icanon'\n")
			s.see(`^(\$ )*back-42$`, 1)
			s.see(`^ icanon$`, 1)
			s.typed("fg\n")
			s.see(`^\S .*(echo ok|working) \d+(m\d+)?s`, 1)
			if err := proceed.Release(); err != nil {
				t.Fatal(err)
			}
			s.see(`^✓ \$ echo >there; read _ <go; echo ok \(\d+.*s\)$`, 1)
			if a.asks {
				s.see(`^        \+second line$`, 1)
				s.see(`^press a key:`, 2)
				s.typed("y")
				s.see(`: allowed \(`, 2)
			} else {
				s.see(`^    \+second line$`, 1)
			}
			s.see(`^✓ (add|edit|write) notes\.txt \(\+2 -0(, \d+.*s)?\)$`, 1)
			s.see(`^✓ done · `, 1)
			s.typed("echo status-$?\n")
			s.see(`^(\$ )*status-0$`, 1)

			text := s.text()
			kept := []string{"\nI look first.\n", "back-42\n", "\n✓ $ echo", "+first line\n", "+second line\n", "\nAll is done.\nGood bye.\n✓ done", "\nresume with `spool agent "}
			at := 0
			for _, want := range kept {
				i := strings.Index(text[at:], want)
				if i < 0 {
					t.Fatalf("%q is not on the terminal where it was printed:\n%s", want, text)
				}
				at += i
			}
			if left := regexp.MustCompile("(?m)^[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏!] .*(working|starting|waiting|echo).*$").FindString(text); left != "" {
				t.Errorf("the status line %q is left on the terminal:\n%s", left, text)
			}
			if strings.Count(text, "Good bye.") != 1 {
				t.Errorf("the answer is not shown once:\n%s", text)
			}

			// The log of the run has the same text.
			logs := exec.CommandContext(t.Context(), servertest.Binary(t), "logs", "task")
			logs.Env = list
			out, err := logs.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			wantIn(t, string(out), "> Begin.\n", "\nI look first.\n", "✓ $ echo >there; read _ <go; echo ok (", "    +second line\n", "\nAll is done.\nGood bye.\n✓ done · ")
			if strings.Contains(string(out), "\x1b") {
				t.Errorf("escape codes without a terminal: %q", out)
			}
			if err := m.Err(); err != nil {
				t.Error(err)
			}
		})
	}
}
