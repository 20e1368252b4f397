package sdk

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spool-run/spool/internal/modeltest"
	"github.com/spool-run/spool/internal/pytest"
	"github.com/spool-run/spool/internal/servertest"
)

// sample runs the examples of a language.
type sample struct {
	program func(name string) []string
	env     []string
}

// pythonPrograms has programs in Python.
func pythonPrograms(t *testing.T, dir string) sample {
	t.Helper()
	interpreter, dir := python(t), absolute(t, dir)
	return sample{
		func(name string) []string { return []string{interpreter, filepath.Join(dir, name+".py")} },
		[]string{"PYTHONPATH=" + absolute(t, filepath.Join(pythonDir, "src")), "PYTHONDONTWRITEBYTECODE=1"},
	}
}

// pythonExamples has the examples in Python.
func pythonExamples(t *testing.T) sample {
	t.Helper()
	return pythonPrograms(t, "../../examples/python")
}

// javascriptPrograms has programs in JavaScript, with the SDK as a package beside them.
func javascriptPrograms(t *testing.T, from string) sample {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"type":"module"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	packages := filepath.Join(dir, "node_modules", "@spool-run")
	if err := os.MkdirAll(packages, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(compiled(t), filepath.Join(packages, "sdk")); err != nil {
		t.Fatal(err)
	}
	return sample{program: func(name string) []string { return []string{"node", filepath.Join(dir, name+".js")} }}
}

// typescriptExamples compiles the examples in TypeScript.
func typescriptExamples(t *testing.T) sample {
	t.Helper()
	s := javascriptPrograms(t, "../../examples/typescript")
	dir := filepath.Dir(s.program("")[1])
	files, err := filepath.Glob(filepath.Join(dir, "*.ts"))
	if err != nil {
		t.Fatal(err)
	}
	if err := compile(dir, append([]string{"--module", "NodeNext", "--target", "ES2022", "--strict", "--skipLibCheck", "--types", "node"}, files...)...); err != nil {
		t.Fatal(err)
	}
	return s
}

// run runs an example in a directory on a model, and returns what it printed.
func (s sample) run(t *testing.T, dir string, script modeltest.Script, name string, args ...string) (string, []*modeltest.Request) {
	t.Helper()
	model, err := modeltest.New(script)
	if err != nil {
		t.Fatal(err)
	}
	state := servertest.StateDir(t)
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	env := append(slices.Clone(s.env), "SPOOL_STATE="+state, "SPOOL_PROGRAM="+servertest.Binary(t),
		"OPENAI_BASE_URL="+model.URL(), "ANTHROPIC_BASE_URL="+model.Root(),
		"XDG_CACHE_HOME="+filepath.Join(cache, "spool-test", "sandbox")) // the interpreter of sandboxes is compiled once
	out := run(t, dir, env, append(s.program(name), args...)...)
	stopServer(t, state)
	if err := model.Close(); err != nil {
		t.Error(err)
	}
	return out, model.Requests()
}

// results returns what the tools answered to the model.
func results(requests []*modeltest.Request) (texts []string, images int) {
	if len(requests) == 0 {
		return nil, 0
	}
	for _, item := range requests[len(requests)-1].Input {
		if item.Type != modeltest.ItemFunctionOutput {
			continue
		}
		texts = append(texts, item.Output.String())
		for _, part := range item.Output {
			if part.Type == "image" {
				images++
			}
		}
	}
	return texts, images
}

type args map[string]any

const (
	broken  = "def add(a, b):\n    return a - b\n"
	correct = "def add(a, b):\n    return a + b\n"
)

// project makes a directory with a bug and a test that finds it.
func project(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"calc.py":      broken,
		"test_calc.py": "import unittest, calc\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertEqual(calc.add(2, 3), 5)\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestExamples runs the examples in both languages, on a scripted model.
func TestExamples(t *testing.T) {
	for language, prepare := range map[string]func(*testing.T) sample{"python": pythonExamples, "typescript": typescriptExamples} {
		t.Run(language, func(t *testing.T) {
			s := prepare(t)
			t.Run("agent", func(t *testing.T) { exampleAgent(t, s) })
			t.Run("analysis", func(t *testing.T) { exampleAnalysis(t, s, language) })
			t.Run("sandboxes", func(t *testing.T) { exampleSandboxes(t, s, language) })
			t.Run("best", func(t *testing.T) { exampleBest(t, s, language) })
		})
	}
}

// exampleAgent has the coding agent find a bug and mend it.
func exampleAgent(t *testing.T, s sample) {
	dir := project(t)
	out, requests := s.run(t, dir, modeltest.ByTurn(
		modeltest.Call("run_command", args{"command": "python3 -B -m unittest", "wait_ms": 50_000}),
		modeltest.Call("run_command", args{"command": "sed -i 's/a - b/a + b/' calc.py && python3 -B -m unittest", "wait_ms": 50_000}),
		modeltest.Say("The tests pass now."),
	), "agent", "Make the tests pass.")
	if !strings.Contains(out, "The tests pass now.\n") {
		t.Errorf("it printed %q", out)
	}
	if texts, _ := results(requests); len(texts) != 2 || !strings.Contains(texts[0], "FAILED") || !strings.Contains(texts[1], "\nOK") {
		t.Errorf("the tools answered %q", texts)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "calc.py")); err != nil || string(b) != correct {
		t.Errorf("the file is %q, %v", b, err)
	}
}

// exampleAnalysis has the model read data and draw it.
func exampleAnalysis(t *testing.T, s sample, language string) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "days.csv"), []byte("1,20\n2,25\n3,19\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	const load = "rows = [tuple(map(int, line.split(','))) for line in open('days.csv')]\nmax(rows, key=lambda r: r[1])"
	const plot = "import matplotlib.pyplot as plt\nplt.figure(figsize=(2, 1))\nplt.plot(*zip(*rows))\nplt.show()"
	question, interpreter := "Which day was the warmest?", []string{pytest.Python(t)}
	if language == "python" {
		interpreter = append([]string{"--python"}, interpreter...)
	}
	out, requests := s.run(t, dir, modeltest.ByTurn(
		modeltest.Call("python", args{"code": load, "wait_ms": 50_000}),
		modeltest.Call("python", args{"code": plot, "wait_ms": 50_000}),
		modeltest.Say("Day 2."),
	), "analysis", append([]string{question}, interpreter...)...)
	if !strings.HasSuffix(out, "Day 2.\n") {
		t.Errorf("it printed %q", out)
	}
	if texts, images := results(requests); len(texts) != 2 || !strings.Contains(texts[0], "(2, 25)") || images != 1 {
		t.Errorf("the tools answered %q with %d images", texts, images)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "plot-1.png")); err != nil || !bytes.HasPrefix(b, []byte("\x89PNG")) {
		t.Errorf("the plot: %d bytes, %v", len(b), err)
	}
}

// exampleSandboxes has a few sandboxes compute.
func exampleSandboxes(t *testing.T, s sample, language string) {
	options := []string{"3", "2"}
	if language == "python" {
		options = []string{"--count", "3", "--parallel", "2"}
	}
	out, _ := s.run(t, t.TempDir(), modeltest.InOrder(), "sandboxes", append([]string{"10 // (x - 2)"}, options...)...)
	if !strings.HasPrefix(out, "0 -5\n1 -10\n2 error: ") || !strings.Contains(out, "ZeroDivisionError") {
		t.Errorf("it printed %q", out)
	}
}

// exampleBest has agents try at the same time: one fails, one changes much, and the
// changes of the third are applied.
func exampleBest(t *testing.T, s sample, language string) {
	dir := project(t)
	write := func(text string) modeltest.Step {
		return modeltest.Call("python", args{"code": "open('calc.py', 'w').write(" + quote([]string{strings.ReplaceAll(text, "\n", `\n`)})[0] + ")", "wait_ms": 50_000})
	}
	options := []string{"python3 -B -m unittest", "3"}
	if language == "python" {
		options = []string{"--check", "python3 -B -m unittest", "--agents", "3"}
	}
	script := modeltest.ByTurn(
		write("# This adds two numbers, one to the other.\n"+correct).Then(1, write("def add(a, b):\n    return 0\n").Then(1, write(correct))),
		modeltest.Say("Done."),
	)
	out, _ := s.run(t, dir, script, "best", append([]string{"Make the tests pass."}, options...)...)
	if !strings.Contains(out, "2 of 3 attempts pass\nmodified calc.py\n") || !strings.Contains(out, "\n+    return a + b\n") {
		t.Errorf("it printed %q", out)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "calc.py")); err != nil || string(b) != correct {
		t.Errorf("the file is %q, %v", b, err)
	}
}
