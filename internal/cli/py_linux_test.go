package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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
	c.see("... ")
	c.typed("\tprint('i', i)\r") // Tab indents
	c.see("... ")
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
	c.see("KeyboardInterrupt\r\n")
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
	c.see("ZeroDivisionError: division by zero\r\n")
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
	b, err := os.ReadFile(filepath.Join(state, "py_history"))
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
