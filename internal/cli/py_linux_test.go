package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/creack/pty"
)

func TestREPL(t *testing.T) {
	state := t.TempDir()
	c := typeIn(t, state, "py", "--images", filepath.Join(t.TempDir(), "images"))
	c.see("Ctrl-D exits")
	c.see(">>> ")
	c.typed("x = 40\r")
	c.see(">>> ")
	c.typed("x + 2\r")
	c.see("42\r\n")
	c.see(">>> ")

	// An empty line ends a block, a closing bracket an expression.
	c.typed("for i in range(2):\r")
	c.see("...     ") // it is indented
	c.typed("print('i', i)\r")
	c.see("...     ")
	c.typed("\r")
	c.see("i 0\r\ni 1\r\n")
	c.see(">>> ")
	c.typed("(1 +\r")
	c.see("... ")
	c.typed("2)\r")
	c.see("3\r\n")
	c.see(">>> ")

	// Ctrl-C at the prompt clears the line.
	c.typed("unfinished(\r")
	c.see("... ")
	c.typed("more\x03")
	c.see("KeyboardInterrupt\r\n")
	c.see(">>> ")

	// Ctrl-C interrupts a cell; the interpreter keeps its state.
	c.typed("import time; print('be' + 'gun', flush=True); time.sleep(60)\r")
	c.see("begun\r\n")
	if c.raw() {
		t.Error("the terminal is raw while a cell runs")
	}
	c.typed("\x03")
	c.see("KeyboardInterrupt")
	c.see(">>> ")
	c.typed("x\r")
	c.see("40\r\n")
	c.see(">>> ")

	// The up arrow shows the line before.
	c.typed("\x1b[A\x1b[A\r")
	c.see("import time")
	c.see("begun\r\n")
	c.typed("\x03")
	c.see("KeyboardInterrupt\x1b[0m\r\n")
	c.see(">>> ")

	// input() reads from the terminal; a secret is not echoed.
	c.typed("input('na' + 'me? ')\r")
	c.see("name? ")
	c.typed("Ada\r")
	c.see("'Ada'\r\n")
	c.see(">>> ")
	c.typed("import getpass; len(getpass.getpass('pass' + 'word: '))\r")
	c.see("password: ")
	c.typed("hidden\r")
	c.see("6\r\n")
	c.see(">>> ")

	// An exception is printed; an image is saved.
	c.typed("1/0\r")
	c.see("\x1b[1;31mZeroDivisionError\x1b[0m: division by zero\r\n")
	c.see(">>> ")
	c.typed("class P: _repr_png_ = lambda self: b'\\x89PNG' + bytes(9)\r")
	c.see(">>> ")
	c.typed("display(P())\r")
	c.see("[image/png: ")
	c.see("1.png]\r\n")
	c.see(">>> ")

	// Output of a thread between cells appears above the prompt.
	c.typed("import threading; threading.Timer(0.1, lambda: print('from be' + 'hind')).start()\r")
	c.see("from behind\r\n")
	c.see(">>> ")

	// Pasted lines are one cell.
	c.typed("\x1b[200~def f():\r    a = 1\r\r    return a + 6\r\x1b[201~\r")
	c.see(">>> ")
	c.typed("f()\r")
	c.see("7\r\n")
	c.see(">>> ")
	c.typed("\x04")
	c.exits(0)

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
	state := t.TempDir()
	c := typeIn(t, state, "py", "--session", "talk")
	c.see("Ctrl-D exits; session talk keeps running")
	c.see(">>> ")
	c.typed("x = 5\r")
	c.see(">>> ")
	c.typed("\x04")
	c.exits(0)

	c = typeIn(t, state, "attach", "talk") // attach to a kernel opens the REPL
	c.see(">>> ")
	c.typed("x * 2\r")
	c.see("10\r\n")
	c.see(">>> ")
	c.typed("exit(4)\r")
	c.exits(4)

	c = typeIn(t, state, "py", "--session", "talk")
	c.see(">>> ")
	c.typed("x\r")
	c.see("5\r\n")
	c.see(">>> ")
	c.typed("\x04")
	c.exits(0)
	typeIn(t, state, "kill", "talk").exits(0)
}

func TestPyInterruptedOnTerminal(t *testing.T) {
	c := typeIn(t, t.TempDir(), "py", "-c", "import time; print('begun', flush=True); time.sleep(60)")
	c.see("begun\r\n")
	c.typed("\x03")
	c.see("KeyboardInterrupt")
	c.exits(130)
}

// TestREPLAssists completes and describes objects of a live interpreter and finds
// lines of the history.
func TestREPLAssists(t *testing.T) {
	state := t.TempDir()
	c := typeIn(t, state, "py", "--session", "assists")
	c.see("Python 3.")
	c.see(">>> ")
	c.typed("class Ship:\r")
	c.see("...     ")
	c.typed("'A ship.'\r")
	c.see("...     ")
	c.typed("def anchor(self, depth): return depth\r")
	c.see("...     ")
	c.typed("def anger(self): pass\r")
	c.see("...     ")
	c.typed("\r")
	c.see(">>> ")
	c.typed("vessel = Ship()\r")
	c.see(">>> ")

	// Tab inserts what all completions have in common, then lists them.
	c.typed("vess\t")
	c.see("vessel")
	c.typed(".an\t")
	c.see("anchor  anger\r\n")
	c.typed("c\t(7)\r")
	c.see("anchor(7)\r\n")
	c.see("7\r\n")
	c.see(">>> ")
	c.typed("%timei\t")
	c.see("%timeit")
	c.typed("\x03")
	c.see(">>> ")
	c.typed("!ech\t ok\r")
	c.see("ok\r\n")
	c.see(">>> ")

	// obj? and obj?? describe.
	c.typed("vessel.anchor?\r")
	c.see("Signature: anchor(depth)")
	c.see(">>> ")
	c.typed("vessel.anchor??\r")
	c.see("def anchor(self, depth): return depth\r\n")
	c.see(">>> ")
	c.typed("nothing?\r")
	c.see("not found.\r\n")
	c.see(">>> ")

	// In, Out and _ have the cells and their results.
	c.typed("7 * 9\r")
	c.see("63\r\n")
	c.see(">>> ")
	c.typed("_ in Out.values(), In[-2], type(Out).__name__\r")
	c.see("(True, '7 * 9', 'dict')\r\n")
	c.see(">>> ")

	// Ctrl-R finds a line that contains the typed text, and again an older one.
	c.typed("vessel\x12")
	c.see("vessel.anchor??")
	c.typed("\x12\x12\x12\r")
	c.see("vessel = Ship()")
	c.see(">>> ")

	// The line editor follows the size of the terminal.
	if err := pty.Setsize(c.keys, &pty.Winsize{Rows: 10, Cols: 40}); err != nil {
		t.Fatal(err)
	}
	c.typed("len('" + strings.Repeat("x", 60) + "')\r")
	c.see("60\r\n")
	c.see(">>> ")
	c.typed("\x04")
	c.exits(0)

	// The history is that of the directory.
	other := typeInDir(t, t.TempDir(), state, "py", "--session", "assists")
	other.see(">>> ")
	other.typed("1\x12\r")
	other.see("1\r\n")
	other.see(">>> ")
	other.typed("vessel.anchor(8)\r") // the session is the same
	other.see("8\r\n")
	other.see(">>> ")
	other.typed("\x04")
	other.exits(0)
	typeIn(t, state, "kill", "assists").exits(0)
}

// TestREPLOnADumbTerminal reads plain lines and writes no escape sequence.
func TestREPLOnADumbTerminal(t *testing.T) {
	t.Setenv("TEST_TERM", "dumb")
	c := typeIn(t, t.TempDir(), "py")
	c.see(">>> ")
	c.typed("6 * 7\n")
	c.see("42\r\n")
	c.see(">>> ")
	c.typed("1/0\n")
	c.see("\r\nZeroDivisionError: division by zero\r\n")
	c.see(">>> ")
	c.typed("\x03")
	c.see("KeyboardInterrupt\r\n")
	c.see(">>> ")
	c.typed("\x04")
	c.exits(0)
	if strings.Contains(c.shown, "\x1b") {
		t.Errorf("an escape sequence: %q", c.shown)
	}
}
