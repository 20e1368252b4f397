package archive

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/privatedir"
	"github.com/spool-run/spool/internal/store"
)

// The files below <state>/archive.
const (
	stateName    = "archive"
	pendingName  = "pending"
	shippedName  = "shipped"
	lockName     = "lock"
	statusName   = "status.json"
	cacheName    = "cache"
	pinnedName   = "pinned.json"
	hiddenPrefix = "." // of a directory that is being made or removed
)

// pendingRun is a run that waits for its upload: a directory with second names of its
// files, which stays until the archive has the run, whatever becomes of the run.
type pendingRun struct {
	dir      string
	pinned   time.Time
	Info     spool.Info    `json:"info"`
	Segments []pendingFile `json:"segments"`
	Blobs    []pendingFile `json:"blobs,omitempty"`
	Size     int64         `json:"size_bytes"`
}

// pendingFile is a file of a run that waits.
type pendingFile struct {
	Name   string       `json:"name"`
	Size   int64        `json:"size_bytes"`
	First  spool.Seq    `json:"first,omitempty"`
	Last   spool.Seq    `json:"last,omitempty"`
	Digest spool.Digest `json:"blob,omitempty"`
}

func (p *pendingRun) path(f pendingFile) string { return filepath.Join(p.dir, filepath.Base(f.Name)) }

// paths returns the files in the order of [Manifest.files].
func (p *pendingRun) paths() []string {
	var all []string
	for _, f := range p.Segments {
		all = append(all, p.path(f))
	}
	for _, f := range p.Blobs {
		all = append(all, p.path(f))
	}
	return all
}

// pending is the directory of runs that wait.
type pending struct{ dir string }

// openPending opens the directory and removes what a process left that died in the
// middle of something. The caller has the lock.
func openPending(state string) (*pending, error) {
	p := &pending{filepath.Join(state, stateName, pendingName)}
	if err := privatedir.Make(p.dir); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(p.dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), hiddenPrefix) {
			if err := os.RemoveAll(filepath.Join(p.dir, e.Name())); err != nil {
				return nil, err
			}
		}
	}
	return p, nil
}

// has reports whether a run waits.
func (p *pending) has(id spool.RunID) bool {
	_, err := os.Lstat(filepath.Join(p.dir, string(id)))
	return err == nil
}

// add pins a run of a store, all of it or nothing, and returns its size.
func (p *pending) add(s *store.Store, id spool.RunID) (size int64, err error) {
	temp := filepath.Join(p.dir, hiddenPrefix+string(id))
	if err := os.RemoveAll(temp); err != nil {
		return 0, err
	}
	if err := os.Mkdir(temp, 0o700); err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(temp))
		}
	}()
	pinned, err := s.Pin(id, temp)
	if err != nil {
		return 0, err
	}
	run := pendingRun{Info: pinned.Info, Size: pinned.Bytes}
	for _, f := range pinned.Segments {
		run.Segments = append(run.Segments, pendingFile{Name: filepath.Base(f.Path), Size: f.Size, First: f.First, Last: f.Last})
	}
	for _, f := range pinned.Blobs {
		run.Blobs = append(run.Blobs, pendingFile{Name: filepath.Base(f.Path), Size: f.Size, Digest: f.Digest})
	}
	b, err := json.Marshal(run)
	if err != nil {
		return 0, err
	}
	if err := os.WriteFile(filepath.Join(temp, pinnedName), b, 0o600); err != nil {
		return 0, err
	}
	return run.Size, os.Rename(temp, filepath.Join(p.dir, string(id)))
}

// remove forgets a run. A process that dies in the middle leaves nothing that waits.
func (p *pending) remove(id spool.RunID) error {
	temp := filepath.Join(p.dir, hiddenPrefix+string(id))
	if err := os.RemoveAll(temp); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(p.dir, string(id)), temp); err != nil {
		return err
	}
	return os.RemoveAll(temp)
}

// list returns the runs that wait, those that wait longest first.
func (p *pending) list() ([]*pendingRun, error) {
	entries, err := os.ReadDir(p.dir)
	if err != nil {
		return nil, err
	}
	var runs []*pendingRun
	for _, e := range entries {
		if id := spool.RunID(e.Name()); !e.IsDir() || id.Check() != nil {
			continue
		}
		run, err := readPending(filepath.Join(p.dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("read what waits to be archived: %w", err)
		}
		runs = append(runs, run)
	}
	slices.SortFunc(runs, func(a, b *pendingRun) int {
		return cmp.Or(a.pinned.Compare(b.pinned), cmp.Compare(a.Info.ID, b.Info.ID))
	})
	return runs, nil
}

func readPending(dir string) (*pendingRun, error) {
	name := filepath.Join(dir, pinnedName)
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	fi, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	run := &pendingRun{dir: dir, pinned: fi.ModTime()}
	if err := json.Unmarshal(b, run); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return run, nil
}

// shipped remembers which runs of the state directory the archive has, so that a run is
// not uploaded again after it was removed there. What a crash of the machine takes from
// it is uploaded again, which changes nothing.
type shipped struct {
	path string
	file *os.File
	runs map[[16]byte]struct{}
}

func shippedID(id spool.RunID) (k [16]byte) {
	sum := sha256.Sum256([]byte(id))
	copy(k[:], sum[:])
	return k
}

func openShipped(state string) (*shipped, error) {
	s := &shipped{path: filepath.Join(state, stateName, shippedName), runs: make(map[[16]byte]struct{})}
	b, err := os.ReadFile(s.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	// The last line may be torn: the next one must not go on with it.
	if i := bytes.LastIndexByte(b, '\n'); i+1 < len(b) {
		b = b[:i+1]
		if err := os.Truncate(s.path, int64(len(b))); err != nil {
			return nil, err
		}
	}
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		s.runs[shippedID(spool.RunID(lines.Text()))] = struct{}{}
	}
	s.file, err = os.OpenFile(s.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	return s, err
}

func (s *shipped) has(id spool.RunID) bool {
	_, ok := s.runs[shippedID(id)]
	return ok
}

func (s *shipped) add(id spool.RunID) error {
	if _, err := s.file.WriteString(string(id) + "\n"); err != nil {
		return err
	}
	s.runs[shippedID(id)] = struct{}{}
	return nil
}

// keep forgets all but these runs, if that is worth it: the others are gone from the
// state directory.
func (s *shipped) keep(ids []spool.RunID) error {
	if len(s.runs) < 2*len(ids)+shippedSlack {
		return nil
	}
	var b bytes.Buffer
	runs := make(map[[16]byte]struct{}, len(ids))
	for _, id := range ids {
		b.WriteString(string(id) + "\n")
		runs[shippedID(id)] = struct{}{}
	}
	if err := replaceFile(s.path, b.Bytes()); err != nil {
		return err
	}
	f, err := os.OpenFile(s.path, os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	err = s.file.Close()
	s.file, s.runs = f, runs
	return err
}

// shippedSlack is how many runs that are gone are remembered in any case.
const shippedSlack = 1000

// replaceFile writes a file, all of it or nothing.
func replaceFile(path string, b []byte) error {
	temp := path + ".new"
	if err := os.WriteFile(temp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(temp, path)
}
