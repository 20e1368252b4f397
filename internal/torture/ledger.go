package torture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/flock"
)

// A ledger is a shared page in which a worker counts its records after writing
// them. The page survives the worker, however it ends. The first word is the
// pid of the leader; each producer has a line of words: whether it began, then
// the number of records on each stream.
type ledger struct {
	page []byte
	file *os.File // locked by workers to write in turn; may be nil
}

const (
	ledgerSize = 4096
	ledgerLine = 64
)

// createLedger creates an empty ledger for a new worker.
func createLedger(path string) (*ledger, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o666)
	if err != nil {
		return nil, fmt.Errorf("create ledger: %w", err)
	}
	defer f.Close()
	if err := f.Truncate(ledgerSize); err != nil {
		return nil, fmt.Errorf("create ledger: %w", err)
	}
	return mapLedger(f)
}

// openLedger opens the ledger of a worker. It returns nil if the path is empty.
func openLedger(path string) (*ledger, error) {
	if path == "" {
		return &ledger{page: make([]byte, ledgerSize)}, nil
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	l, err := mapLedger(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	l.file = f
	return l, nil
}

func mapLedger(f *os.File) (*ledger, error) {
	page, err := unix.Mmap(int(f.Fd()), 0, ledgerSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map ledger: %w", err)
	}
	return &ledger{page: page}, nil
}

func (l *ledger) close() {
	_ = unix.Munmap(l.page) // fails only for memory that is not mapped
}

func (l *ledger) word(i int) []byte { return l.page[i : i+8] }

func (l *ledger) pid() int       { return int(binary.LittleEndian.Uint64(l.word(0))) }
func (l *ledger) setPid(pid int) { binary.LittleEndian.PutUint64(l.word(0), uint64(pid)) }

func (l *ledger) begun(producer uint8) bool {
	return binary.LittleEndian.Uint64(l.word(ledgerLine*(int(producer)+1))) != 0
}

func (l *ledger) begin(producer uint8) {
	binary.LittleEndian.PutUint64(l.word(ledgerLine*(int(producer)+1)), 1)
}

func (l *ledger) written(producer, stream uint8) uint32 {
	return uint32(binary.LittleEndian.Uint64(l.word(ledgerLine*(int(producer)+1) + 8*(int(stream)+1))))
}

func (l *ledger) wrote(producer, stream uint8, number uint32) {
	binary.LittleEndian.PutUint64(l.word(ledgerLine*(int(producer)+1)+8*(int(stream)+1)), uint64(number))
}

// lock excludes the other producers from writing until unlock, or until this
// process dies.
func (l *ledger) lock() error {
	if l.file == nil {
		return nil
	}
	return flock.Lock(l.file)
}

func (l *ledger) unlock() error {
	if l.file == nil {
		return nil
	}
	return flock.Unlock(l.file)
}
