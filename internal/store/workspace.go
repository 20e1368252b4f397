package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/workspace"
)

func (s *Store) workspacesDir() string { return filepath.Join(s.dir, "workspaces") }

// WorkspaceDir returns the directory of the workspace of a run, without symbolic
// links. It may not exist.
func (s *Store) WorkspaceDir(id spool.RunID) (string, error) {
	dir, err := filepath.EvalSymlinks(s.dir)
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "workspaces", string(id)), nil
}

// removeWorkspace deletes what a run changed in its workspace, if it has one.
func (s *Store) removeWorkspace(id spool.RunID) error {
	return workspace.Remove(filepath.Join(s.workspacesDir(), string(id)))
}

// workspaceSize returns the disk space of what a finished run changed.
func (s *Store) workspaceSize(info *spool.Info) int64 {
	if info.Workspace == nil {
		return 0
	}
	return workspace.Stored(filepath.Join(s.workspacesDir(), string(info.ID)))
}

// filedWorkspaces returns the disk space of what runs changed that are not among
// these.
func (s *Store) filedWorkspaces(unfiled *names) (size int64) {
	entries, err := os.ReadDir(s.workspacesDir())
	if err != nil {
		return 0 // there are none
	}
	for _, e := range entries {
		if unfiled.runs[spool.RunID(e.Name())] == nil {
			size += workspace.Stored(filepath.Join(s.workspacesDir(), e.Name()))
		}
	}
	return size
}

// sweepWorkspaces deletes the workspaces of runs that do not exist any more.
func (s *Store) sweepWorkspaces(before time.Time) error {
	entries, err := os.ReadDir(s.workspacesDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		id := spool.RunID(e.Name())
		if !e.IsDir() || id.Check() != nil {
			continue
		}
		if fi, err := e.Info(); err == nil && fi.ModTime().Before(before) {
			if segs, err := s.scanRun(id); err != nil || len(segs) > 0 {
				continue // a later sweep finds an error, too
			}
			errs = append(errs, workspace.Remove(filepath.Join(s.workspacesDir(), e.Name())))
		}
	}
	return errors.Join(errs...)
}
