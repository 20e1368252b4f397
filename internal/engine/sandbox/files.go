package sandbox

import (
	"errors"
	"fmt"
	"path"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine/sandbox/vfs"
	"github.com/spool-run/spool/python"
)

// files are what a run's guest sees.
type files struct {
	tree     *vfs.Tree
	overlays []overlay
}

type overlay struct {
	guest string
	layer *vfs.Overlay
}

// newFiles makes the guest's tree: a root in memory with what was offered, and
// the mounts.
func newFiles(c *python.SandboxConfig, cwd string) (_ *files, err error) {
	quota := vfs.NewQuota(c.Limits.FSBytes, c.Limits.FSFiles)
	f := &files{tree: vfs.NewTree(vfs.NewMemory(quota))}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.tree.Close())
		}
	}()
	for _, m := range c.Mounts {
		if err := f.mount(m, quota); err != nil {
			return nil, err
		}
	}
	if err := f.tree.Mount("/dev", vfs.Devices()); err != nil {
		return nil, err
	}
	for _, dir := range []string{cwd, "/tmp"} {
		if err := f.tree.MkdirAll(dir); err != nil {
			return nil, fmt.Errorf("make the directory %q: %w", dir, err)
		}
	}
	for _, file := range c.Files {
		if err := f.add(file); err != nil {
			return nil, fmt.Errorf("offer the file %q: %w", file.Path, err)
		}
	}
	return f, nil
}

func (f *files) mount(m python.Mount, quota *vfs.Quota) error {
	of := quota
	if m.Mode != python.MountReadWrite {
		of = nil // nothing is written there
	}
	dir, err := vfs.OpenDir(m.Host, of)
	if err != nil {
		return err
	}
	var layer vfs.Layer = dir
	switch m.Mode {
	case python.MountReadWrite:
	case python.MountOverlay:
		over := vfs.NewOverlay(dir, quota)
		f.overlays = append(f.overlays, overlay{path.Clean(m.Guest), over})
		layer = over
	default:
		layer = vfs.ReadOnly(dir)
	}
	if err := f.tree.Mount(m.Guest, layer); err != nil {
		return errors.Join(err, dir.Close())
	}
	return nil
}

func (f *files) add(file python.File) error {
	if err := f.tree.MkdirAll(path.Dir(file.Path)); err != nil {
		return err
	}
	if file.Symlink != "" {
		return f.tree.Symlink(file.Symlink, file.Path)
	}
	content := file.Base64
	if content == nil {
		content = []byte(file.Text)
	}
	mode := vfs.Mode(file.Mode)
	if mode == 0 {
		mode = 0o644
	}
	return f.tree.WriteFile(file.Path, content, mode)
}

// Changes is the payload of a notice that says what an overlay collected.
type Changes struct {
	Mount   string   `json:"mount"` // the guest's path
	Changes []Change `json:"changes"`
	// Omitted is how many changed files were too large to hand out.
	Omitted int `json:"omitted,omitempty"`
}

// Change is one of them. Paths are relative to the mount.
type Change struct {
	vfs.Change
	Blob *spool.Blob `json:"content,omitempty"` // of a file
}
