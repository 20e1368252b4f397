package peers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spool-run/spool/internal/testcache"
)

func makeExecutable(dir, file string) error { return os.Chmod(filepath.Join(dir, file), 0o755) }

const uvVersion = "0.13.7"

// venv installs packages of PyPI into an environment of their own and returns
// its directory. minor is the oldest Python 3 that they run on.
func venv(ctx context.Context, name string, minor int, packages ...string) (string, error) {
	dir, err := testcache.Dir(name)
	if err != nil {
		return "", err
	}
	return dir, testcache.Install{InPlace: true, Fill: func(ctx context.Context, dir string) error {
		python, err := findPython(ctx, minor)
		if err != nil {
			return err
		}
		if _, err := testcache.Run(ctx, python, "-m", "venv", dir); err != nil {
			return err
		}
		// pip takes many minutes to choose among the versions of 200 packages.
		bin := filepath.Join(dir, "bin")
		if _, err := testcache.Run(ctx, filepath.Join(bin, "pip"), "install", "--quiet", "--disable-pip-version-check", "uv=="+uvVersion); err != nil {
			return err
		}
		_, err = testcache.Run(ctx, append([]string{filepath.Join(bin, "uv"), "pip", "install", "--quiet", "--python", filepath.Join(bin, "python")}, packages...)...)
		return err
	}}.Into(dir)
}

// findPython returns a Python that is new enough and can make environments.
func findPython(ctx context.Context, minor int) (string, error) {
	candidates := []string{"python3"}
	for m := minor; m < minor+4; m++ {
		candidates = append(candidates, fmt.Sprintf("python3.%d", m))
	}
	installed, _ := filepath.Glob(filepath.Join(os.Getenv("PYENV_ROOT"), "versions", "3.*", "bin", "python3")) // the pattern is correct
	for _, python := range append(candidates, installed...) {
		test := fmt.Sprintf("import ensurepip, sys, venv; sys.exit(sys.version_info < (3, %d))", minor)
		if exec.CommandContext(ctx, python, "-c", test).Run() == nil {
			return python, nil
		}
	}
	return "", fmt.Errorf("needs Python 3.%d or newer with venv", minor)
}

// cargo builds a crate and returns the directory of its programs.
func cargo(name, crate, version string) (string, error) {
	dir, err := testcache.Dir(name)
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "bin"), testcache.Install{Fill: func(ctx context.Context, dir string) error {
		if _, err := exec.LookPath("cargo"); err != nil {
			return err
		}
		_, err := testcache.Run(ctx, "cargo", "install", "--quiet", "--locked", "--root", dir, "--version", version, crate)
		return err
	}}.Into(dir)
}

// Reason returns why an install failed, in one line.
func Reason(err error) string {
	text := err.Error()
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "ERROR:") || strings.HasPrefix(line, "error:") || strings.HasPrefix(line, "go: ") {
			text = line
		}
	}
	text = strings.Join(strings.Fields(text), " ")
	if home, err := os.UserHomeDir(); err == nil {
		text = strings.ReplaceAll(text, home, "~")
	}
	const limit = 300
	if len(text) > limit {
		text = text[:limit] + " …"
	}
	return text
}
