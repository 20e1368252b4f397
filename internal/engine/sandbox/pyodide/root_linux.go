//go:build amd64 || arm64

package pyodide

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// makeRoot makes the only root that interpreters have, read-only all of it,
// and leaves this machine's. It returns the new /proc, which is not part of it,
// or nothing if there cannot be one.
func makeRoot(p plan) (proc *os.File, err error) {
	if err := unix.Sethostname([]byte("sandbox")); err != nil {
		return nil, fmt.Errorf("set host name: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, fmt.Errorf("make mounts private: %w", err)
	}
	places := p.places()
	trees := make([]*os.File, len(places))
	for i, pl := range places {
		if p.UseTrees {
			trees[i] = os.NewFile(uintptr(fdTrees+i), pl.from)
		} else if trees[i], err = openTree(pl.from); err != nil {
			return nil, err
		}
		defer trees[i].Close()
	}
	at, err := mountPoint()
	if err != nil {
		return nil, err
	}
	if err := unix.Mount("tmpfs", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755,size=4m"); err != nil {
		return nil, fmt.Errorf("mount root: %w", err)
	}
	if err := unix.Chdir(at); err != nil {
		return nil, fmt.Errorf("enter root: %w", err)
	}
	proc, procErr := ownProc()
	for i, pl := range places {
		if err := attach(trees[i], pl); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile("."+guestRunner, runnerSource, 0o444); err != nil {
		return nil, err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return nil, fmt.Errorf("pivot root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return nil, fmt.Errorf("leave the machine's root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return nil, err
	}
	ro := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", 0, &ro); err != nil {
		return nil, fmt.Errorf("make root read-only: %w", err)
	}
	if procErr != nil {
		return nil, nil //nolint:nilerr // interpreters can be had without
	}
	return proc, nil
}

// mountPoint finds a directory to build the new root on. What is below it is
// out of sight from then on.
func mountPoint() (string, error) {
	for _, dir := range []string{"/tmp", "/var", "/mnt", "/run", "/usr"} {
		if fi, err := os.Stat(dir); err == nil && fi.IsDir() {
			return dir, nil
		}
	}
	return "", errors.New("no directory to mount a root on")
}

// attach puts a mount in its place.
func attach(tree *os.File, pl place) error {
	target := filepath.Clean("." + pl.to)
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	var err error
	if pl.dir {
		err = os.Mkdir(target, 0o755)
	} else {
		err = os.WriteFile(target, nil, 0o444)
	}
	if err != nil {
		return err
	}
	if err := unix.MoveMount(int(tree.Fd()), "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount %s: %w", pl.from, err)
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID}
	if pl.to != "/dev/null" {
		attr.Attr_set |= unix.MOUNT_ATTR_NODEV
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, target, 0, &attr); err != nil {
		return fmt.Errorf("make %s read-only: %w", pl.from, err)
	}
	return nil
}

// ownProc mounts the /proc of our processes, opens it and takes it off again:
// the descriptor is all that is left of it.
func ownProc() (*os.File, error) {
	if err := os.Mkdir("proc", 0o555); err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove("proc") }()
	if err := unix.Mount("proc", "proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return nil, fmt.Errorf("mount proc: %w", err)
	}
	f, err := os.Open("proc")
	if uerr := unix.Unmount("proc", unix.MNT_DETACH); err == nil {
		err = uerr
	}
	return f, err
}
