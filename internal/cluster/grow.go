package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spool-run/spool/internal/flock"
)

// storeDir is where a control node has the files of the store.
const storeDir = "nats"

// StoreDir returns where a control node has the files of the store.
func StoreDir(state string) string { return filepath.Join(state, dirName, storeDir) }

// Grow gives the cluster of a machine other control nodes. Their store begins with
// nothing: nothing is started in it until the nodes that there are now have said what
// they have. The server of the machine must not run. The other machines join with the
// token of the membership that is returned, also those that were nodes before.
func Grow(state string, control []string) (Membership, error) {
	m, err := LoadMembership(state)
	if err != nil {
		return Membership{}, err
	}
	lock, err := os.OpenFile(filepath.Join(state, dirName, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return Membership{}, err
	}
	defer lock.Close()
	if held, err := flock.TryLock(lock); err != nil || !held {
		return Membership{}, errors.Join(errors.New("the server of this machine is a node now: stop it first"), err)
	}
	var id identity
	b, err := os.ReadFile(filepath.Join(state, dirName, nodeFile))
	switch {
	case errors.Is(err, fs.ErrNotExist): // it was never a node
	case err == nil:
		err = json.Unmarshal(b, &id)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Membership{}, fmt.Errorf("read the identity of the node: %w", err)
	}
	m.Control = control
	if id.Generation > 0 {
		m.Generation = max(m.Generation, id.Generation)
		m.Nodes = merge(id.Nodes, []string{id.Name})
	}
	return m, SaveMembership(state, m)
}

// setAside moves the files of a store away that is no longer that of the cluster.
func setAside(state string, old, now *Membership) error {
	if slices.Equal(old.Control, now.Control) {
		return nil
	}
	dir := StoreDir(state)
	for i := 1; ; i++ {
		aside := fmt.Sprintf("%s.before.%d", dir, i)
		if _, err := os.Lstat(aside); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := os.Rename(dir, aside); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil // this machine had no store
	}
}
