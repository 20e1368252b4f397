package cli_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/creack/pty"

	"github.com/spool-run/spool/internal/servertest"
)

func TestREPL(t *testing.T) {
	state := servertest.StateDir(t)
	c := typeIn(t, state, "py", "--images", filepath.Join(t.TempDir(), "images"))
	c.see("Ctrl-D exits")
	c.prompt()
	c.typed("x = 40\r")
	c.prompt()
	c.typed("x + 2\r")
	c.see("42\r\n")
	c.prompt()

	// An empty line ends a block, a closing bracket an expression.
	c.typed("for i in range(2):\r")
	c.screenEnds(">>> for i in range(2):", "...     ")
	c.typed("print('i', i)\r")
	c.screenEnds("...     print('i', i)", "...     ")
	c.typed("\r")
	c.see("i 0\r\ni 1\r\n")
	c.prompt()
	c.typed("(1 +\r")
	c.screenEnds(">>> (1 +", "... ")
	c.typed("2)\r")
	c.see("3\r\n")
	c.prompt()

	// Ctrl-C at the prompt clears the text.
	c.typed("unfinished(\r")
	c.screenEnds(">>> unfinished(", "... ")
	c.typed("more\x03")
	c.see("KeyboardInterrupt\r\n")
	c.prompt()

	// Ctrl-C interrupts a cell; the interpreter keeps its state.
	c.typed("import time; print('be' + 'gun', flush=True); time.sleep(60)\r")
	c.see("begun\r\n")
	if c.raw() {
		t.Error("the terminal is raw while a cell runs")
	}
	c.typed("\x03")
	c.see("KeyboardInterrupt")
	c.prompt()
	c.typed("x\r")
	c.see("40\r\n")
	c.prompt()

	// The up arrow shows the cell before.
	c.typed("\x1b[A\x1b[A")
	c.screenEnds(">>> import time; print('be' + 'gun', flush=True); time.sleep(60)")
	c.typed("\r")
	c.see("begun\r\n")
	c.typed("\x03")
	c.see("KeyboardInterrupt\x1b[0m\r\n")
	c.prompt()

	// input() reads from the terminal, after what is on the line; a secret is
	// not echoed.
	c.typed("print('fi' + 'rst', end=' '); input('na' + 'me? ')\r")
	c.screenEnds("first name? ")
	c.typed("Ada\r")
	c.see("'Ada'\r\n")
	c.prompt()
	c.typed("import getpass; len(getpass.getpass('pass' + 'word: '))\r")
	c.see("password: ")
	c.typed("hidden\r")
	c.see("6\r\n")
	c.prompt()

	// An exception is printed; an image is saved.
	c.typed("1/0\r")
	c.see("\x1b[1;31mZeroDivisionError\x1b[0m: division by zero\r\n")
	c.prompt()
	c.typed("class P: _repr_png_ = lambda self: b'\\x89PNG' + bytes(9)\r")
	c.screenEnds(">>> class P: _repr_png_ = lambda self: b'\\x89PNG' + bytes(9)", ">>> ")
	c.typed("display(P())\r")
	c.see("\x1b[c") // the prompt asks whether the terminal shows images
	c.typed("\x1b[?62c")
	c.see("[image/png: ")
	c.see("1.png]\r\n")
	c.prompt()
	c.typed("\x04")
	c.exits(0)
	if strings.Contains(c.all, "hidden") {
		t.Error("the secret is on the screen")
	}

	// The next command has the history, without answers and secrets.
	files, err := filepath.Glob(filepath.Join(state, "history", "py-*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("history files %q, %v", files, err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil || !strings.Contains(string(b), "x + 2\n") || strings.Contains(string(b), "Ada") || strings.Contains(string(b), "hidden") {
		t.Errorf("history %q, %v", b, err)
	}
}

func TestREPLSession(t *testing.T) {
	state := servertest.StateDir(t)
	c := typeIn(t, state, "py", "--session", "talk")
	c.see("Ctrl-D exits; session talk keeps running")
	c.prompt()
	c.typed("x = 5\r")
	c.prompt()
	c.typed("\x04")
	c.exits(0)

	c = typeIn(t, state, "attach", "talk") // attach to a kernel opens the REPL
	c.prompt()
	c.typed("x * 2\r")
	c.see("10\r\n")
	c.prompt()
	c.typed("exit(4)\r")
	c.exits(4)

	c = typeIn(t, state, "py", "--session", "talk")
	c.prompt()
	c.typed("x\r")
	c.see("5\r\n")
	c.prompt()
	c.typed("\x04")
	c.exits(0)
	typeIn(t, state, "kill", "talk").exits(0)
}

func TestPyInterruptedOnTerminal(t *testing.T) {
	c := typeIn(t, servertest.StateDir(t), "py", "-c", "import time; print('begun', flush=True); time.sleep(60)")
	c.see("begun\r\n")
	c.typed("\x03")
	c.see("KeyboardInterrupt")
	c.exits(130)
}

// ship defines a class in the interpreter of the prompt.
func ship(c *terminal) {
	c.t.Helper()
	c.typed("\x1b[200~class Ship:\n    'A ship.'\n    def anchor(self, depth): return depth\n    def anger(self): pass\n\x1b[201~\r")
	c.prompt()
	c.typed("vessel = Ship()\r")
	c.prompt()
}

// TestPromptCompletes asks a live interpreter, also of a session and of a server.
func TestPromptCompletes(t *testing.T) {
	url := servertest.Start(t, t.TempDir()).URL
	for _, args := range [][]string{{"py", "--session", "assists"}, {"py", "--server", url}} {
		t.Run(strings.Join(args[1:2], ""), func(t *testing.T) {
			dir, state := t.TempDir(), servertest.StateDir(t)
			if err := os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("hello\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			c := typeInDir(t, dir, state, append(args, "--cwd", dir)...)
			c.see("Python 3.")
			c.prompt()
			ship(c)

			// Tab inserts what all completions have in common, then lists them.
			c.typed("vess\t")
			c.screenEnds(">>> vessel")
			c.typed(".an\t")
			c.screenEnds(">>> vessel.an|", "anchor  anger")
			c.typed("c\t(7)\r")
			c.see("7\r\n")
			c.prompt()

			// Magics, shell commands and files.
			c.typed("%timei\t")
			c.screenEnds(">>> %timeit")
			c.typed("\x03")
			c.prompt()
			c.typed("!ech\t ok; cat no\t\r")
			c.see("ok\r\nhello\r\n")
			c.prompt()

			// obj? and obj?? describe.
			c.typed("vessel.anchor?\r")
			c.see("Signature: anchor(depth)")
			c.prompt()
			c.typed("Ship.anchor??\r")
			c.screenEnds("Source:", "def anchor(self, depth): return depth", ">>> ")
			c.typed("nothing?\r")
			c.see("not found.\r\n")
			c.prompt()

			// In, Out and _ have the cells and their results.
			c.typed("7 * 9\r")
			c.see("63\r\n")
			c.prompt()
			c.typed("_ in Out.values(), In[-2], type(Out).__name__\r")
			c.see("(True, '7 * 9', 'dict')\r\n")
			c.prompt()
			c.typed("\x04")
			c.exits(0)
			if args[1] == "--session" {
				typeIn(t, state, "kill", "assists").exits(0)
			}
		})
	}
}

// TestBoxPrompt checks that the prompt of a sandbox is that of spool py.
func TestBoxPrompt(t *testing.T) {
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	cache = filepath.Join(cache, "spool-test", "sandbox")
	prepareSandbox(t, cache)
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("TEST_SPOOL", servertest.Binary(t)) // with the race detector preparing takes minutes
	url := servertest.Start(t, t.TempDir()).URL
	for _, args := range [][]string{{"box"}, {"box", "--server", url}} {
		t.Run(strings.Join(args[:min(2, len(args))], ""), func(t *testing.T) {
			c := typeIn(t, servertest.StateDir(t), args...)
			c.see(" in run ") // after the version of Python, unless a slow machine prepares it yet
			c.prompt()
			c.typed("'Python %d.%d' % __import__('sys').version_info[:2]\r")
			c.see("Python 3.")
			c.prompt()
			ship(c)
			c.typed("vess\t")
			c.screenEnds(">>> vessel")
			c.typed(".an\t")
			c.screenEnds(">>> vessel.an|", "anchor  anger")
			c.typed("c\t(7)\r")
			c.see("7\r\n")
			c.prompt()
			c.typed("vessel.anchor?\r")
			c.see("Signature: anchor(depth)")
			c.prompt()
			c.typed("Ship.anchor??\r")
			c.screenEnds("Source:", "def anchor(self, depth): return depth", ">>> ")
			c.typed("7 * 9\r")
			c.see("63\r\n")
			c.prompt()
			c.typed("_ in Out.values(), In[-2], type(Out).__name__\r")
			c.see("(True, '7 * 9', 'dict')\r\n")
			c.prompt()
			c.typed("for i in range(2):\r")
			c.screenEnds(">>> for i in range(2):", "...     ")
			c.typed("print(input('na' + 'me? '))\r")
			c.screenEnds("...     print(input('na' + 'me? '))", "...     ")
			c.typed("\r")
			c.screenEnds("name? ")
			c.typed("Ada\r")
			c.screenEnds("Ada", "name? ")
			c.typed("Bob\r")
			c.screenEnds("Bob", ">>> ")
			c.typed("1/0\r")
			c.see("ZeroDivisionError")
			c.prompt()
			if style, ok := c.styleOf("ZeroDivisionError"); !ok || style != "1;31" {
				t.Errorf("the style of the exception is %q", style)
			}
			c.typed("\x04")
			c.exits(0)
		})
	}
}

// TestPromptEditsEarlierLine goes up into an earlier line of the cell.
func TestPromptEditsEarlierLine(t *testing.T) {
	c := typeIn(t, servertest.StateDir(t), "py")
	c.prompt()
	c.typed("def f(x):\r")
	c.screenEnds(">>> def f(x):", "...     ")
	c.typed("y = x * 2\r")
	c.screenEnds("...     y = x * 2", "...     ")
	c.typed("return y")
	c.screenEnds("...     y = x * 2", "...     return y")
	c.typed("\x1b[A\x1b[A") // the column stays
	c.screenEnds(">>> def f(x):|", "...     y = x * 2", "...     return y")
	c.typed("\x1b[D\x1b[D, z\x1b[B\x1b[F + z") // left, down, end
	c.screenEnds(">>> def f(x, z):", "...     y = x * 2 + z|", "...     return y")
	c.typed("\r") // a new line between the others
	c.screenEnds(">>> def f(x, z):", "...     y = x * 2 + z", "...     |", "...     return y")
	c.typed("y += 1\x1b[B\x1b[F\r")
	c.screenEnds("...     y += 1", "...     return y", "... ")
	c.typed("\r")
	c.prompt()
	c.typed("f(3, 4)\r")
	c.see("11\r\n")
	c.prompt()

	// The history has the whole cell, and Alt-Enter runs it from any line.
	c.typed("\x1b[A\x1b[A\x1b[A")
	c.screenEnds(">>> def f(x, z):", "...     y = x * 2 + z", "...     y += 1|", "...     return y")
	c.typed("00")
	c.screenEnds(">>> def f(x, z):", "...     y = x * 2 + z", "...     y += 100|", "...     return y")
	c.typed("\x1b\r")
	c.prompt()
	c.typed("f(3, 4)\r")
	c.see("110\r\n")
	c.prompt()

	// Killed text comes back with Ctrl-Y, and Ctrl-_ takes back a change.
	c.typed("'kept' 'moved'\x17\x01\x19 + \x0b\x1f\x1f")
	c.screenEnds(">>> 'moved'|'kept' ")
	c.typed("\r")
	c.see("'movedkept'\r\n")
	c.prompt()
	c.typed("\x04")
	c.exits(0)
}

// TestPromptIndents indents after a colon and dedents after a statement that
// leaves a block, with backspace, and with Shift-Tab.
func TestPromptIndents(t *testing.T) {
	c := typeIn(t, servertest.StateDir(t), "py")
	c.prompt()
	c.typed("for i in range(9):\r")
	c.screenEnds(">>> for i in range(9):", "...     ")
	c.typed("if i > 1:\r")
	c.screenEnds("...     if i > 1:", "...         ")
	c.typed("break\r")
	c.screenEnds("...         break", "...     ")
	c.typed("print('at', i)\r")
	c.screenEnds("...     print('at', i)", "...     ")
	c.typed("\x7f") // one level
	c.screenEnds("...     print('at', i)", "... ")
	c.typed("\t\tpass\x1b[Z")
	c.screenEnds("...     print('at', i)", "...     pass")
	c.typed("\r")
	c.screenEnds("...     pass", "... ")
	c.typed("\r")
	c.see("at 0\r\nat 1\r\n")
	c.prompt()
	c.typed("\x04")
	c.exits(0)
}

// TestPromptPaste runs pasted lines as one cell, as they are.
func TestPromptPaste(t *testing.T) {
	c := typeIn(t, servertest.StateDir(t), "py")
	c.prompt()
	c.typed("\x1b[200~def f():\r    a = 1\r\r    return a + 6\r\rprint('once', f())\r\x1b[201~")
	c.screenEnds(">>> def f():", "...     a = 1", "... ", "...     return a + 6", "... ", "... print('once', f())", "... ")
	c.typed("\r")
	c.see("once 7\r\n")
	c.prompt()
	c.typed("\x1b[200~len('a\tb')\x1b[201~\r")
	c.see("3\r\n")
	c.prompt()

	// A cell that is higher than the screen.
	c.typed("\x1b[200~" + strings.Repeat("n = 1\r", 50) + "print('sum', n + 1)\x1b[201~")
	c.screenEnds("... n = 1", "... print('sum', n + 1)")
	c.typed("\r")
	c.see("sum 2\r\n")
	c.prompt()

	// Lines that come at once, as of a terminal without bracketed paste.
	c.typed("a = 5\rb = a + 1\rprint('typed', b)\r")
	c.see("typed 6\r\n")
	c.prompt()
	c.typed("\x04")
	c.exits(0)
}

// TestPromptColours colours what the user types, and tracebacks.
func TestPromptColours(t *testing.T) {
	c := typeIn(t, servertest.StateDir(t), "py")
	c.prompt()
	c.typed("def f(x): return len('text') + 12 # why")
	c.screenEnds(">>> def f(x): return len('text') + 12 # why")
	for word, want := range map[string]string{"def": "1;34", "return": "1;34", "(x): ": "", "'text'": "32", "len": "36", "12": "35", "# why": "2;37"} {
		if style, ok := c.styleOf(word); !ok || style != want {
			t.Errorf("the style of %q is %q, want %q", word, style, want)
		}
	}
	c.typed("\x01\x0b%time 1/0\r")
	c.see("ZeroDivisionError")
	c.prompt()
	for word, want := range map[string]string{"%time": "33", "File": "36", "ZeroDivisionError": "1;31"} {
		if style, ok := c.styleOf(word); !ok || style != want {
			t.Errorf("the style of %q is %q, want %q", word, style, want)
		}
	}
	c.typed("\x04")
	c.exits(0)

	t.Setenv("TEST_NO_COLOR", "1")
	c = typeIn(t, servertest.StateDir(t), "py")
	c.prompt()
	c.typed("def f(x): return len('text')")
	c.screenEnds(">>> def f(x): return len('text')")
	c.typed("\x03")
	c.prompt()
	c.typed("1/0\r")
	c.see("ZeroDivisionError: division by zero\r\n")
	c.prompt()
	c.typed("\x04")
	c.exits(0)
	if regexp.MustCompile("\x1b\\[[0-9;]*m").MatchString(c.all) {
		t.Errorf("a colour: %q", c.all)
	}
}

// TestPromptSearches finds cells of the history of the directory with Ctrl-R.
func TestPromptSearches(t *testing.T) {
	state, dir := servertest.StateDir(t), t.TempDir()
	c := typeInDir(t, dir, state, "py", "--session", "searched")
	c.prompt()
	for _, line := range []string{"vessel = 'old'", "other = 1", "vessel = 'new'", "last = 2"} {
		c.typed(line + "\r")
		c.prompt()
	}
	c.typed("\x12vess")
	c.screenEnds(">>> |vessel = 'new'", "search: vess")
	c.typed("\x12")
	c.screenEnds(">>> |vessel = 'old'", "search: vess")
	c.typed("\x12")
	c.screenEnds(">>> |vessel = 'old'", "search: vess (no more)")
	c.typed("\r")
	c.prompt()
	c.typed("print('now', vessel)\r")
	c.see("now old\r\n")
	c.prompt()
	c.typed("draft\x12ven\x07") // Ctrl-G gives the text back
	c.screenEnds(">>> draft")
	c.typed("\x03")
	c.prompt()
	c.typed("\x04")
	c.exits(0)

	// The history is that of the directory; the session is the same.
	other := typeInDir(t, t.TempDir(), state, "py", "--session", "searched")
	other.prompt()
	other.typed("\x12vess")
	other.screenEnds(">>> |", "search: vess (no more)")
	other.typed("\x07print('here', vessel)\r")
	other.see("here old\r\n")
	other.prompt()
	other.typed("\x04")
	other.exits(0)
	again := typeInDir(t, dir, state, "py", "--session", "searched")
	again.prompt()
	again.typed("\x12new")
	again.screenEnds(">>> vessel = '|new'", "search: new")
	again.typed("\x03")
	again.prompt()
	again.typed("\x04")
	again.exits(0)
	typeIn(t, state, "kill", "searched").exits(0)
}

// TestPromptOutputAbove prints the output of a thread above the text, of which
// nothing is lost.
func TestPromptOutputAbove(t *testing.T) {
	c := typeIn(t, servertest.StateDir(t), "py")
	c.prompt()
	c.typed("import threading; go = threading.Event(); threading.Thread(target=lambda: (go.wait(), print('from be' + 'hind')), daemon=True).start()\r")
	c.prompt()
	c.typed("import threading as t2; t2.Timer(0.3, go.set).start()\r")
	c.prompt()
	c.typed("if True:\r")
	c.screenEnds(">>> if True:", "...     ")
	c.typed("print('a' + 'b')")
	c.screenEnds("from behind", ">>> if True:", "...     print('a' + 'b')")

	// The text follows the size of the terminal.
	if err := pty.Setsize(c.keys, &pty.Winsize{Rows: 10, Cols: 20}); err != nil {
		t.Fatal(err)
	}
	c.emu.Resize(10, 20)
	c.screenEnds(">>> if True:", "...     print('a' +", " 'b')")
	c.typed("\r")
	c.screenEnds(" 'b')", "...     ")
	c.typed("\r")
	c.see("ab\r\n")
	c.prompt()
	c.typed("\x1a") // Ctrl-Z: the prompt is there again when the job continues
	c.prompt()
	c.typed("\x04")
	c.exits(0)
}

// TestREPLOnADumbTerminal reads plain lines and writes no escape sequence.
func TestREPLOnADumbTerminal(t *testing.T) {
	t.Setenv("TEST_TERM", "dumb")
	c := typeIn(t, servertest.StateDir(t), "py")
	c.see(">>> ")
	c.typed("6 * 7\n")
	c.see("42\r\n")
	c.see(">>> ")
	c.typed("if True:\n")
	c.see("... ")
	c.typed("    print('in' + 'side')\n")
	c.see("... ")
	c.typed("\n")
	c.see("inside\r\n")
	c.see(">>> ")
	c.typed("1/0\n")
	c.see("\r\nZeroDivisionError: division by zero\r\n")
	c.see(">>> ")
	c.typed("\x03")
	c.see("KeyboardInterrupt\r\n")
	c.see(">>> ")
	c.typed("\x04")
	c.exits(0)
	if strings.Contains(c.all, "\x1b") {
		t.Errorf("an escape sequence: %q", c.all)
	}
}
