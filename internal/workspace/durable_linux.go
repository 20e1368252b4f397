package workspace

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/failpoint"
)

// An apply outlives the loss of power. Each step waits for the disk before the next
// one depends on it: the journal is written before there is a stage, the stage is
// complete before the journal says commit, the renames are made before it says clean,
// and the stage is gone before the journal is.
//
// A step has one call for a whole file system rather than one for each file: for a
// hundred new files that takes a fortieth of the time.

// syncSystem waits until everything in the file system of an open directory is on
// disk.
func syncSystem(dir int) error {
	if err := failpoint.Inject("workspace.sync"); err != nil {
		return err
	}
	if err := unix.Syncfs(dir); err != nil {
		return fmt.Errorf("sync a file system: %w", err)
	}
	return nil
}

// syncDir waits until the names in an open directory are on disk.
func syncDir(dir int) error {
	if err := failpoint.Inject("workspace.sync"); err != nil {
		return err
	}
	for {
		switch err := unix.Fsync(dir); err {
		case nil, unix.EINVAL: // not with this file system
			return nil
		case unix.EINTR:
		default:
			return fmt.Errorf("sync a directory: %w", err)
		}
	}
}

// savePlan writes the journal, and waits until it is on disk.
func (w *Workspace) savePlan(p *plan) error {
	return w.replaceDurably(journal, p, syncDir)
}

// replaceDurably replaces a file of the workspace with the JSON of a value, at once,
// and has sync wait for the directory.
func (w *Workspace) replaceDurably(name string, v any, sync func(dir int) error) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	path := filepath.Join(w.dir, name)
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync() // a name never leads to half a journal
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	dir, err := openDir(unix.AT_FDCWD, w.dir)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return sync(dir)
}
