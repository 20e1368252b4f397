package kernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/environ"
)

// candidate is an interpreter that may work.
type candidate struct {
	path string
	venv string // the environment it belongs to, if any
	from string // where it was found
}

// missing is a place without an interpreter.
type missing struct {
	path, from, why string
	before          int // index of the candidate that comes next
}

func (m missing) String() string { return fmt.Sprintf("%s (%s): %s", m.path, m.from, m.why) }

// candidates lists the interpreters to try, in order, and says where it looked
// in vain.
func candidates(interpreter, cwd string, env []string) (list []candidate, vain []missing, err error) {
	if interpreter != "" {
		path := interpreter
		if rest, ok := strings.CutPrefix(path, "~/"); ok {
			path = filepath.Join(environ.Get(env, "HOME"), rest)
		}
		switch {
		case !strings.Contains(path, "/"):
			found := lookPath(path, cwd, env)
			if found == "" {
				return nil, nil, fmt.Errorf("no %s in PATH", path)
			}
			path = found
		case !filepath.IsAbs(path):
			path = filepath.Join(cwd, path)
		}
		if err := executable(path); err != nil {
			return nil, nil, err
		}
		return []candidate{{path, venvOf(path), "the spec"}}, nil, nil
	}
	inEnv := func(dir, from string) {
		path := filepath.Join(dir, "bin", "python")
		if err := executable(path); err != nil {
			vain = append(vain, missing{path, from, reason(err).Error(), len(list)})
			return
		}
		list = append(list, candidate{path, dir, from})
	}
	for _, name := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		if dir := environ.Get(env, name); dir != "" {
			inEnv(dir, name)
		}
	}
	for _, name := range []string{".venv", "venv"} {
		dir := filepath.Join(cwd, name)
		if _, err := os.Stat(dir); err == nil {
			inEnv(dir, name+" in the working directory")
		}
	}
	for _, name := range []string{"python3", "python"} {
		if path := lookPath(name, cwd, env); path != "" {
			list = append(list, candidate{path, venvOf(path), "PATH"})
		} else {
			vain = append(vain, missing{name, "PATH", "not found in " + environ.Get(env, "PATH"), len(list)})
		}
	}
	return list, vain, nil
}

func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s is a directory", path)
	case info.Mode().Perm()&0o111 == 0:
		return fmt.Errorf("%s: %w", path, os.ErrPermission)
	}
	return nil
}

// reason is an error without the path it repeats.
func reason(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

func lookPath(name, cwd string, env []string) string {
	for dir := range strings.SplitSeq(environ.Get(env, "PATH"), ":") {
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(cwd, dir)
		}
		if path := filepath.Join(dir, name); executable(path) == nil {
			return path
		}
	}
	return ""
}

// venvOf returns the virtual environment whose interpreter path is.
func venvOf(path string) string {
	dir := filepath.Dir(filepath.Dir(path))
	if _, err := os.Stat(filepath.Join(dir, "pyvenv.cfg")); err == nil {
		return dir
	}
	return ""
}

// resolvedTo returns what a candidate turned out to be: version managers put
// scripts into PATH that look for the interpreter for longer than it takes to
// start. Other scripts may have a purpose.
func (c candidate) resolvedTo(found string) candidate {
	if filepath.Base(filepath.Dir(c.path)) != "shims" || executable(found) != nil {
		return c
	}
	if c.venv == "" {
		c.venv = venvOf(found)
	}
	c.path = found
	return c
}

// activate returns the environment of a process in the candidate's virtual
// environment.
func (c candidate) activate(env []string) []string {
	if c.venv == "" {
		return env
	}
	bin := filepath.Join(c.venv, "bin")
	if path := environ.Get(env, "PATH"); path == "" {
		env = environ.Set(env, "PATH", bin)
	} else if path != bin && !strings.HasPrefix(path, bin+":") {
		env = environ.Set(env, "PATH", bin+":"+path)
	}
	if environ.Get(env, "CONDA_PREFIX") == c.venv {
		return env
	}
	return environ.Set(env, "VIRTUAL_ENV", c.venv)
}

// errNoInterpreter explains what was tried and what to do.
func errNoInterpreter(tried []string) error {
	return &spool.StartError{
		Reason: engine.StartNotFound,
		Hint:   "install Python 3.9 or later, or name an interpreter",
		Err:    fmt.Errorf("no Python interpreter works; tried %s", strings.Join(tried, "; ")),
	}
}
