package workspace

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/failpoint"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/skiptest"
)

// disk is a file system in a file. The file has what is on disk, and nothing that
// only the kernel remembers: a copy of it is what a loss of power leaves.
type disk struct {
	dir, image, device string
}

// ownMounts is set for a process with mounts of its own.
const ownMounts = "SPOOL_TEST_OWN_MOUNTS"

// imageSize has room for a journal of the file system, which takes 1 MiB.
const imageSize = 4 << 20

// newDisk makes a file system, and mounts it.
func newDisk(t *testing.T) *disk {
	t.Helper()
	d := &disk{dir: tempDir(t)}
	memory := tempDir(t)
	if err := unix.Mount("tmpfs", memory, "tmpfs", 0, ""); err != nil {
		skiptest.Missing(t, "mount: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(memory, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	d.image = filepath.Join(memory, "image")
	if err := os.WriteFile(d.image, make([]byte, imageSize), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", "-b", "1024", "-I", "256", "-J", "size=1", d.image).CombinedOutput(); err != nil {
		skiptest.Missing(t, "mkfs.ext4: %v: %s", err, out)
	}
	out, err := exec.Command("losetup", "--find", "--show", d.image).Output()
	if err != nil {
		skiptest.Missing(t, "losetup: %v", err)
	}
	d.device = strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", d.device).CombinedOutput(); err != nil {
			t.Errorf("losetup --detach: %v: %s", err, out)
		}
	})
	d.mount(t)
	t.Cleanup(func() { d.unmount(t) })
	return d
}

func (d *disk) mount(t *testing.T) {
	t.Helper()
	// The kernel writes on its own only after an hour.
	if err := unix.Mount(d.device, d.dir, "ext4", 0, "commit=3600"); err != nil {
		skiptest.Missing(t, "mount: %v", err)
	}
}

func (d *disk) unmount(t *testing.T) {
	t.Helper()
	if err := unix.Unmount(d.dir, 0); err != nil {
		t.Fatalf("unmount: %v", err)
	}
	polltest.Until(t, "the end of the last namespace that has the mount", func() bool {
		fd, err := unix.Open(d.device, unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0)
		if err == nil {
			err = unix.Close(fd)
		}
		return err == nil
	})
}

// sync has everything written to the disk.
func (d *disk) sync(t *testing.T) {
	t.Helper()
	fd, err := openDir(unix.AT_FDCWD, d.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Syncfs(fd); err != nil {
		t.Fatal(err)
	}
}

// content returns what is on disk.
func (d *disk) content(t *testing.T) []byte {
	t.Helper()
	b, err := os.ReadFile(d.image)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// restore replaces what is on disk, while it is not mounted.
func (d *disk) restore(t *testing.T, content []byte) {
	t.Helper()
	f, err := os.OpenFile(d.image, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(content, 0)
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestPowerLossDuringApply applies changes, and takes copies of the disks at every
// step. Each is then what a machine finds that lost power there: the next command
// about the workspace leaves all changes made, or none. After the end of the apply
// all are made.
func TestPowerLossDuringApply(t *testing.T) {
	if os.Getenv(ownMounts) == "" { // others' processes would keep what is mounted here
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestPowerLossDuringApply$")
		cmd.Env = append(os.Environ(), ownMounts+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
		switch out, err := cmd.CombinedOutput(); {
		case errors.Is(err, unix.EPERM):
			skiptest.Missing(t, "a mount namespace: %v", err)
		case err != nil:
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	t.Run("one file system", func(t *testing.T) {
		d := newDisk(t)
		losePower(t, d, d)
	})
	t.Run("two file systems", func(t *testing.T) { losePower(t, newDisk(t), newDisk(t)) })
}

// losePower applies changes of a base, with the state on another disk or the same.
func losePower(t *testing.T, state, of *disk) {
	states := filepath.Join(state.dir, "state")
	base, plain := filepath.Join(of.dir, "base"), tempDir(t)
	for _, dir := range []string{states, base} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	fill(t, base, sample)
	fill(t, plain, sample)
	of.sync(t) // the directory is older than the run
	before := tree(t, base)
	var w *Workspace
	t.Run("run", func(t *testing.T) { // its sandboxes end with it
		m := newMaker(t)
		own := m.state
		m.state = states
		w = m.run(t, base, everyChange)
		m.state = own
	})
	if w == nil {
		return
	}
	cmd := exec.Command("sh", "-ec", everyChange+"; rm pipe")
	cmd.Dir = plain
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	after := tree(t, plain)

	type loss struct {
		at   string
		was  [2][]byte // the disks
		done bool
	}
	var losses []loss
	take := func(at string) {
		l := loss{at: at, was: [2][]byte{state.content(t), of.content(t)}}
		if n := len(losses); n == 0 || !bytes.Equal(l.was[0], losses[n-1].was[0]) || !bytes.Equal(l.was[1], losses[n-1].was[1]) {
			losses = append(losses, l)
		}
	}
	for point, hit := range map[string]int{"sync": 0, "commit": 1, "clean": 1} {
		defer failpoint.Enable("workspace."+point, hit, func() error {
			take("at a " + point)
			return nil
		})()
	}
	for _, point := range []string{"stage", "rename"} {
		n := 0
		defer failpoint.Enable("workspace."+point, 0, func() error {
			if n++; n%6 == 2 { // the kernel may write at any time
				of.sync(t)
				take("in the middle of a " + point)
			}
			return nil
		})()
	}
	apply(t, w)
	if state != of {
		state.sync(t)
	}
	take("at the end")
	losses[len(losses)-1].done = true
	if len(losses) < 6 {
		t.Errorf("the disks changed only %d times", len(losses))
	}

	disks := slices.Compact([]*disk{state, of})
	seen := make(map[string]bool)
	for i, l := range losses {
		at := fmt.Sprintf("after loss %d, %s", i, l.at)
		for j, d := range disks {
			d.unmount(t)
			d.restore(t, l.was[j])
			d.mount(t)
		}
		switch w, err := Open(w.dir); {
		case err == nil:
			if _, err := w.Changes(t.Context(), spool.ChangeQuery{}); err != nil {
				t.Errorf("%s: %v", at, err)
			}
		case !errors.Is(err, ErrNone): // it may be lost while nothing has begun
			t.Errorf("%s: %v", at, err)
		}
		got := tree(t, base)
		switch {
		case slices.Equal(got, after):
			seen["after"] = true
		case slices.Equal(got, before) && !l.done:
			seen["before"] = true
		default:
			same(t, "the base "+at, got, after)
		}
	}
	if !seen["before"] || !seen["after"] {
		t.Errorf("the losses left only %v", seen)
	}
}
