package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/privatedir"
	"github.com/spool-run/spool/internal/probe"
)

// stateChecks are about the state directory: who can read and change it, and
// whether it can hold logs.
func stateChecks(o Options) []Check {
	return []Check{
		{Name: "directory", Try: one(func(context.Context) Finding { return directory(o.Dir) })},
		{Name: "files", Try: func(ctx context.Context) []Finding { return stateFiles(ctx, o.Dir) }},
		{Name: "token-files", Try: func(context.Context) []Finding { return tokenFiles(o, spoolProcesses) }},
		{Name: "file-locks", Try: one(func(ctx context.Context) Finding { return fileLocks(ctx, o.Dir) })},
		{Name: "disk", Try: func(context.Context) []Finding { return disk(o.Dir) }},
		{Name: "archive", Try: one(func(context.Context) Finding { return shipping(o.Dir, time.Now()) })},
	}
}

// directory checks who can enter and change the state directory.
func directory(dir string) Finding {
	fi, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		parent := existing(dir)
		if err := unix.Access(parent, unix.W_OK|unix.X_OK); err != nil {
			return problem("choose another state directory with --state, or make "+parent+" writable",
				"%s does not exist and cannot be made in %s: %v", dir, parent, err)
		}
		return ok("%s does not exist yet; the first run makes it, for you only", dir)
	}
	if err != nil {
		return problem("choose another state directory with --state", "%v", err)
	}
	if !fi.IsDir() {
		return problem("remove it, or choose another with --state", "%s is not a directory", dir)
	}
	st, isUnix := fi.Sys().(*syscall.Stat_t)
	if isUnix && int(st.Uid) != os.Geteuid() {
		return problem("choose another state directory with --state",
			"%s belongs to user %d, and you are user %d: Spool refuses it", dir, st.Uid, os.Geteuid())
	}
	perm := fi.Mode().Perm()
	switch {
	case perm&0o022 != 0:
		return problem("if only you used it: chmod 700 "+dir+"; otherwise choose another with --state",
			"other users can change %s (mode %#o): Spool refuses it", dir, perm)
	case perm&0o055 != 0:
		return problem("chmod 700 "+dir, "other users can look into %s (mode %#o): what runs wrote may be read", dir, perm)
	}
	if err := privatedir.Check(dir); err != nil {
		return problem("choose another state directory with --state", "%v", err)
	}
	if parent, perm := exposedParent(dir); parent != "" {
		return warning("chmod go-w "+parent, "other users can replace the state directory: they can change %s, which is above it (mode %#o)", parent, perm)
	}
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return problem("chmod u+rwx "+dir, "%s cannot be written: %v", dir, err)
	}
	return ok("only you can enter %s (mode %#o)", dir, perm)
}

// existing returns the nearest directory above a path, or the path, that exists.
func existing(path string) string {
	for {
		if _, err := os.Stat(path); err == nil || path == filepath.Dir(path) {
			return path
		}
		path = filepath.Dir(path)
	}
}

// exposedParent returns a directory above dir in which another user can rename
// the next one: neither this user's nor root's, or writable by others without
// the sticky bit.
func exposedParent(dir string) (string, fs.FileMode) {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	for dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
		fi, err := os.Stat(dir)
		if err != nil {
			continue
		}
		st, isUnix := fi.Sys().(*syscall.Stat_t)
		foreign := isUnix && st.Uid != 0 && int(st.Uid) != os.Geteuid()
		if foreign || fi.Mode().Perm()&0o022 != 0 && fi.Mode()&fs.ModeSticky == 0 {
			return dir, fi.Mode().Perm()
		}
	}
	return "", 0
}

// maxFiles bounds the files of the state directory that are looked at.
const maxFiles = 100_000

// stateFiles checks the owner and the permissions of everything in the state
// directory, sockets too.
func stateFiles(ctx context.Context, dir string) []Finding {
	var foreign, changeable, readable []string
	seen, sockets := 0, 0
	open := false // others can enter the directory
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile, or not made yet
		}
		if err != nil {
			return err
		}
		if seen++; seen > maxFiles || ctx.Err() != nil {
			return fs.SkipAll
		}
		fi, err := d.Info()
		if err != nil {
			return nil // removed meanwhile
		}
		perm := fi.Mode().Perm()
		if path == dir {
			open = perm&0o011 != 0
			return nil // the check "directory" is about it
		}
		if fi.Mode().Type() == fs.ModeSocket {
			sockets++
		}
		st, isUnix := fi.Sys().(*syscall.Stat_t)
		name, _ := filepath.Rel(dir, path)
		switch {
		case isUnix && int(st.Uid) != os.Geteuid():
			foreign = append(foreign, name)
		case fi.Mode().Type() == fs.ModeSymlink: // its permissions have no meaning
		case perm&0o022 != 0:
			changeable = append(changeable, name)
		case perm&0o055 != 0:
			readable = append(readable, name)
		}
		return nil
	})
	var found []Finding
	if err != nil {
		found = append(found, problem("make it readable for you: chmod -R u+rwX "+dir, "%v", err))
	}
	if len(foreign) > 0 {
		found = append(found, problem("remove what you did not make, or choose another state directory with --state",
			"%d files in %s belong to other users, so what they say cannot be trusted: %s", len(foreign), dir, list(foreign)))
	}
	next := "chmod -R go-rwx " + dir
	if len(changeable) > 0 {
		found = append(found, problem(next, "other users may change %d files in %s: %s", len(changeable), dir, list(changeable)))
	}
	switch {
	case len(readable) == 0:
	case open:
		found = append(found, problem(next, "other users can read %d files in %s: %s", len(readable), dir, list(readable)))
	default:
		found = append(found, warning(next, "only the mode of %s keeps other users from reading %d files in it: %s", dir, len(readable), list(readable)))
	}
	if len(found) > 0 {
		return found
	}
	if seen > maxFiles {
		return []Finding{ok("the first %d files are yours and closed to others", maxFiles)}
	}
	return []Finding{ok("all files and sockets are yours and closed to others (%d files, %d of them sockets)", max(seen-1, 0), sockets)}
}

// fileLocks checks that a lock is seen by other processes: keepers and recovery
// depend on it.
func fileLocks(ctx context.Context, dir string) Finding {
	dir = existing(dir)
	err := probe.TryLock(ctx, dir)
	switch {
	case err == nil:
		return ok("another process was refused a locked file")
	case errors.Is(err, errors.ErrUnsupported):
		return warning("use Linux", "file locks were not tried: %v", err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS), errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return problem("make "+dir+" writable, or choose another state directory with --state", "cannot make a file to lock: %v", err)
	}
	return problem("choose a state directory on a local disk with --state",
		"files in %s cannot be locked, so two keepers could write one log: %v", dir, err)
}

// The free space and files below which the disk is a problem, or a warning.
const (
	tightBytes = 64 << 20
	lowBytes   = 1 << 30
	lowFiles   = 10_000
	written    = 1 << 20 // by the attempt
)

// disk writes a file and looks at what is left.
func disk(dir string) []Finding {
	dir = existing(dir)
	next := "free space there, or choose another state directory with --state; --retain-bytes of spool exec-server bounds the logs"
	if err := writeAndSync(dir); err != nil {
		return []Finding{problem(next, "cannot write to %s, so logs cannot be kept: %v", dir, err)}
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return []Finding{problem(next, "look at the disk of %s: %v", dir, err)}
	}
	free := st.Bavail * uint64(st.Bsize)
	var found []Finding
	switch {
	case free < tightBytes:
		found = append(found, problem(next, "the disk of %s is full (%s left): runs end when their log cannot be written", dir, size(free)))
	case free < lowBytes:
		found = append(found, warning(next, "the disk of %s has only %s left", dir, size(free)))
	}
	if st.Files > 0 && st.Ffree < lowFiles {
		found = append(found, warning("remove files there, or choose another state directory with --state",
			"the file system of %s has room for only %d more files; a run needs at least one", dir, st.Ffree))
	}
	if len(found) > 0 {
		return found
	}
	return []Finding{ok("wrote and flushed %s; %s left", size(written), size(free))}
}

// writeAndSync writes a file in dir to the disk and removes it.
func writeAndSync(dir string) (err error) {
	f, err := os.CreateTemp(dir, ".probe-disk-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	if _, err := f.Write(make([]byte, written)); err != nil {
		return err
	}
	return f.Sync()
}

// size formats a number of bytes.
func size(n uint64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}
