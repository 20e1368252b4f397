//go:build amd64 || arm64

package pyodide

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// minNode is the oldest major version of Node that will do.
const minNode = 20

// nodeTime bounds how long Node may take to say its version.
const nodeTime = 10 * time.Second

// node is the Node of this machine.
type node struct {
	path    string
	version string
	libs    []string // its interpreter and libraries
}

// findNode finds Node and what it needs to run.
func findNode(ctx context.Context, given string) (*node, error) {
	hint := fmt.Sprintf("install Node %d or newer", minNode)
	name := given
	if name == "" {
		name = "node"
	}
	path, err := exec.LookPath(name)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return nil, unavailable(hint, fmt.Errorf("find Node: %w", err))
	}
	n := &node{path: path}
	ctx, cancel := context.WithTimeout(ctx, nodeTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.Env = []string{}
	out, err := cmd.Output()
	if err != nil {
		return nil, unavailable(hint, fmt.Errorf("ask %s for its version: %w", path, err))
	}
	n.version = strings.TrimSpace(string(out))
	major, _, _ := strings.Cut(strings.TrimPrefix(n.version, "v"), ".")
	if v, err := strconv.Atoi(major); err != nil || v < minNode {
		return nil, unavailable(hint, fmt.Errorf("%s is Node %s", path, n.version))
	}
	if n.libs, err = libraries(ctx, path); err != nil {
		return nil, unavailable("", fmt.Errorf("find what Node needs: %w", err))
	}
	return n, nil
}

// libraries asks the program that loads a program which files it would load.
func libraries(ctx context.Context, path string) ([]string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s is no program: %w", path, err)
	}
	defer f.Close()
	loader := ""
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			b := make([]byte, p.Filesz)
			if _, err := p.ReadAt(b, 0); err != nil {
				return nil, err
			}
			loader = strings.TrimRight(string(b), "\x00")
		}
	}
	if loader == "" {
		return nil, nil // it needs nothing
	}
	cmd := exec.CommandContext(ctx, loader, "--list", path)
	cmd.Env = []string{}
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s --list: %w", loader, err)
	}
	list := []string{loader}
	for line := range strings.Lines(string(out)) {
		_, file, ok := strings.Cut(line, "=>")
		if !ok {
			continue
		}
		file, _, _ = strings.Cut(strings.TrimSpace(file), " (")
		if filepath.IsAbs(file) && !slices.Contains(list, file) {
			list = append(list, file)
		} else if !filepath.IsAbs(file) {
			return nil, fmt.Errorf("%s: %s", path, strings.TrimSpace(line))
		}
	}
	return list, nil
}

// readable says whether those who own nothing can read all of it, as
// interpreters have to where this process is root.
func readable(paths ...string) error {
	if os.Getuid() != 0 {
		return nil
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		need := fs.FileMode(0o004)
		if info.IsDir() {
			need = 0o005
		}
		if info.Mode().Perm()&need != need {
			return unavailable("chmod -R o+rX "+path, fmt.Errorf("%s: %w for everybody, which it has to be where Spool is root", path, errUnreadable))
		}
	}
	return nil
}

var errUnreadable = errors.New("not readable")

func inode(info fs.FileInfo) uint64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Ino
	}
	return 0
}
