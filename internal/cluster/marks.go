package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// parts are the parts of the store, each of which numbers its writes by itself.
var parts = []string{"node", "run", "queue"}

// partOf returns the part of the store that has a key. It is empty for one that has no
// high-water mark.
func partOf(key string) string {
	prefix, _, _ := strings.Cut(key, ".")
	switch prefix {
	case "node", "run", "queue":
		return prefix
	case "name":
		return "run"
	}
	return ""
}

// marks are the high-water marks of the store: the highest revisions that it has
// acknowledged in its present generation, as far as this node knows. They are on the
// disk of the node, so that a store which is behind them is recognized also after a
// restart. They are written and not flushed: what a loss of power takes, other nodes
// have.
type marks struct {
	file *os.File

	mu         sync.Mutex
	generation uint64
	high       map[string]uint64
}

// openMarks reads the marks of a node, or begins with none.
func openMarks(state string) (*marks, error) {
	f, err := os.OpenFile(filepath.Join(state, dirName, marksFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the high-water marks: %w", err)
	}
	m := &marks{file: f, high: make(map[string]uint64)}
	var node, run, queue uint64
	if _, err := fmt.Fscanf(f, marksFormat, &m.generation, &node, &run, &queue); err != nil {
		m.generation = 0 // a new node
		return m, nil
	}
	m.high["node"], m.high["run"], m.high["queue"] = node, run, queue
	return m, nil
}

// marksFormat is the file of marks: the generation, then a mark for each part. It has
// one length, so that it is written in place.
const marksFormat = "%016x %016x %016x %016x\n"

// begin has the marks be those of a generation, which are none if it is a new one.
func (m *marks) begin(generation uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.generation == generation {
		return nil
	}
	m.generation = generation
	clear(m.high)
	return errors.Join(m.write(), m.file.Sync())
}

// write writes the file. The caller holds m.mu.
func (m *marks) write() error {
	_, err := fmt.Fprintf(&at{m.file}, marksFormat, m.generation, m.high["node"], m.high["run"], m.high["queue"])
	return err
}

// at writes to the beginning of a file.
type at struct{ f *os.File }

func (a *at) Write(b []byte) (int, error) { return a.f.WriteAt(b, 0) }

// get returns the mark of a part.
func (m *marks) get(part string) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.high[part]
}

// all returns the generation and a copy of its marks.
func (m *marks) all() (uint64, map[string]uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	high := make(map[string]uint64, len(m.high))
	for _, p := range parts {
		if m.high[p] > 0 {
			high[p] = m.high[p]
		}
	}
	return m.generation, high
}

// saw raises the mark of a part in memory. The next write of this node takes it to the
// disk.
func (m *marks) saw(generation uint64, part string, rev uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if part != "" && generation == m.generation {
		m.high[part] = max(m.high[part], rev)
	}
}

// raise raises the mark of a part after a write of this node.
func (m *marks) raise(generation uint64, part string, rev uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if part == "" || generation != m.generation || rev <= m.high[part] {
		return nil
	}
	m.high[part] = rev
	if err := m.write(); err != nil {
		return fmt.Errorf("write the high-water marks: %w", err)
	}
	return nil
}

func (m *marks) close() error { return m.file.Close() }
