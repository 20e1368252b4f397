package sessions

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spool-run/spool/internal/flock"
)

// Locks let one run at a time work in a session, in the order in which they
// asked, in all processes that use the same directory. An agent keeps a session
// in a file of its own; two processes that write it at once lose turns.
//
// A waiter takes a ticket: a numbered file that it holds locked as long as it
// waits or works. The lowest locked ticket has the session. The ticket of a
// process that died is not locked any more, and the next waiter removes it.
type Locks struct {
	dir string

	mu   sync.Mutex
	wake map[string]chan struct{} // by key; closed when a ticket of ours is given back
}

// lockPoll is how often a waiter looks whether another process is done. A
// release in this process wakes it at once.
const lockPoll = 50 * time.Millisecond

// countDir holds a file for each conversation that counts its holders. They
// are apart from the tickets, since there may be many.
const countDir = "counts"

// Memory is how long the count of the holders of a session is kept.
const Memory = 30 * 24 * time.Hour

// maxLockNote bounds what is read of a ticket.
const maxLockNote = 4 << 10

// NewLocks returns the locks that are kept in a directory, and creates it.
func NewLocks(dir string) (*Locks, error) {
	if err := os.MkdirAll(filepath.Join(dir, countDir), 0o700); err != nil {
		return nil, fmt.Errorf("open session locks: %w", err)
	}
	l := &Locks{dir: dir, wake: make(map[string]chan struct{})}
	if err := l.sweep(time.Now().Add(-Memory)); err != nil {
		return nil, fmt.Errorf("open session locks: %w", err)
	}
	return l, nil
}

// Holder is who works in a session.
type Holder struct {
	Pid   int       `json:"pid"`
	Run   string    `json:"run,omitempty"`
	Since time.Time `json:"since"`
}

func (h Holder) String() string {
	if h.Run == "" {
		return "process " + strconv.Itoa(h.Pid)
	}
	return fmt.Sprintf("run %s (process %d)", h.Run, h.Pid)
}

// Ticket is a place in the queue for a session.
type Ticket struct {
	locks *Locks
	key   string
	n     uint64
	path  string
	file  *os.File
	held  uint64 // how many had it before; valid once it is the ticket's
	once  sync.Once
}

// Lock waits until a session is free or ctx ends. The key is that of
// [Token.Key]. The session is the caller's until it releases the ticket.
func (l *Locks) Lock(ctx context.Context, key string) (*Ticket, error) {
	k, err := l.Queue(key, "")
	if err != nil {
		return nil, err
	}
	if err := k.Wait(ctx, nil); err != nil {
		k.Release()
		return nil, err
	}
	return k, nil
}

// Queue takes a place in the queue for a session, by its [Token.Key]. The ticket
// must be released, whether it was waited for or not. Those who wait behind it
// learn the run.
func (l *Locks) Queue(session, run string) (*Ticket, error) {
	k := &Ticket{locks: l, key: fileName(session)}
	err := l.gated(func() error {
		tickets, err := l.tickets(k.key)
		if err != nil {
			return err
		}
		k.n = 1
		if len(tickets) > 0 {
			k.n = tickets[len(tickets)-1] + 1
		}
		k.path = l.path(k.key, k.n)
		k.file, err = os.OpenFile(k.path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if err != nil {
			return err
		}
		note, err := json.Marshal(Holder{Pid: os.Getpid(), Run: run, Since: time.Now().UTC()})
		if err == nil {
			_, err = k.file.Write(note)
		}
		if err == nil {
			_, err = flock.TryLock(k.file)
		}
		if err != nil {
			_ = k.file.Close()
			_ = os.Remove(k.path)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("queue for session %s: %w", session, err)
	}
	return k, nil
}

// Wait returns once the ticket has the session. If it has to wait, it calls
// waits first, with the holder of the session.
func (k *Ticket) Wait(ctx context.Context, waits func(Holder)) error {
	for first := true; ; first = false {
		wake := k.locks.changed(k.key)
		holder, mine, err := k.turn()
		if err != nil {
			return fmt.Errorf("wait for session: %w", err)
		}
		if mine {
			return nil
		}
		if first && waits != nil {
			waits(holder)
		}
		poll := time.NewTimer(lockPoll)
		select {
		case <-ctx.Done():
			poll.Stop()
			return context.Cause(ctx)
		case <-wake:
		case <-poll.C:
		}
		poll.Stop()
	}
}

// turn reports whether the ticket has the session, and who has it if not.
func (k *Ticket) turn() (holder Holder, mine bool, err error) {
	err = k.locks.gated(func() error {
		tickets, err := k.locks.tickets(k.key)
		if err != nil {
			return err
		}
		for _, n := range tickets {
			if n >= k.n {
				break
			}
			var live bool
			if holder, live, err = k.locks.look(k.key, n); err != nil || live {
				return err
			}
		}
		mine = true
		k.held, err = k.locks.count(k.key)
		return err
	})
	return holder, mine, err
}

// Stamp counts the tickets that held the session before. A process that lives
// on from turn to turn does not know what others said in between: if the stamp
// shows that another run held the session, the process has to be started anew.
func (k *Ticket) Stamp() uint64 { return k.held }

// Contested reports whether another ticket waits behind this one. The ticket
// of a dead process counts too; an early release does no harm.
func (k *Ticket) Contested() bool {
	tickets, err := k.locks.tickets(k.key)
	return err == nil && len(tickets) > 0 && tickets[len(tickets)-1] > k.n
}

// count returns how many had the session before, and counts one more. The first
// number is one that was never used: a count that was lost must not look like
// the one before.
func (l *Locks) count(key string) (uint64, error) {
	name := filepath.Join(l.dir, countDir, key)
	b, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, err
	}
	n, err := strconv.ParseUint(string(b), 10, 64)
	if err != nil {
		n = uint64(time.Now().UnixNano())
	}
	return n, os.WriteFile(name, strconv.AppendUint(nil, n+1, 10), 0o600)
}

// sweep removes the counts of sessions that were not used since.
func (l *Locks) sweep(before time.Time) error {
	return l.gated(func() error {
		entries, err := os.ReadDir(filepath.Join(l.dir, countDir))
		for _, e := range entries {
			if info, statErr := e.Info(); statErr == nil && info.ModTime().Before(before) {
				err = errors.Join(err, os.Remove(filepath.Join(l.dir, countDir, e.Name())))
			}
		}
		return err
	})
}

// Release gives the ticket back. It may be called more than once.
func (k *Ticket) Release() {
	k.once.Do(func() {
		// The name goes first, so that no waiter takes it for a ticket
		// that was left behind. A child between fork and exec may still have the
		// file open, so closing it is not enough to unlock it.
		_ = os.Remove(k.path)
		_ = flock.Unlock(k.file)
		_ = k.file.Close()
		k.locks.mu.Lock()
		defer k.locks.mu.Unlock()
		if c, ok := k.locks.wake[k.key]; ok {
			close(c)
			delete(k.locks.wake, k.key)
		}
	})
}

// Holder returns who has a session now, if it is locked.
func (l *Locks) Holder(session string) (holder Holder, held bool, err error) {
	key := fileName(session)
	err = l.gated(func() error {
		tickets, err := l.tickets(key)
		for _, n := range tickets {
			if holder, held, err = l.look(key, n); err != nil || held {
				break
			}
		}
		return err
	})
	return holder, held, err
}

// fileName is what the files of a conversation are called.
func fileName(session string) string {
	sum := sha256.Sum256([]byte(session))
	return hex.EncodeToString(sum[:16])
}

// look says whether a ticket is locked, and removes it if it is not. Callers
// have the gate: a ticket is never seen before its owner has locked it.
func (l *Locks) look(key string, n uint64) (holder Holder, live bool, err error) {
	f, err := os.Open(l.path(key, n))
	if errors.Is(err, os.ErrNotExist) { // given back just now
		return holder, false, nil
	}
	if err != nil {
		return holder, false, err
	}
	defer f.Close()
	free, err := flock.TryShare(f)
	if err != nil {
		return holder, false, err
	}
	if free { // left behind, or given back since we opened it
		err := os.Remove(f.Name())
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		return holder, false, err
	}
	// The note is for people. If it cannot be read, the holder is unknown.
	note, _ := io.ReadAll(io.LimitReader(f, maxLockNote))
	_ = json.Unmarshal(note, &holder)
	return holder, true, nil
}

// changed returns a channel that is closed when a ticket of this process for
// the key is given back.
func (l *Locks) changed(key string) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, ok := l.wake[key]
	if !ok {
		c = make(chan struct{})
		l.wake[key] = c
	}
	return c
}

// gated runs f while no other process looks at tickets. That takes no longer
// than reading a directory.
func (l *Locks) gated(f func() error) error {
	gate, err := os.OpenFile(filepath.Join(l.dir, "gate"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer gate.Close()
	if err := flock.Lock(gate); err != nil {
		return err
	}
	return errors.Join(f(), flock.Unlock(gate))
}

// tickets returns the numbers of the tickets for a key, in order.
func (l *Locks) tickets(key string) ([]uint64, error) {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return nil, err
	}
	var list []uint64
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name(), key+".")
		if !ok {
			continue
		}
		if n, err := strconv.ParseUint(digits, 10, 64); err == nil {
			list = append(list, n)
		}
	}
	slices.Sort(list)
	return list, nil
}

func (l *Locks) path(key string, n uint64) string {
	return filepath.Join(l.dir, key+"."+strconv.FormatUint(n, 10))
}
