package sessions

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spool-run/spool/agent"
)

// Ledger is a ledger in a directory: a small file for each session.
type Ledger struct {
	dir string
}

// NewLedger returns the ledger of a directory, and creates that.
func NewLedger(dir string) (*Ledger, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open usage of sessions: %w", err)
	}
	b := &Ledger{dir}
	b.sweep(time.Now().Add(-Memory))
	return b, nil
}

// sweep removes what is known of sessions that were not used since.
func (b *Ledger) sweep(before time.Time) {
	entries, err := os.ReadDir(b.dir)
	if err != nil { // then nothing is forgotten
		return
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.ModTime().Before(before) {
			_ = os.Remove(filepath.Join(b.dir, e.Name())) // or next time
		}
	}
}

func (b *Ledger) path(key string) string { return filepath.Join(b.dir, fileName(key)+".json") }

// Total is what the session had used when a turn of ours last ended, or nil.
func (b *Ledger) Total(key string) *agent.Spend {
	data, err := os.ReadFile(b.path(key))
	if err != nil {
		return nil
	}
	s := new(agent.Spend)
	if json.Unmarshal(data, s) != nil {
		return nil
	}
	return s
}

// Note keeps the total of a session. A lost note costs a difference, no more,
// so a failure is not worth a turn.
func (b *Ledger) Note(key string, total agent.Spend) {
	data, err := json.Marshal(total)
	if err != nil {
		return
	}
	f, err := os.CreateTemp(b.dir, "new-*")
	if err != nil {
		return
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), b.path(key))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		_ = os.Remove(f.Name())
	}
}
