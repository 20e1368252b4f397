package store

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spool-run/spool"
)

const (
	digestPrefix = "sha256:"
	tempPrefix   = "incoming-"
)

// PutBlob stores the bytes of r under their digest. Storing the same bytes again
// takes no space and renews the blob's age for [Store.Sweep]. The MIME type is
// not stored: it belongs to the event that refers to the blob.
func (s *Store) PutBlob(mime string, r io.Reader) (spool.Blob, error) {
	d, n, err := s.putBlob(r)
	if err != nil {
		return spool.Blob{}, fmt.Errorf("store blob: %w", err)
	}
	return spool.Blob{Digest: d, Size: n, MIME: mime}, nil
}

func (s *Store) putBlob(r io.Reader) (d spool.Digest, n int64, err error) {
	f, err := os.CreateTemp(s.blobsDir(), tempPrefix+"*") // created with mode 0600
	if err != nil {
		return "", 0, err
	}
	defer func() {
		if f != nil {
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}()
	sum := sha256.New()
	if n, err = io.Copy(io.MultiWriter(f, sum), r); err != nil {
		return "", 0, err
	}
	d = spool.Digest(digestPrefix + hex.EncodeToString(sum.Sum(nil)))
	path, err := s.blobPath(d)
	if err != nil {
		return "", 0, err
	}
	now := s.now()

	s.blobMu.Lock()
	defer s.blobMu.Unlock()
	err = os.Chtimes(path, now, now)
	if !errors.Is(err, fs.ErrNotExist) {
		return d, n, err // the blob exists already
	}
	if s.policy != SyncNone {
		if err := s.fsync(f); err != nil {
			return "", 0, err
		}
	}
	if err := os.Chtimes(f.Name(), now, now); err != nil {
		return "", 0, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", 0, err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return "", 0, err
	}
	err = f.Close()
	f = nil
	if err == nil && s.policy != SyncNone {
		err = errors.Join(s.syncDir(filepath.Dir(path)), s.syncDir(s.blobsDir()))
	}
	return d, n, err
}

// Blob opens a blob. The error is [spool.ErrNotFound] if there is none.
func (s *Store) Blob(d spool.Digest) (io.ReadCloser, error) {
	path, err := s.blobPath(d)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("blob %s: %w", d, spool.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("open blob: %w", err)
	}
	return f, nil
}

// CheckDigest reports a digest that names no blob; the error is
// [spool.ErrInvalid].
func CheckDigest(d spool.Digest) error {
	if name, ok := strings.CutPrefix(string(d), digestPrefix); !ok || !isDigest(name) {
		return fmt.Errorf("%w: digest %.100q is not sha256: and 64 hex digits", spool.ErrInvalid, d)
	}
	return nil
}

// blobPath returns the path of a blob. Only a valid digest becomes a path.
func (s *Store) blobPath(d spool.Digest) (string, error) {
	if err := CheckDigest(d); err != nil {
		return "", err
	}
	name := string(d[len(digestPrefix):])
	return filepath.Join(s.blobsDir(), name[:2], name), nil
}

// isDigest reports whether a file name is that of a blob.
func isDigest(name string) bool {
	return len(name) == 2*sha256.Size && strings.Trim(name, "0123456789abcdef") == ""
}

// sweepBlobs deletes the blobs that were last stored before a time, and the
// temporary files that a crash left.
func (s *Store) sweepBlobs(before time.Time, swept *Swept) error {
	return filepath.WalkDir(s.blobsDir(), func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		temp := strings.HasPrefix(d.Name(), tempPrefix)
		if !temp && !isDigest(d.Name()) {
			return nil // not a blob
		}
		s.blobMu.Lock()
		defer s.blobMu.Unlock()
		fi, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !fi.ModTime().Before(before) {
			return err
		}
		if err := os.Remove(path); err != nil {
			return err
		}
		if !temp {
			swept.Blobs++
		}
		swept.Bytes += fi.Size()
		return nil
	})
}
