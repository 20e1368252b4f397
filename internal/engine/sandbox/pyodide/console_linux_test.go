//go:build amd64 || arm64

package pyodide

import (
	"strings"
	"testing"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
)

// What JavaScript prints is the script's output.
func TestConsoleIsTheScriptsOutput(t *testing.T) {
	for name, b := range map[string]*Backend{"forked": real(t), "a process each": unforked(t)} {
		t.Run(name, func(t *testing.T) {
			c := open(t, b, nil)
			r, h := do(t, c, `
import js
print("one")
js.console.log("two", 2)
js.console.error("three")
js.process.stdout.write("four\n")
print("five")
js.console.warn("six")`)
			if r.ExitCode != 0 || h.stdout() != "one\ntwo 2\nfour\nfive\n" || h.stderr() != "three\nsix\n" {
				t.Errorf("stdout %q, stderr %q, %+v", h.stdout(), h.stderr(), r)
			}
		})
	}
}

// Recursion in C is ended by Python's own limit, and the interpreter lives on.
func TestDeepRecursionInC(t *testing.T) {
	for name, b := range map[string]*Backend{"forked": real(t), "a process each": unforked(t)} {
		t.Run(name, func(t *testing.T) {
			c := open(t, b, nil)
			for what, code := range map[string]string{
				"json":    "import json\njson.loads('[' * 100000)",
				"repr":    "class A:\n    def __repr__(self): return repr(self)\nrepr(A())",
				"list":    "x = []\nfor _ in range(100000): x = [x]\nrepr(x)",
				"compare": "x, y = [], []\nfor _ in range(100000): x, y = [x], [y]\nx == y",
				"pickle":  "import pickle\nx = []\nfor _ in range(100000): x = [x]\npickle.dumps(x)",
				"parse":   "compile('(' * 100000, '', 'exec')",
				"calls":   "import sys\nsys.setrecursionlimit(10**6)\ndef f(): return sorted([1], key=lambda _: f())\nf()",
			} {
				r, h := do(t, c, code)
				if r.EndedBy != "" || r.ExitCode != 1 || !strings.Contains(h.stderr(), "RecursionError") && !strings.Contains(h.stderr(), "MemoryError") && !strings.Contains(h.stderr(), "too many nested parentheses") {
					t.Errorf("%s: %+v, stderr %.500q", what, r, h.stderr())
				}
			}
			prints(t, c, "print('alive')", "alive\n")
		})
	}
}

// An interpreter that breaks says why, in Pyodide's own words.
func TestCrashSaysWhy(t *testing.T) {
	c := open(t, real(t), nil)
	r, h := do(t, c, `
import opcode, types
op = opcode.opmap
far = [op["EXTENDED_ARG"], 0x10, op["EXTENDED_ARG"], 0, op["EXTENDED_ARG"], 0, op["LOAD_CONST"], 0, op["RETURN_VALUE"], 0]
code = (lambda: 0).__code__
types.FunctionType(code.replace(co_code=bytes([op["RESUME"], 0] + far)), {})()`)
	if r.EndedBy != guest.Crashed || !strings.HasPrefix(r.Reason, "RuntimeError: memory access out of bounds") {
		t.Errorf("%+v", r)
	}
	if !strings.Contains(h.stderr(), "Pyodide has suffered a fatal error") {
		t.Errorf("stderr %q", h.stderr())
	}
	prints(t, c, "print('alive')", "alive\n")
}
