package cluster

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spool-run/spool"
)

// claims is the second copy of what this node has claimed: a file with a line for every
// id. A store that went back in time is told from it which ids were started here, also
// those of runs that were removed since. It forgets an id when the store does.
type claims struct {
	path string
	keep time.Duration

	mu    sync.Mutex
	file  *os.File
	size  int64
	small int64 // what the file had when it was last written anew
	slack int64 // claimsSlack
}

// claimsSlack is by how much the file grows before what it may forget is taken out.
const claimsSlack = 1 << 20

// openClaims opens the file, and takes out what is too old.
func openClaims(state string, keep time.Duration) (*claims, error) {
	c := &claims{path: filepath.Join(state, dirName, claimsFile), keep: keep, slack: claimsSlack}
	if err := c.shrink(); err != nil {
		return nil, fmt.Errorf("open the claims of this node: %w", err)
	}
	return c, nil
}

// add notes that this node has claimed an id, before it starts the run.
func (c *claims) add(id spool.RunID) error { return c.write('+', id) }

// drop notes that a claim was taken back: the run was never started.
func (c *claims) drop(id spool.RunID) error { return c.write('-', id) }

func (c *claims) write(op byte, id spool.RunID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := fmt.Fprintf(c.file, "%c%d %s\n", op, time.Now().Unix(), id)
	if err != nil { // a part of the line would spoil the next one
		return fmt.Errorf("note the claim of run %s: %w", id, errors.Join(err, c.file.Truncate(c.size)))
	}
	c.size += int64(n)
	if c.size > 2*c.small+c.slack {
		return c.shrink()
	}
	return nil
}

// all returns the ids that this node has claimed, and when.
func (c *claims) all() (map[spool.RunID]time.Time, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read()
}

// read reads the file. The caller holds c.mu.
func (c *claims) read() (map[spool.RunID]time.Time, error) {
	ids := make(map[spool.RunID]time.Time)
	f, err := os.Open(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		return ids, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	oldest := time.Now().Add(-c.keep)
	for lines := bufio.NewReader(f); ; {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) { // what is left was cut off by a loss of power
			return ids, nil
		}
		if err != nil {
			return nil, err
		}
		head, id, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		var op rune
		var unix int64
		if _, err := fmt.Sscanf(head, "%c%d", &op, &unix); err != nil || !ok || spool.RunID(id).Check() != nil {
			continue // damaged
		}
		delete(ids, spool.RunID(id))
		if at := time.Unix(unix, 0); op == '+' && at.After(oldest) {
			ids[spool.RunID(id)] = at
		}
	}
}

// shrink writes the file anew with what is still needed. The caller holds c.mu, or is
// the only one.
func (c *claims) shrink() error {
	ids, err := c.read()
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		fmt.Fprintf(&b, "+%d %s\n", ids[id].Unix(), id)
	}
	if err := writeFile(c.path, []byte(b.String())); err != nil {
		return err
	}
	f, err := os.OpenFile(c.path, os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if c.file != nil {
		err = c.file.Close()
	}
	c.file, c.size, c.small = f, int64(b.Len()), int64(b.Len())
	return err
}

func (c *claims) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.file.Close()
}
