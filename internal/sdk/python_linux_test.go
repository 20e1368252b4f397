package sdk

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool/internal/npmtest"
	"github.com/spool-run/spool/internal/pytest"
	"github.com/spool-run/spool/internal/servertest"
)

// pythonDir is the directory of the Python SDK.
const pythonDir = "../../sdk/python"

// pythonPackages are what its tests need.
var pythonPackages = []string{
	"httpx==0.28.1", "mypy==2.4.1", "pytest==9.2.0", "ruff==0.17.4", "hatchling==1.33.0", "build==1.6.1",
}

func python(t *testing.T) string {
	t.Helper()
	path, err := pytest.Environment(pythonPackages, "httpx, mypy, pytest, hatchling, build")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestPython has the Python SDK check its style and its types, and pass its tests
// against the real server.
func TestPython(t *testing.T) {
	t.Parallel()
	python := python(t)
	pyright, err := npmtest.Program{
		Name: "pyright-1.1.414", Packages: []string{"pyright@1.1.414"}, File: "node_modules/pyright/index.js",
	}.Cached()
	if err != nil {
		t.Fatal(err)
	}
	env := []string{
		"PYTHONPATH=" + absolute(t, filepath.Join(pythonDir, "src")), "PYTHONDONTWRITEBYTECODE=1", "SPOOL_PROGRAM=" + servertest.Binary(t),
	}
	for _, check := range []struct {
		name string
		argv []string
	}{
		{"the_synchronous_half_is_made_of_the_other", []string{python, "unasync.py", "--check"}},
		{"lint", []string{python, "-m", "ruff", "check", "--no-cache", "--config", "pyproject.toml", ".", "../../examples/python"}},
		{"format", []string{python, "-m", "ruff", "format", "--no-cache", "--config", "pyproject.toml", "--check", ".", "../../examples/python"}},
		{"mypy", []string{python, "-m", "mypy", "--cache-dir=/dev/null"}},
		{"pyright", []string{"node", pyright, "--pythonpath", python}},
		{"tests", []string{python, "-m", "pytest", "-q", "-p", "no:cacheprovider"}},
	} {
		t.Run(check.name, func(t *testing.T) { run(t, pythonDir, env, check.argv...) })
	}
}

// TestWheels builds the wheel with the program and the one without, installs each into
// a fresh environment, and runs a command there.
func TestWheels(t *testing.T) {
	t.Parallel()
	builder, bin := python(t), servertest.Binary(t)
	for name, carried := range map[string]bool{"with_the_program": true, "pure": false} {
		t.Run(name, func(t *testing.T) {
			dist, venv := t.TempDir(), filepath.Join(t.TempDir(), "venv")
			build := []string{"PYTHONPATH=" + absolute(t, "testdata/fast"), "PYTHONDONTWRITEBYTECODE=1"}
			use := []string{withoutSpool, "SPOOL_PROGRAM=", "PYTHONPATH="}
			if carried {
				build = append(build, "SPOOL_WHEEL_PROGRAM="+bin, "SPOOL_WHEEL_PLATFORM=manylinux_2_17_"+machine.python)
			} else {
				use = append(use, "PATH="+filepath.Dir(bin)+":/usr/local/bin:/usr/bin:/bin")
			}
			run(t, pythonDir, build, builder, "-m", "build", "--wheel", "--no-isolation", "--outdir", dist)
			wheels, err := filepath.Glob(filepath.Join(dist, "*.whl"))
			if err != nil || len(wheels) != 1 || strings.Contains(wheels[0], "-any.whl") == carried {
				t.Fatalf("built %q: %v", wheels, err)
			}
			checkCarried(t, wheels[0])
			run(t, "", nil, "python3", "-m", "venv", "--without-pip", venv)
			fresh := filepath.Join(venv, "bin", "python")
			run(t, "", nil, builder, "-m", "pip", "--python", fresh, "install", "--quiet", "--disable-pip-version-check", wheels[0])
			const program = `
import sys, spool
with spool.Spool.local(state=sys.argv[1]) as s:
    print(s.run(["echo", "it works"]).text(), end="")
`
			state := servertest.StateDir(t)
			if out := run(t, "", use, fresh, "-c", program, state); out != "it works\n" {
				t.Errorf("printed %q", out)
			}
			stopServer(t, state)
		})
	}
}
