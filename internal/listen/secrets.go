package listen

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spool-run/spool/internal/flock"
	"github.com/spool-run/spool/internal/privatedir"
)

// Files of a state directory that only its user can read.
const (
	tokenFile = "server-token"
	certFile  = "server-cert.pem"
	keyFile   = "server-key.pem"
)

const tokenSize = 32 // bytes

// TokenFile returns the file with the token for the servers of a state
// directory. It makes both if they do not exist.
func TokenFile(dir string) (string, error) {
	path := filepath.Join(dir, tokenFile)
	err := locked(dir, func() error {
		if ok, err := exists(path); ok || err != nil {
			return err
		}
		var token [tokenSize]byte
		rand.Read(token[:]) // never fails
		return write(path, []byte(hex.EncodeToString(token[:])+"\n"))
	})
	if err != nil {
		return "", fmt.Errorf("make a token: %w", err)
	}
	return path, nil
}

// locked calls do while no other server makes files of the directory.
func locked(dir string, do func() error) error {
	if err := privatedir.Make(dir); err != nil {
		return err
	}
	lock, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := flock.Lock(lock); err != nil {
		return fmt.Errorf("lock %s: %w", dir, err)
	}
	defer func() { _ = flock.Unlock(lock) }() // a child between fork and exec may hold the file, too
	return do()
}

// exists reports whether a file with a secret exists. It is an error if other
// users can read it.
func exists(path string) (bool, error) {
	fi, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, privatedir.CheckSecret(path, fi)
}

// write writes a file that only this user can read, whole or not at all.
func write(path string, b []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // has mode 0600
	if err != nil {
		return err
	}
	_, err = tmp.Write(b)
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return nil
}
