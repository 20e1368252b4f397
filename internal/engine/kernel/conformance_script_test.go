//go:build linux

package kernel_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
)

// writeScript writes a script with a module beside it and returns its path.
func writeScript(t *testing.T, dir, code string) string {
	t.Helper()
	sub := filepath.Join(dir, "sub")
	if err := os.MkdirAll(sub, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"main.py": code, "helper.py": "value = 5\n"} {
		if err := os.WriteFile(filepath.Join(sub, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(sub, "main.py")
}

// A script behaves as it does when Python itself runs it.
func TestScriptRunsAsPythonRunsIt(t *testing.T) {
	scripts := map[string]string{
		"identity": `"""documented"""
import sys, os, helper
print(__file__, __name__, __doc__, __spec__, __package__, sys.argv, sys.path[0], helper.__file__)
print(sys.modules["__main__"].__dict__ is globals(), sys.orig_argv[1:] if hasattr(sys, "orig_argv") else 0)
print(sorted(k for k in globals() if k.startswith("__")), __loader__.name)
helper.value
`,
		"traceback":     "def f(x):\n    return 1 / x\n\n\nf(0)\n",
		"in a helper":   "import helper\nhelper.missing\n",
		"syntax error":  "x = 1\ndef f(:\n    pass\n",
		"cause":         "try:\n    {}['a']\nexcept KeyError as e:\n    raise ValueError('b') from e\n",
		"exit handlers": "import atexit, threading, time\natexit.register(print, 'at exit')\nsaid = threading.Event()\nthreading.Thread(target=lambda: (said.wait(), time.sleep(0.05), print('thread'))).start()\nprint('main')\nsaid.set()\n",
		"exits":         "import atexit\natexit.register(print, 'at exit')\nraise SystemExit(3)\n",
		"multiprocessing": `import multiprocessing
def double(x): return 2 * x
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as p:
        print(p.map(double, [1, 2]))
`,
	}
	for _, interpreter := range pythons() {
		for name, code := range scripts {
			if name == "multiprocessing" && interpreter != pythons()[0] {
				continue // it takes long
			}
			t.Run(filepath.Base(filepath.Dir(filepath.Dir(interpreter)))+"/"+name, func(t *testing.T) {
				dir := t.TempDir()
				file := writeScript(t, dir, code)
				cmd := exec.Command(interpreter, "sub/main.py", "--size", "3")
				cmd.Dir = dir
				var stdout, stderr bytes.Buffer
				cmd.Stdout, cmd.Stderr = &stdout, &stderr
				var exit *exec.ExitError
				if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
					t.Fatal(err)
				}
				l := sharedLab(t)
				l.interpreter = interpreter
				s := l.start(t, spec(func(s *spool.Spec) { s.Cwd = dir }), config(func(c *python.KernelConfig) { c.Once = true }))
				c := s.await(s.begin(spool.Cell{Code: code, File: file, Args: []string{"sub/main.py", "--size", "3"}}))
				c.wantOutput(stdout.String(), spool.Stdout)
				if len(c.shown(python.KindResult)) > 0 {
					t.Error("a script has a result")
				}
				if stderr.Len() == 0 && exit == nil {
					c.want(spool.TurnOK)
				} else if got := c.exception().Traceback; stderr.Len() > 0 && got != stderr.String() {
					t.Errorf("traceback\n%s\nwant\n%s", got, stderr.String())
				}
				if _, err := s.run.Wait(s.ctx); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// A script in a kernel that stays leaves its names to the next cell, which is in
// no file again.
func TestScriptInAKernelThatStays(t *testing.T) {
	dir := t.TempDir()
	file := writeScript(t, dir, "import helper\nfrom sys import argv\ndef later():\n    import helper2\n")
	s := one(t, spec(func(s *spool.Spec) { s.Cwd = dir }))
	s.alive("import sys; sys.path[0]", "''")
	for range 2 {
		code, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s.await(s.begin(spool.Cell{Code: string(code), File: file, Args: []string{"main.py", "x"}})).want(spool.TurnOK)
		s.alive("sys.path[0], sys.path.count(sys.path[1]), sys.argv, argv, helper.value", "('', 1, ['main.py', 'x'], ['main.py', 'x'], 5)")
	}
	if err := os.WriteFile(filepath.Join(dir, "sub", "helper2.py"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.ok("import importlib; importlib.invalidate_caches(); later()")
	s.ok("sys.path.insert(0, '/mine')")
	s.alive("sys.path[0]", "'/mine'") // what the user changed stays
}

// A module in a kernel that stays leaves its names, too, and the next cell is in no
// module.
func TestModuleInAKernelThatStays(t *testing.T) {
	dir := t.TempDir()
	file := writeScript(t, dir, "")
	sub := filepath.Dir(file)
	if err := os.WriteFile(filepath.Join(sub, "__main__.py"), []byte("import sys\nfound = sys.path[0], sys.argv, __package__\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := one(t, spec(func(s *spool.Spec) { s.Cwd = dir }))
	for _, tt := range []struct {
		cell spool.Cell
		want string
	}{
		{spool.Cell{Module: "sub", Args: []string{"-m", "x"}}, fmt.Sprintf("('', ('%s', ['%s/__main__.py', 'x'], 'sub'))", dir, sub)},
		{spool.Cell{Module: "__main__", File: sub, Args: []string{"sub"}}, fmt.Sprintf("('', ('%s', ['sub'], ''))", sub)},
	} {
		s.await(s.begin(tt.cell)).want(spool.TurnOK)
		s.alive("__import__('sys').path[0], found", tt.want)
	}
	if x := s.await(s.begin(spool.Cell{Module: "no_such_module"})).exception(); x.Name != "SystemExit" || !strings.HasSuffix(x.Message, ": No module named no_such_module") {
		t.Errorf("%+v", x)
	}
}

// The hint to install a package is for packages, not for the user's own modules.
func TestInstallHintIsForPackages(t *testing.T) {
	dir := t.TempDir()
	writeScript(t, dir, "")
	s := one(t, spec(func(s *spool.Spec) { s.Cwd = dir }))
	if x := s.exec("import no_such_package").exception(); !strings.Contains(x.Traceback, "hint: %pip install no_such_package") {
		t.Errorf("%s", x.Traceback)
	}
	s.ok("import sys; del sys.path[0]")
	if x := s.exec("import sub").exception(); x.Name != "ModuleNotFoundError" || strings.Contains(x.Traceback, "hint") {
		t.Errorf("%s", x.Traceback)
	}
	file := filepath.Join(dir, "sub", "main.py")
	x := s.await(s.begin(spool.Cell{Code: "import sys\nsys.path[:] = sys.path[1:]\nimport helper", File: file})).exception()
	if x.Name != "ModuleNotFoundError" || strings.Contains(x.Traceback, "hint") {
		t.Errorf("%s", x.Traceback)
	}
}

// Lines that are not UTF-8 reach a script as they are.
func TestInputTakesBytes(t *testing.T) {
	s := one(t, asking)
	turn := s.begin(spool.Cell{Code: "import sys; sys.stdin.buffer.readline()"})
	seq, _ := s.asked(turn)
	if err := s.run.Answer(s.ctx, spool.Answer{Ask: seq, Data: []byte(`{"base64":"/wAK"}`)}, false); err != nil {
		t.Fatal(err)
	}
	s.await(turn).want(spool.TurnOK).wantResult(`b'\xff\x00\n'`)
}
