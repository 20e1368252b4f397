// Package index finds runs without reading their logs.
//
// An index is a directory beside the logs, derived from them. It has an entry
// for every filed run: when the run began and ended, how large its log is, and a
// hash of each thing a run is searched by (see [Term]), and its name. A query returns
// candidates; the caller reads their logs and decides. So an entry may be out of
// date, and a hash may mean two things, without a wrong answer.
//
//	manifest    the files that count, replaced as a whole
//	<n>.seg     sorted entries, never changed
//	<n>.del     the entries of a segment that do not count any more, as bits
//	<n>.log     the newest entries and removals, in the order of writing
//	lock        held by the process that writes
//
// Any number of processes may read while one writes. The death of a process or
// the machine loses no entry whose write has returned.
package index

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Entry is what an index knows of a run. Times are nanoseconds since 1970.
type Entry struct {
	ID      string
	Created int64
	Ended   int64 // from when on the run ages
	Bytes   int64 // of its log on disk
	Raw     int64 // of its log before compression
	Flags   Flags
	Name    string // cut after [maxName] bytes
	Terms   []Term
}

// maxName is how many bytes of a name an index keeps.
const maxName = 255

// NameIsCut reports whether the name may go on after what the index keeps of it.
func (e *Entry) NameIsCut() bool { return len(e.Name) >= maxName }

// Flags are properties of a run that tell how to read or delete it.
type Flags uint8

// The flags of an entry.
const (
	Renamed    Flags = 1 << iota // a file beside the log has its name
	Segmented                    // its log has several files
	Workspace                    // it has a workspace
	Compressed                   // it need not be compressed any more
)

// Key names an entry.
type Key struct {
	Created int64
	ID      string
}

// compare orders keys by time, and by id at the same time.
func (k Key) compare(other Key) int {
	if c := cmp.Compare(k.Created, other.Created); c != 0 {
		return c
	}
	return strings.Compare(k.ID, other.ID)
}

// Key returns the key of the entry.
func (e *Entry) Key() Key { return Key{e.Created, e.ID} }

// Term is the hash of a property that runs are searched by: 64 bits of FNV-1a, so that
// none of millions of properties is taken for another one.
type Term uint64

// The numbers of FNV-1a.
const (
	hashBasis Term = 14695981039346656037
	hashPrime Term = 1099511628211
)

// NewTerm returns the term of a property, such as a label with its value.
func NewTerm(parts ...string) Term {
	t := hashBasis
	for _, p := range parts {
		t = t.Extend([]byte(p))
	}
	return t
}

// Extend returns the term with one more part, which ends with a zero.
func (t Term) Extend(part []byte) Term {
	for _, b := range part {
		t = (t ^ Term(b)) * hashPrime
	}
	return t * hashPrime
}

// half returns the half of a term that postings have.
func (t Term) half() uint32 { return uint32(t>>32) ^ uint32(t) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// The errors of this package.
var (
	ErrNone    = errors.New("there is no index")
	ErrDamaged = errors.New("the index is damaged")
)

const (
	manifestName = "manifest"
	lockName     = "lock"
	segmentExt   = ".seg"
	deadExt      = ".del"
	logExt       = ".log"
	tempExt      = ".tmp"
)

// manifest names the files of an index.
type manifest struct {
	Version  int           `json:"version"`
	Next     int           `json:"next"` // number of the next file
	Log      string        `json:"log"`
	Segments []segmentFile `json:"segments"`
}

// segmentFile names a segment, and the file of its dead entries if it has some.
type segmentFile struct {
	Name string `json:"name"`
	Dead string `json:"dead,omitempty"`
}

const manifestVersion = 4

// readManifest reads the manifest: a checksum in the first line, then JSON.
func readManifest(dir string) (manifest, error) {
	var m manifest
	b, err := os.ReadFile(filepath.Join(dir, manifestName))
	if errors.Is(err, fs.ErrNotExist) {
		return m, ErrNone
	}
	if err != nil {
		return m, err
	}
	sum, body, ok := strings.Cut(string(b), "\n")
	if !ok || sum != checksumText([]byte(body)) {
		return m, fmt.Errorf("%w: wrong checksum of the manifest", ErrDamaged)
	}
	if err := json.Unmarshal([]byte(body), &m); err != nil {
		return m, fmt.Errorf("%w: manifest: %w", ErrDamaged, err)
	}
	if m.Version != manifestVersion {
		return m, fmt.Errorf("%w: unknown version %d", ErrDamaged, m.Version)
	}
	for _, name := range m.files() {
		if name != filepath.Base(name) {
			return m, fmt.Errorf("%w: file %q", ErrDamaged, name)
		}
	}
	return m, nil
}

// files returns the names of the files that count.
func (m *manifest) files() []string {
	names := []string{m.Log}
	for _, s := range m.Segments {
		names = append(names, s.Name)
		if s.Dead != "" {
			names = append(names, s.Dead)
		}
	}
	return names
}

// newName returns the name of a new file.
func (m *manifest) newName(ext string) string {
	m.Next++
	return fmt.Sprintf("%08d%s", m.Next, ext)
}

// encode returns the contents of the manifest's file.
func (m *manifest) encode() ([]byte, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return append([]byte(checksumText(body)+"\n"), body...), nil
}

func checksumText(b []byte) string { return fmt.Sprintf("%08x", crc32.Checksum(b, castagnoli)) }
