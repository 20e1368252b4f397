//go:build amd64 || arm64

package isolate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
)

// viewName is the mechanism of a run that is not isolated, but has an overlay.
const viewName = "view"

// prepareOverlay is [Sandboxes.Prepare] for a run that sees an overlay in place of
// its base. The request may be nil: then only the overlay differs from the tree of
// the machine. The error is [ErrNoOverlay] or a [*Refusal] if there is no overlay
// here, which is tested before the first one.
func (m *Sandboxes) prepareOverlay(request *spool.Isolation, cwd string, pids int, tenant string, o *Overlay, limited Set) (*Lease, error) {
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoOverlay, err)
	}
	if err := o.renew(); err != nil {
		return nil, err
	}
	if Isolates(request) {
		return m.prepareLimited(request, cwd, pids, tenant, o, limited)
	}
	w := wall{mechanism: viewName}
	if err := m.proveOverlay(w, o); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoOverlay, err)
	}
	in, err := newView(o, &m.spares)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoOverlay, err)
	}
	return &Lease{owner: m, wall: w, in: in}, nil
}

// check refuses a base that an overlay would not show as it is.
func (o *Overlay) check() error {
	if o.Dir == "" {
		return errors.New("there is no state directory for a workspace")
	}
	if o.Base == "/" {
		return errors.New("the directory / cannot be a workspace")
	}
	if Below(o.Base, o.Dir) {
		return fmt.Errorf("the state directory %s is in the workspace %s: choose another one with --state", o.Dir, o.Base)
	}
	points, err := allMountPoints()
	if err != nil {
		return err
	}
	for _, point := range points {
		if point != o.Base && Below(o.Base, point) {
			return fmt.Errorf("another file system is mounted on %s, in the workspace", point)
		}
	}
	return nil
}

// renew empties the directory of the kernel, if an earlier process of the run had the
// overlay. A directory of an overlay whose files are not synced is mounted once: after
// a loss of power, files may be missing. Here the machine has not gone down.
func (o *Overlay) renew() error {
	work := filepath.Join(o.Dir, WorkDir)
	entries, err := os.ReadDir(work)
	if err != nil {
		return fmt.Errorf("renew the overlay: %w", err)
	}
	for _, e := range entries {
		if err := removeTest(filepath.Join(work, e.Name())); err != nil {
			return fmt.Errorf("renew the overlay: %w", err)
		}
	}
	return nil
}

// newView makes namespaces in which an overlay is mounted and all else is as it is
// on the machine. The users are the same. Programs of another user than root have
// no way to become root in it.
func newView(o *Overlay, from *spares) (_ *sandbox, err error) {
	s := &sandbox{pidfd: -1, control: -1, flags: unix.CLONE_NEWNS, plain: true}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if os.Geteuid() != 0 {
		s.flags |= unix.CLONE_NEWUSER
		s.plain = false
	}
	if err := from.begin(s); err != nil {
		return nil, err
	}
	if !s.plain {
		if err := s.writeMaps(false); err != nil {
			return nil, err
		}
	}
	l := &layout{View: true, Mounts: []mount{{Path: o.Base, Kind: mountOverlay, Dir: o.Dir}}}
	if err := send(s.control, l); err != nil {
		return nil, fmt.Errorf("describe the view: %w", err)
	}
	if err := s.await(); err != nil {
		return nil, err
	}
	from.fill(s.flags)
	return s, nil
}

// buildView mounts the overlay in the tree of the machine. Later mounts of the
// machine appear in it, and none of this tree outside.
func (l *layout) buildView() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return try(err, "mount(MS_SLAVE)")
	}
	for _, m := range l.Mounts {
		base, err := openPath(m.Path)
		if err != nil {
			return err
		}
		dir, err := openPath(m.Dir)
		if err != nil {
			return err
		}
		var st unix.Statfs_t
		if err := unix.Fstatfs(base, &st); err != nil {
			return try(err, "fstatfs(%s)", m.Path)
		}
		flags := uintptr(st.Flags) & (unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
		if err := mountOverlayOn(fdPath(base), fdPath(base), fdPath(dir), flags); err != nil {
			return err
		}
		_ = unix.Close(base)
		_ = unix.Close(dir)
	}
	return nil
}

// openPath opens a directory without following a symbolic link anywhere on the way.
func openPath(path string) (int, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS})
	return fd, try(err, "openat2(%s)", path)
}

// fdPath is a path of an open file, whatever characters its name has.
func fdPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// mountOverlayOn mounts an overlay on a target. What programs sync is not synced:
// otherwise the end of a run would wait until its whole file system is.
func mountOverlayOn(target, lower, dir string, flags uintptr) error {
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s/%s,workdir=%[2]s/%[4]s,userxattr,index=off", lower, dir, UpperDir, WorkDir)
	err := unix.Mount("overlay", target, "overlay", flags, options+",volatile")
	if err == unix.EINVAL {
		err = unix.Mount("overlay", target, "overlay", flags, options)
	}
	return try(err, "mount(overlay)")
}

// openWorks opens the directories of the overlays among the mounts, before the
// tree changes.
func (l *layout) openWorks(trees []int) ([]int, error) {
	works := make([]int, len(l.Mounts))
	for i, m := range l.Mounts {
		switch {
		case m.Kind != mountOverlay:
		case m.Work > 0:
			works[i] = trees[m.Work-1]
		default:
			fd, err := openTree(m.Dir, 0)
			if err != nil {
				return nil, err
			}
			works[i] = fd
		}
	}
	return works, nil
}

// attachOverlay puts an overlay in its place, above mounts of its layers that are
// seen nowhere else.
func (m mount) attachOverlay(base, dir int) error {
	const layers = "/tmp/layers" // in the tree that is left behind
	for name, fd := range map[string]int{"lower": base, "dir": dir} {
		at := layers + "/" + name
		if err := os.MkdirAll(at, 0o755); err != nil {
			return fmt.Errorf("make the place of a layer: %w", err)
		}
		if err := unix.MoveMount(fd, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return try(err, "move_mount(%s)", name)
		}
	}
	target := "." + m.Path
	if err := os.MkdirAll(target, 0o755); err != nil { // in a private /tmp
		return fmt.Errorf("make the place of %s: %w", m.Path, err)
	}
	return mountOverlayOn(target, layers+"/lower", layers+"/dir", unix.MS_NOSUID|unix.MS_NODEV)
}

// pin mounts a directory of an overlay on itself.
func (m mount) pin(target string) error {
	fd, err := openTree(target, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return try(unix.MoveMount(fd, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH), "move_mount(%s)", m.Path)
}

// proveOverlay tests once whether overlays behind a wall work in the file system of
// an overlay: whether changes of every kind are where they belong, and none in the
// base.
func (m *Sandboxes) proveOverlay(w wall, o *Overlay) error {
	if w.mechanism == Landlock {
		return errors.New("it cannot mount a workspace")
	}
	parent := filepath.Dir(o.Dir)
	var st unix.Stat_t
	if err := unix.Stat(parent, &st); err != nil {
		return fmt.Errorf("stat %s: %w", parent, err)
	}
	name := fmt.Sprintf("overlay %s %d", w.name(), st.Dev)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err, ok := m.overlays[name]; ok {
		return err
	}
	file := proofFileOf(m.launcher, name)
	if readProof(file) == nil {
		if err := w.tryOverlay(parent); err != nil {
			m.overlays[name] = fmt.Errorf("test an overlay: %w", err)
			return m.overlays[name]
		}
		keep(file, &proof{Has: NewSet(Writes)})
	}
	m.overlays[name] = nil
	return nil
}

// tryOverlay has a process behind a wall change an overlay of a directory that it
// makes in another one, and looks at the result.
func (w wall) tryOverlay(parent string) (err error) {
	dir, err := os.MkdirTemp(parent, ".test-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, removeTest(dir)) }()
	o := &Overlay{Base: filepath.Join(dir, "base"), Dir: filepath.Join(dir, "dir")}
	if err := changeBase(o); err != nil {
		return err
	}
	var in enclosure
	if w.mechanism == viewName {
		in, err = newView(o, nil)
	} else {
		p, perr := NewPolicy(&spool.Isolation{Profile: string(WorkspaceWrite)}, o.Base)
		if perr != nil {
			return perr
		}
		if err := p.overlay(o); err != nil {
			return err
		}
		in, err = w.enclose(p, nil)
	}
	if err != nil {
		return err
	}
	defer in.close()
	out, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer out.Close()
	pid, err := in.fork(self, []string{"spool", Role, "change"}, &syscall.ProcAttr{Env: []string{}, Dir: o.Base, Files: []uintptr{out.Fd(), out.Fd(), out.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true}}, rlimits{})
	if err != nil {
		return err
	}
	var status unix.WaitStatus
	for {
		if _, err = unix.Wait4(pid, &status, 0, nil); err != unix.EINTR {
			break
		}
	}
	if err != nil || status != 0 {
		return fmt.Errorf("a process cannot change an overlay (step %d)", status.ExitStatus())
	}
	return changesSeen(o)
}

// changeBase makes the base of the test.
func changeBase(o *Overlay) error {
	var errs []error
	for _, d := range []string{o.Base + "/dir/sub", o.Base + "/replaced", filepath.Join(o.Dir, UpperDir), filepath.Join(o.Dir, WorkDir)} {
		errs = append(errs, os.MkdirAll(d, 0o700))
	}
	for _, f := range []string{"changed", "deleted", "renamed", "dir/sub/kept", "replaced/old"} {
		errs = append(errs, os.WriteFile(filepath.Join(o.Base, f), []byte("before"), 0o600))
	}
	return errors.Join(errs...)
}

// changeMain makes changes of every kind in its directory. Its exit code is the
// step that failed.
func changeMain() int {
	for i, step := range []func() error{
		func() error { return os.WriteFile("changed", []byte("after"), 0o600) },
		func() error { return os.WriteFile("dir/sub/added", []byte("after"), 0o600) },
		func() error { return os.Remove("deleted") },
		func() error { return os.Rename("renamed", "renamed2") },
		func() error { return os.RemoveAll("replaced") },
		func() error { return os.Mkdir("replaced", 0o700) },
		func() error { return os.WriteFile("replaced/new", []byte("after"), 0o600) },
	} {
		if step() != nil {
			return i + 1
		}
	}
	return 0
}

// changesSeen checks what [changeMain] left.
func changesSeen(o *Overlay) error {
	for _, f := range []string{"changed", "deleted", "renamed", "dir/sub/kept", "replaced/old"} {
		if b, err := os.ReadFile(filepath.Join(o.Base, f)); err != nil || string(b) != "before" {
			return fmt.Errorf("a change of %s reached the base", f)
		}
	}
	upper := filepath.Join(o.Dir, UpperDir)
	for f, want := range map[string]string{"changed": "after", "dir/sub/added": "after", "renamed2": "before", "replaced/new": "after"} {
		if b, err := os.ReadFile(filepath.Join(upper, f)); err != nil || string(b) != want {
			return fmt.Errorf("the change of %s is not in the upper directory", f)
		}
	}
	for _, f := range []string{"deleted", "renamed"} {
		var st unix.Stat_t
		if unix.Lstat(filepath.Join(upper, f), &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != 0 {
			return fmt.Errorf("the upper directory does not say that %s was deleted", f)
		}
	}
	b := make([]byte, 8)
	if n, err := unix.Lgetxattr(filepath.Join(upper, "replaced"), OpaqueXattr, b); err != nil || string(b[:n]) != "y" {
		return errors.New("the upper directory does not say that a directory was replaced")
	}
	return nil
}

// OpaqueXattr marks a directory in the upper one that replaces that of the base, with
// the value y.
const OpaqueXattr = "user.overlay.opaque"

// removeTest deletes the directories of a test, also that of the kernel, which has
// no permissions.
func removeTest(dir string) error {
	_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}
