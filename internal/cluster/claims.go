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
// those of runs that were removed since. It forgets an id when the store has, or later.
//
// The clock of the machine may be set back and forth, so the file has a time of its own,
// in seconds: it goes on from the greatest number in the file, as long as the node runs.
// The clock of the machine is only where the first file begins. Time in which the node
// was down does not count, so that an id is known for too long rather than too short.
type claims struct {
	path string
	keep time.Duration
	base int64     // the time of the file when it was opened
	from time.Time // when that was
	// first is the time of a file that does not exist yet.
	first int64

	mu    sync.Mutex
	file  *os.File
	size  int64
	small int64 // what the file had when it was last written anew
	slack int64 // claimsSlack
}

// claimsSlack is by how much the file grows before what it may forget is taken out.
const claimsSlack = 1 << 20

// openClaims opens the file, and takes out what is too old. The clock is asked if there is
// no file yet.
func openClaims(state string, keep time.Duration, clock func() time.Time) (*claims, error) {
	c := &claims{path: filepath.Join(state, dirName, claimsFile), keep: keep, slack: claimsSlack, from: time.Now(), first: clock().Unix()}
	if err := c.shrink(); err != nil {
		return nil, fmt.Errorf("open the claims of this node: %w", err)
	}
	return c, nil
}

// now returns the time of the file.
func (c *claims) now() int64 { return c.base + int64(time.Since(c.from)/time.Second) }

// add notes that this node has claimed an id, before it starts the run.
func (c *claims) add(id spool.RunID) error { return c.write('+', id) }

// drop notes that a claim was taken back: the run was never started.
func (c *claims) drop(id spool.RunID) error { return c.write('-', id) }

func (c *claims) write(op byte, id spool.RunID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := fmt.Fprintf(c.file, "%c%d %s\n", op, c.now(), id)
	if err != nil { // a part of the line would spoil the next one
		return fmt.Errorf("note the claim of run %s: %w", id, errors.Join(err, c.file.Truncate(c.size)))
	}
	c.size += int64(n)
	if c.size > 2*c.small+c.slack {
		return c.shrink()
	}
	return nil
}

// all returns the ids that this node has claimed, and how long ago.
func (c *claims) all() (map[spool.RunID]time.Duration, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ids, err := c.read()
	ages := make(map[spool.RunID]time.Duration, len(ids))
	for id, at := range ids {
		ages[id] = time.Duration(c.now()-at) * time.Second
	}
	return ages, err
}

// read reads the file: the ids that it need not forget, and when they were claimed. The
// caller holds c.mu.
func (c *claims) read() (map[spool.RunID]int64, error) {
	ids := make(map[spool.RunID]int64)
	f, err := os.Open(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		c.base = c.first
		return ids, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for lines := bufio.NewReader(f); ; {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) { // what is left was cut off by a loss of power
			break
		}
		if err != nil {
			return nil, err
		}
		head, id, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		var op rune
		var at int64
		if _, err := fmt.Sscanf(head, "%c%d", &op, &at); err != nil || !ok && op != '=' || ok && spool.RunID(id).Check() != nil {
			continue // damaged
		}
		c.base = max(c.base, at-int64(time.Since(c.from)/time.Second))
		delete(ids, spool.RunID(id))
		if op == '+' {
			ids[spool.RunID(id)] = at
		}
	}
	if c.base == 0 {
		c.base = c.first
	}
	oldest := c.now() - int64(c.keep/time.Second)
	maps.DeleteFunc(ids, func(_ spool.RunID, at int64) bool { return at <= oldest })
	return ids, nil
}

// shrink writes the file anew with what is still needed. The caller holds c.mu, or is
// the only one.
func (c *claims) shrink() error {
	ids, err := c.read()
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "=%d\n", c.now())
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		fmt.Fprintf(&b, "+%d %s\n", ids[id], id)
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
	_, _ = fmt.Fprintf(c.file, "=%d\n", c.now()) // else the next node goes on from its last claim
	return c.file.Close()
}
