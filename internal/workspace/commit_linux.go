package workspace

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/failpoint"
)

// plan is an apply that is under way. Everything that will be placed in the base is
// made first, in a directory of the base, and what is replaced or deleted is kept
// there until the end: so each operation is a rename, and can be undone.
type plan struct {
	Stage string      `json:"stage"` // the name of that directory
	Phase string      `json:"phase"`
	Ops   []operation `json:"ops,omitempty"`
}

// The phases of an apply: an interrupted one is forgotten in the first, and goes on
// in the others.
const (
	phaseStage  = "stage"
	phaseCommit = "commit"
	phaseClean  = "clean"
)

// operation is one step of an apply.
type operation struct {
	Op   string `json:"op"`
	Path []byte `json:"path"`
	N    int    `json:"n"`             // the name in the stage
	New  uint64 `json:"new,omitempty"` // the file that is placed
	Old  uint64 `json:"old,omitempty"` // the file that was there, and when it had changed
	At   int64  `json:"at,omitempty"`
	Mode uint32 `json:"mode,omitempty"`
	Was  uint32 `json:"was,omitempty"` // the mode before
}

// The operations.
const (
	opPlace   = "place"
	opReplace = "replace"
	opRemove  = "remove"
	opMode    = "mode"
)

// commit makes changes in an open base.
func (w *Workspace) commit(base int, chosen []change) error {
	p := &plan{Stage: ".spool-apply-" + rand.Text()[:10], Phase: phaseStage}
	// With the journal the rest of the state directory gets on disk: the journal is
	// found by the run.
	if err := w.replaceDurably(journal, p, syncSystem); err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	if err := w.prepare(base, p, chosen); err != nil {
		return errors.Join(fmt.Errorf("apply: %w", err), w.clean(base, p))
	}
	p.Phase = phaseCommit
	if err := w.savePlan(p); err != nil {
		// Which journal is on disk is not known: it is replaced before the stage is
		// deleted.
		return errors.Join(fmt.Errorf("apply: %w", err), w.conclude(base, p))
	}
	return w.finish(base, p)
}

// prepare makes the stage, and the operations that are to be done.
func (w *Workspace) prepare(base int, p *plan, chosen []change) error {
	if err := unix.Mkdirat(base, p.Stage, 0o700); err != nil {
		return fmt.Errorf("make a directory in %s: %w", w.state.Base, err)
	}
	stage, err := openDir(base, p.Stage)
	if err != nil {
		return err
	}
	defer unix.Close(stage)
	upper, err := openDir(unix.AT_FDCWD, filepath.Join(w.dir, upperDir))
	if err != nil {
		return err
	}
	defer unix.Close(upper)
	s := &stager{upper: upper, stage: stage, links: make(map[uint64]string)}
	whole := make(map[string]bool) // directories that are placed, replaced or deleted as one
	for i := range chosen {
		c := &chosen[i]
		if c.top != "" && whole[c.top] {
			continue
		}
		op := operation{Path: []byte(c.path), N: i, Old: c.base.Ino, At: c.base.Ctim.Nano()}
		switch {
		case c.op == Deleted:
			op.Op = opRemove
			whole[c.path] = true
		case c.op == Modified && isDir(&c.upper) && isDir(&c.base):
			op.Op, op.Mode, op.Was = opMode, c.upper.Mode&permissions|c.base.Mode&0o7000, c.base.Mode&0o7777
		default:
			op.Op = opPlace
			if c.op == Modified {
				op.Op = opReplace
			}
			whole[c.path] = true
			if op.New, err = s.add(i, chosen); err != nil {
				return err
			}
		}
		p.Ops = append(p.Ops, op)
	}
	return syncSystem(stage)
}

// finish performs the operations of a plan, or undoes them if one fails.
func (w *Workspace) finish(base int, p *plan) error {
	stage, err := openDir(base, p.Stage)
	if err != nil {
		return fmt.Errorf("apply: open the directory %s: %w", p.Stage, err)
	}
	defer unix.Close(stage)
	for i := range p.Ops {
		if err := failpoint.Inject("workspace.commit"); err != nil { // as if the process ended here
			return err
		}
		if err = p.Ops[i].do(base, stage); err != nil {
			err = fmt.Errorf("apply %s: %w", quote(string(p.Ops[i].Path)), err)
			if undoErr := w.undo(base, stage, p.Ops[:i+1]); undoErr != nil {
				return errors.Join(err, undoErr)
			}
			return errors.Join(err, w.conclude(base, p))
		}
	}
	if err := syncSystem(base); err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	return w.conclude(base, p)
}

// conclude ends a plan whose operations are all done, or all undone, and on disk.
func (w *Workspace) conclude(base int, p *plan) error {
	p.Phase = phaseClean
	if err := w.savePlan(p); err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	if err := failpoint.Inject("workspace.clean"); err != nil {
		return err
	}
	return w.clean(base, p)
}

// undo takes operations back, the last one first.
func (w *Workspace) undo(base, stage int, ops []operation) error {
	for _, op := range slices.Backward(ops) {
		if err := op.undo(base, stage); err != nil {
			return fmt.Errorf("undo %s: %w", quote(string(op.Path)), err)
		}
		var st unix.Stat_t
		if op.Old != 0 && op.lstat(base, &st) == nil && st.Ino == op.Old && st.Ctim.Nano() != op.At {
			w.addUndone(undone{Ino: op.Old, Was: op.At, Is: st.Ctim.Nano()})
		}
	}
	if err := w.replaceDurably(stateFile, &w.state, syncDir); err != nil {
		return err
	}
	return syncSystem(base)
}

// addUndone remembers a file that was moved back, perhaps not for the first time.
func (w *Workspace) addUndone(u undone) {
	for i, known := range w.state.Undone {
		if known.Ino == u.Ino && known.Is == u.Was {
			w.state.Undone[i].Is = u.Is
			return
		}
	}
	w.state.Undone = append(w.state.Undone, u)
}

// clean deletes the stage, and the plan.
func (w *Workspace) clean(base int, p *plan) error {
	if err := removeTree(base, p.Stage); err != nil {
		return fmt.Errorf("clean up after an apply: %w", err)
	}
	if err := syncDir(base); err != nil {
		return fmt.Errorf("clean up after an apply: %w", err)
	}
	return os.Remove(filepath.Join(w.dir, journal))
}

// recover completes an apply that was interrupted, or undoes it. The caller has the
// lock.
func (w *Workspace) recover() error {
	b, err := os.ReadFile(filepath.Join(w.dir, journal))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("complete an apply: %w", err)
	}
	p := new(plan)
	if err := json.Unmarshal(b, p); err != nil {
		return fmt.Errorf("complete an apply: %s: %w", journal, err)
	}
	base, err := w.openBase()
	if err != nil {
		return fmt.Errorf("complete an apply: %w", err)
	}
	defer unix.Close(base)
	if p.Phase != phaseCommit {
		return w.clean(base, p)
	}
	err = w.finish(base, p)
	if _, gone := os.Lstat(filepath.Join(w.dir, journal)); errors.Is(gone, fs.ErrNotExist) {
		return nil // completed or undone
	}
	return err
}

// errChanged means that a file has changed between the check and its operation.
var errChanged = fmt.Errorf("%w: conflict: it was changed just now", spool.ErrExists)

// do performs an operation, unless it was done.
func (op *operation) do(base, stage int) error {
	at, name, err := openParent(base, string(op.Path))
	if err != nil {
		return err
	}
	defer unix.Close(at)
	staged := strconv.Itoa(op.N)
	var st unix.Stat_t
	err = unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	there := err == nil
	if err != nil && err != unix.ENOENT {
		return err
	}
	if err := failpoint.Inject("workspace.rename"); err != nil {
		return err
	}
	switch op.Op {
	case opPlace:
		if there && st.Ino == op.New {
			return nil
		}
		if there {
			return errChanged
		}
		return move(stage, staged, at, name)
	case opReplace:
		if there && st.Ino == op.New {
			return nil
		}
		if there && (st.Ino != op.Old || !isDir(&st) && st.Ctim.Nano() != op.At) {
			return errChanged
		}
		return exchange(stage, staged, at, name)
	case opRemove:
		if !there {
			return nil
		}
		if st.Ino != op.Old || !isDir(&st) && st.Ctim.Nano() != op.At {
			return errChanged
		}
		return move(at, name, stage, staged)
	default:
		if !there || !isDir(&st) || st.Mode&0o7777 != op.Was && st.Mode&0o7777 != op.Mode {
			return errChanged
		}
		return chmodDir(at, name, op.Mode)
	}
}

// undo takes an operation back, if it was done.
func (op *operation) undo(base, stage int) error {
	at, name, err := openParent(base, string(op.Path))
	if err != nil {
		return err
	}
	defer unix.Close(at)
	staged := strconv.Itoa(op.N)
	var st unix.Stat_t
	there := unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil
	switch op.Op {
	case opPlace:
		if there && st.Ino == op.New {
			return move(at, name, stage, staged)
		}
	case opReplace:
		var kept unix.Stat_t
		if unix.Fstatat(stage, staged+aside, &kept, unix.AT_SYMLINK_NOFOLLOW) == nil { // interrupted
			if !there {
				return unix.Renameat(stage, staged+aside, at, name)
			}
			if err := unix.Renameat(stage, staged+aside, stage, staged); err != nil {
				return err
			}
		}
		if there && st.Ino == op.New {
			return exchange(stage, staged, at, name)
		}
	case opRemove:
		var kept unix.Stat_t
		if !there && unix.Fstatat(stage, staged, &kept, unix.AT_SYMLINK_NOFOLLOW) == nil {
			return move(stage, staged, at, name)
		}
	case opMode:
		if there && isDir(&st) && st.Mode&0o7777 == op.Mode {
			return chmodDir(at, name, op.Was)
		}
	}
	return nil
}

// lstat describes what is at the path of an operation.
func (op *operation) lstat(base int, st *unix.Stat_t) error {
	at, name, err := openParent(base, string(op.Path))
	if err != nil {
		return err
	}
	defer unix.Close(at)
	return unix.Fstatat(at, name, st, unix.AT_SYMLINK_NOFOLLOW)
}

// chmodDir sets the permissions of a directory that is not a symbolic link.
func chmodDir(at int, name string, mode uint32) error {
	fd, err := openDir(at, name)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fchmod(fd, mode)
}

// move renames a file to a name that does not exist.
func move(fromDir int, from string, toDir int, to string) error {
	err := unix.Renameat2(fromDir, from, toDir, to, unix.RENAME_NOREPLACE)
	if err != unix.EINVAL && err != unix.ENOSYS {
		return err
	}
	var st unix.Stat_t
	if unix.Fstatat(toDir, to, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
		return unix.EEXIST
	}
	return unix.Renameat(fromDir, from, toDir, to)
}

// aside ends the name of a replaced file while neither it nor the new one has its
// place.
const aside = ".aside"

// exchange gives two files each other's names, at once where the file system can. If
// it was interrupted where it cannot, it goes on.
func exchange(stage int, staged string, at int, name string) error {
	other := staged + aside
	var st unix.Stat_t
	if unix.Fstatat(stage, other, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		err := unix.Renameat2(stage, staged, at, name, unix.RENAME_EXCHANGE)
		if err != unix.EINVAL && err != unix.ENOSYS {
			return err
		}
		if err := unix.Renameat(at, name, stage, other); err != nil {
			return err
		}
	}
	if err := move(stage, staged, at, name); err != nil && err != unix.ENOENT {
		return err
	}
	return unix.Renameat(stage, other, stage, staged)
}
