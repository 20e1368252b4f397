package host

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/failpoint"
	"github.com/spool-run/spool/internal/flock"
	"github.com/spool-run/spool/internal/store"
)

// Every host that starts runs holds a locked file under hosts/ in the state
// directory. The lock is the only sign of life: the kernel releases it with the
// process, however the process ended.
const hostsDir = "hosts"

// Owner describes a host that shares the state directory.
type Owner struct {
	ID      string `json:"id"`
	Pid     int    `json:"pid"`
	Address string `json:"address,omitempty"` // its socket
	Build   string `json:"build,omitempty"`   // identifies its program
	// Layout is the newest layout of the state directory that it knows.
	Layout int `json:"layout,omitempty"`
}

// layoutFiled is the layout in which finished runs are filed in subdirectories.
// A program that does not know it would take their blobs for unused.
const layoutFiled = 1

type owner struct {
	file *os.File
	path string
}

func register(dir string, o Owner) (*owner, error) {
	if err := os.MkdirAll(filepath.Join(dir, hostsDir), 0o700); err != nil {
		return nil, fmt.Errorf("register host: %w", err)
	}
	path := filepath.Join(dir, hostsDir, o.ID+".json")
	// Lock the file under another name first: a process that sees the file
	// under its final name without a lock considers the host dead.
	tmp := path + ".new"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("register host: %w", err)
	}
	if ok, err := flock.TryLock(f); err != nil || !ok { // another process owns it
		return nil, errors.Join(fmt.Errorf("register host: lock %s: %w", tmp, cmp.Or(err, fs.ErrExist)), f.Close())
	}
	err = func() error {
		if err := f.Truncate(0); err != nil {
			return err
		}
		if err := json.NewEncoder(f).Encode(o); err != nil {
			return err
		}
		return os.Rename(tmp, path)
	}()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("register host: %w", err), os.Remove(tmp), f.Close())
	}
	return &owner{f, path}, nil
}

// release removes the file of the host. It may have been removed with the whole
// state directory.
func (o *owner) release() error {
	err := os.Remove(o.path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, o.file.Close())
}

// LookupOwner returns the live host with an id, or an error that wraps
// fs.ErrNotExist.
func LookupOwner(dir, id string) (Owner, error) {
	if spool.RunID(id).Check() != nil {
		return Owner{}, fmt.Errorf("look up host %.140q: %w", id, fs.ErrNotExist)
	}
	b, err := os.ReadFile(filepath.Join(dir, hostsDir, id+".json"))
	if err != nil {
		return Owner{}, fmt.Errorf("look up host %s: %w", id, err)
	}
	var o Owner
	if err := json.Unmarshal(b, &o); err != nil {
		return Owner{}, fmt.Errorf("look up host %s: %w", id, err)
	}
	return o, nil
}

// Owners returns the live hosts of a state directory.
func Owners(dir string) ([]Owner, error) {
	entries, err := os.ReadDir(filepath.Join(dir, hostsDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for hosts: %w", err)
	}
	var living []Owner
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok {
			continue
		}
		if alive, err := isAlive(filepath.Join(dir, hostsDir, e.Name())); err != nil || !alive {
			continue // it ended just now, or waits for recovery
		}
		if o, err := LookupOwner(dir, id); err == nil {
			living = append(living, o)
		}
	}
	return living, nil
}

// isAlive reports whether a host holds the lock on its file.
func isAlive(path string) (bool, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return false, err
	}
	defer f.Close() // releases the lock, too
	dead, err := flock.TryLock(f)
	return !dead, err
}

// Settle performs the recovery of [Open]: it ends the processes that dead hosts
// of a state directory left, and closes their runs.
func Settle(o Options) error {
	h, err := Open(o)
	if err != nil {
		return err
	}
	return errors.Join(h.Unsettled(), h.Close())
}

// recoverDead recovers the runs of dead hosts of this state directory.
func (h *Host) recoverDead() error {
	entries, err := os.ReadDir(filepath.Join(h.opts.Dir, hostsDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok {
			continue
		}
		if err := h.recoverHost(id, filepath.Join(h.opts.Dir, hostsDir, e.Name())); err != nil {
			errs = append(errs, fmt.Errorf("settle runs of host %s: %w", id, err))
		}
	}
	return errors.Join(errs...)
}

// recoverOrphans recovers runs whose host has no file, as when the machine lost
// power before the file was on disk.
func (h *Host) recoverOrphans() error {
	var errs []error
	seen := make(map[string]bool)
	for info := range h.store.Unfiled() {
		if info.Owner == "" || info.Owner == h.id || info.State == spool.StateClosed || seen[info.Owner] || spool.RunID(info.Owner).Check() != nil {
			continue
		}
		if err := failpoint.Inject("host.orphan"); err != nil {
			return err
		}
		path := filepath.Join(h.opts.Dir, hostsDir, info.Owner+".json")
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			seen[info.Owner] = true
			continue
		}
		// A host has its file before it has runs, and until they are complete:
		// if this run is complete by now, its host ended normally.
		if complete, err := h.isComplete(info.ID); err != nil || complete {
			errs = append(errs, err)
			continue
		}
		seen[info.Owner] = true
		// Create its file, as that of a dead host; the first process that does
		// so recovers the runs.
		o, err := register(h.opts.Dir, Owner{ID: info.Owner})
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if err := errors.Join(o.file.Close(), h.recoverHost(info.Owner, path)); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// isComplete reports whether the files of a run say that it is closed, or are gone.
func (h *Host) isComplete(id spool.RunID) (bool, error) {
	j, err := h.store.Open(id)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return j.Info().State == spool.StateClosed, j.Close()
}

// lockGrace is how long recovery waits for the lock of a host whose process is gone:
// a child that the host was forking holds a copy until it executes, which may take
// long on a busy machine, and another process that recovers the host has the lock.
const lockGrace = 5 * time.Second

// lockInterval is the pause between two attempts to take that lock.
const lockInterval = 2 * time.Millisecond

func (h *Host) recoverHost(id, path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it ended normally just now
	}
	if err != nil {
		return err
	}
	defer f.Close()
	var o Owner
	_ = json.NewDecoder(f).Decode(&o) // informational
	// The process that gets the lock recovers the runs; others skip the host.
	dead, err := flock.TryLock(f)
	for began := time.Now(); err == nil && !dead && isGone(o.Pid) && time.Since(began) < lockGrace; {
		time.Sleep(lockInterval)
		dead, err = flock.TryLock(f)
	}
	if err != nil || !dead {
		return err
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil // another process recovered it meanwhile
	}
	if err := failpoint.Inject("host.recover"); err != nil {
		return err
	}
	if h.opts.Sweep != nil {
		if err := h.opts.Sweep(id); err != nil {
			return fmt.Errorf("end its processes: %w", err)
		}
	}
	if err := failpoint.Inject("host.swept"); err != nil {
		return err
	}
	var errs []error
	for info, err := range h.store.Unfiled() {
		var corrupt *store.CorruptError
		if err != nil && !errors.As(err, &corrupt) || info.Owner != id || info.State == spool.StateClosed {
			continue // reading the run returns the error
		}
		// A power loss leaves damage where a dead process leaves an incomplete
		// record. Both are cut off.
		if err := h.settle(info, o); err != nil && !errors.As(err, &corrupt) {
			errs = append(errs, fmt.Errorf("run %s: %w", info.ID, err))
		}
		if err := failpoint.Inject("host.settled"); err != nil {
			return err
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.Remove(path)
}

// NoticeHostLost is the code of the notice that ends the log of a run whose
// host died between the exit and the end of its output.
const NoticeHostLost = "host_lost"

// settle completes the log of a run whose host died. If the log has no outcome,
// the outcome is unknown.
func (h *Host) settle(info spool.Info, o Owner) (err error) {
	j, cut, err := h.store.Recover(info.ID)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	r := openRun(h.ctx, info.ID, j)
	sealed, err := r.recount()
	if err != nil {
		return err
	}
	last, _ := r.log.Last()
	if !sealed && cut.Bytes > 0 {
		text := fmt.Sprintf("%d bytes of an unfinished write were cut off after event %d: %s", cut.Bytes, last, cut.Reason)
		if err := r.notice("log_cut", text); err != nil {
			return err
		}
	}
	reason := "its host is gone"
	if o.Pid > 0 {
		reason = fmt.Sprintf("its host died (pid %d)", o.Pid)
	}
	switch {
	case sealed:
	case r.info.Outcome == nil:
		if _, err := r.Append(spool.Outcome{Kind: spool.Unknown, Reason: reason}.Event()); err != nil {
			return err
		}
	default: // it exited, but its streams were open
		if err := r.notice(NoticeHostLost, reason+" before its output ended: what its children wrote last may be missing"); err != nil {
			return err
		}
	}
	if err := failpoint.Inject("host.settle"); err != nil {
		return err
	}
	if !sealed && r.info.Workspace != nil {
		if r.workspaceDir, err = h.store.WorkspaceDir(info.ID); err != nil {
			return err
		}
		for _, e := range r.endWorkspace() {
			if _, err := r.log.Append(e); err != nil {
				return err
			}
		}
	}
	if !sealed {
		if _, err := r.log.Append(spool.Event{Kind: spool.KindClosed}); err != nil {
			return err
		}
	}
	r.info.State, r.info.Ended = spool.StateClosed, time.Now().Round(0)
	if _, done := j.Last(); done {
		return nil
	}
	final := r.Info()
	final.State = spool.StateClosed // the log may have been closed before
	return j.Seal(final)
}

// recount derives from the log what the description of a live run lacks, and
// whether the log is complete.
func (r *run) recount() (closed bool, err error) {
	r.info.Bytes = 0
	for after := spool.Seq(0); ; {
		page, err := r.log.Read(after, spool.DefaultPageBytes)
		if err != nil || len(page) == 0 {
			return closed, err
		}
		after = page[len(page)-1].Seq
		for i := range page {
			if o, ok := page[i].Outcome(); ok {
				r.info.Outcome = &o
			}
			closed = page[i].Kind == spool.KindClosed
			if page[i].Kind == spool.KindOutput {
				r.info.Bytes += int64(len(page[i].Bytes))
			}
			noteTurn(&r.info, &page[i])
		}
	}
}

func (r *run) notice(code, text string) error {
	_, err := r.log.Append(notice(code, text))
	return err
}

func notice(code, text string) spool.Event {
	data, err := json.Marshal(spool.Notice{Code: code, Text: text})
	if err != nil { // encoding two plain fields never fails
		panic(err)
	}
	return spool.Event{Kind: spool.KindNotice, Data: data}
}
