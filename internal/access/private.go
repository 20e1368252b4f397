package access

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spool-run/spool/internal/flock"
	"github.com/spool-run/spool/internal/privatedir"
)

// readPrivate reads a file that must belong to this user, and to which no other user
// may have access. what names it in errors.
func readPrivate(path, what string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err == nil {
		err = privatedir.CheckSecret(path, info)
	}
	if err == nil && info.Size() > limit {
		err = fmt.Errorf("%s is larger than %d bytes", path, limit)
	}
	var b []byte
	if err == nil {
		b, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	return b, nil
}

// changePrivate replaces the contents of such a file, whole or not at all, with the
// JSON of what change returns. Processes that do so at the same time wait for each
// other.
func changePrivate(path string, change func() (any, error)) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close() // releases the lock, too
	if err := flock.Lock(lock); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	v, err := change()
	if err != nil {
		return err
	}
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new-*") // has mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp.Name()))
		}
	}()
	_, err = tmp.Write(append(b, '\n'))
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// sameFile reports whether a file is as it was.
func sameFile(now, then fs.FileInfo) bool {
	return os.SameFile(now, then) && now.Size() == then.Size() && now.ModTime().Equal(then.ModTime()) && now.Mode() == then.Mode()
}
