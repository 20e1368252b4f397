package cluster

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/spool-run/spool/internal/flock"
	"github.com/spool-run/spool/internal/privatedir"
)

// Files below the state directory.
const (
	dirName     = "cluster"
	keyFile     = "key"          // of the cluster, in hex
	controlFile = "cluster.json" // the rest of the membership
	nodeFile    = "node.json"    // who this node is
	lockFile    = "lock"         // held by the server of the node
	marksFile   = "high"         // how far the store was; see marks
	claimsFile  = "claims"       // what this node has claimed; see claims
	outboxDir   = "outbox"       // what this node put in the queue; see outbox
	socketFile  = "near.sock"    // for other nodes of this machine; see Near
	mirrorsDir  = "mirrors"      // copies of the logs of other nodes; see package mirror
)

// ErrNoMembership says that a machine belongs to no cluster.
var ErrNoMembership = errors.New("this machine belongs to no cluster")

// SaveMembership makes a machine one of a cluster. A machine belongs to one cluster.
func SaveMembership(state string, m Membership) error {
	dir := filepath.Join(state, dirName)
	if err := privatedir.Make(dir); err != nil {
		return err
	}
	old, err := LoadMembership(state)
	switch {
	case errors.Is(err, ErrNoMembership):
	case err != nil:
		return err
	case old.Key != m.Key:
		return fmt.Errorf("this machine belongs to another cluster, %s: remove %s if it no longer does", old.Key.ID(), dir)
	}
	b, err := json.Marshal(m)
	if err == nil {
		err = setAside(state, &old, &m)
	}
	if err != nil {
		return err
	}
	return errors.Join(
		writeFile(filepath.Join(dir, controlFile), b),
		writeFile(filepath.Join(dir, keyFile), []byte(hex.EncodeToString(m.Key[:])+"\n")),
	)
}

// LoadMembership reads what [SaveMembership] wrote.
func LoadMembership(state string) (Membership, error) {
	dir := filepath.Join(state, dirName)
	name := filepath.Join(dir, keyFile)
	fi, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return Membership{}, ErrNoMembership
	}
	if err == nil {
		err = privatedir.CheckSecret(name, fi)
	}
	if err != nil {
		return Membership{}, fmt.Errorf("read the key of the cluster: %w", err)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return Membership{}, fmt.Errorf("read the key of the cluster: %w", err)
	}
	var m Membership
	key, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) != keyBytes {
		return Membership{}, fmt.Errorf("%s holds no key of a cluster", name)
	}
	b, err := os.ReadFile(filepath.Join(dir, controlFile))
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	if err != nil {
		return Membership{}, fmt.Errorf("read the membership: %w", err)
	}
	m.Key = Key(key)
	return m, nil
}

// identity is who a node is. It is on its disk, so that the epoch never goes back,
// even if the store forgets it.
type identity struct {
	path string
	lock *os.File

	mu    sync.Mutex
	ID    string `json:"id"` // tells machines with one name apart
	Name  string `json:"name"`
	Epoch uint64 `json:"epoch"`
	// Generation is that of the store to which this node has said what it has.
	Generation uint64 `json:"generation,omitempty"`
	// Nodes are the nodes of the cluster, as this one last knew them.
	Nodes []string   `json:"nodes,omitempty"`
	first Membership // what this machine was told when it joined
}

// openIdentity reads the identity of a node, or makes it. One process at a time has it.
func openIdentity(state, name string) (*identity, error) {
	dir := filepath.Join(state, dirName)
	if err := privatedir.Make(dir); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	held, err := flock.TryLock(lock)
	if err == nil && !held {
		err = fmt.Errorf("another server of this state directory is a node already")
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	i := &identity{path: filepath.Join(dir, nodeFile), lock: lock}
	b, err := os.ReadFile(i.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		i.ID, i.Name, err = newNonce(), name, nil
	case err == nil:
		err = json.Unmarshal(b, i)
	}
	if err == nil && i.Name != name {
		err = fmt.Errorf("this node is %s and cannot become %s: its runs are known by the name of their node", i.Name, name)
	}
	if err == nil {
		err = i.keep(i.Epoch)
	}
	if err == nil {
		if i.first, err = LoadMembership(state); errors.Is(err, ErrNoMembership) {
			err = nil // of a program that has none on its disk
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read the identity of the node: %w", err), lock.Close())
	}
	return i, nil
}

// keep remembers an epoch before it is used.
func (i *identity) keep(epoch uint64) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.Epoch = epoch
	return i.write()
}

// write writes the file. The caller holds i.mu.
func (i *identity) write() error {
	b, err := json.Marshal(i)
	if err != nil {
		return err
	}
	return writeFile(i.path, b)
}

// known returns the newest generation of the store that this node knows from its disk,
// and the nodes that the cluster had.
func (i *identity) known() (generation uint64, nodes []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return max(i.Generation, i.first.Generation), slices.Concat(i.Nodes, i.first.Nodes)
}

// asserted returns the generation of the store to which this node has said what it has.
func (i *identity) asserted() uint64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.Generation
}

// keepGeneration remembers that the store of a generation knows what this node has.
func (i *identity) keepGeneration(generation uint64) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.Generation = generation
	i.first.Generation, i.first.Nodes = 0, nil // that was before
	return i.write()
}

// keepNodes remembers the nodes of the cluster.
func (i *identity) keepNodes(nodes []string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if slices.Equal(nodes, i.Nodes) {
		return nil
	}
	i.Nodes = nodes
	return i.write()
}

// close lets another process be the node.
func (i *identity) close() error { return i.lock.Close() }

// writeFile replaces a file, whole or not at all, so that it outlives a crash of the
// machine.
func writeFile(name string, b []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".new-*") // has mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	dir, err := os.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
