package pyodide

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// stamp says what is known of a distribution that was loaded once. It is kept
// beside the snapshot, under the fingerprint of what both are of.
type stamp struct {
	Kind     string `json:"kind"`
	Snapshot bool   `json:"snapshot"`
	Size     int64  `json:"size"` // of the snapshot
}

func stampPath(cache, fingerprint string) string {
	return filepath.Join(cache, fingerprint+".json")
}

func snapshotPath(cache, fingerprint string) string {
	return filepath.Join(cache, fingerprint+".snapshot")
}

// readStamp returns what an earlier preparation left, or nil if that is
// nothing, or not all of it.
func readStamp(cache, fingerprint string) (*stamp, error) {
	b, err := os.ReadFile(stampPath(cache, fingerprint))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("read what was prepared: %w", err)
	}
	var s stamp
	if json.Unmarshal(b, &s) != nil || s.Kind == "" {
		return nil, nil // a torn one; it is made again
	}
	if s.Snapshot {
		info, err := os.Stat(snapshotPath(cache, fingerprint))
		if err != nil || info.Size() != s.Size {
			return nil, nil //nolint:nilerr // as above
		}
	}
	return &s, nil
}

// writeStamp keeps a snapshot, if it is not empty, and says so.
func writeStamp(cache, fingerprint string, snapshot *os.File, kind string) (*stamp, error) {
	info, err := snapshot.Stat()
	if err != nil {
		return nil, fmt.Errorf("keep snapshot: %w", err)
	}
	s := &stamp{Kind: kind, Snapshot: info.Size() > 0, Size: info.Size()}
	if s.Snapshot {
		if err := os.Rename(snapshot.Name(), snapshotPath(cache, fingerprint)); err != nil {
			return nil, fmt.Errorf("keep snapshot: %w", err)
		}
	}
	b, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	tmp, err := os.CreateTemp(cache, "stamp-*.tmp")
	if err != nil {
		return nil, fmt.Errorf("keep snapshot: %w", err)
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	_, err = tmp.Write(b)
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), stampPath(cache, fingerprint))
	}
	if err != nil {
		return nil, fmt.Errorf("keep snapshot: %w", err)
	}
	prune(cache)
	return s, nil
}

// maxSnapshots is how many are kept, of distributions or of states of them.
const maxSnapshots = 8

// prune removes the oldest. What cannot be removed now can be later.
func prune(cache string) {
	list, err := filepath.Glob(filepath.Join(cache, "*.snapshot"))
	if err != nil || len(list) <= maxSnapshots {
		return
	}
	age := func(path string) int64 {
		info, err := os.Stat(path)
		if err != nil {
			return 0
		}
		return info.ModTime().UnixNano()
	}
	slices.SortFunc(list, func(a, b string) int { return cmp.Compare(age(a), age(b)) })
	for _, path := range list[:len(list)-maxSnapshots] {
		_ = os.Remove(strings.TrimSuffix(path, ".snapshot") + ".json") // first: a stamp promises its snapshot
		_ = os.Remove(path)
	}
}
