package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/blockfile"
	"github.com/spool-run/spool/internal/eventlog"
	"github.com/spool-run/spool/internal/failpoint"
	"github.com/spool-run/spool/internal/record"
)

// Journal is the durable log of one run: the [eventlog.Tier] of its log. One
// owner appends; any number of readers read at the same time. While it can be
// appended to, it holds one file open, and none otherwise.
type Journal struct {
	store    *Store
	id       spool.RunID
	readOnly bool

	// writeMu serializes writers. It is held during a write and comes
	// before mu; readers never take it.
	writeMu sync.Mutex
	tail    tail
	scratch []byte    // a record's header, and its payload if that is small
	vec     [3][]byte // the parts of one write
	torn    bool      // a failed write left bytes after tail.off
	ending  bool      // the end of the log is being written, and may use the reserve
	closed  bool

	mu      sync.Mutex
	segs    []*segment // in order; never changed in place
	last    spool.Seq
	bytes   int64
	info    spool.Info
	sealed  bool
	final   bool       // last is the last event, in a journal that was opened for reading
	bad     error      // why a read-only journal cannot be read after last
	file    *os.File   // being appended to; changed under writeMu and mu
	dirty   bool       // file was written to since it was synced
	retired []*os.File // to be synced and closed
	syncErr error      // of a sync in the background; returned to the next writer
}

var _ eventlog.Tier = (*Journal)(nil)

// smallPayload is the size up to which copying a payload is cheaper than
// writing it as a part of its own.
const smallPayload = 2 << 10

// Append writes an event, whose seq must follow the last one. Once it has
// returned nil, the death of this process cannot lose the event. After an error
// the journal is unchanged and Append may be tried again.
func (j *Journal) Append(e *spool.Event) error {
	j.writeMu.Lock()
	defer j.writeMu.Unlock()
	if err := j.writable(); err != nil {
		return fmt.Errorf("append to run %s: %w", j.id, err)
	}
	if e.Seq != j.tail.next {
		return fmt.Errorf("append to run %s: seq %d, want %d", j.id, e.Seq, j.tail.next)
	}
	j.ending = j.ending || e.Kind == spool.KindExited || e.Kind == spool.KindFailed || e.Kind == spool.KindClosed
	if err := j.mayUseRoom(); err != nil {
		return fmt.Errorf("append to run %s: %w", j.id, err)
	}
	size := int64(record.HeaderSize + e.Size())
	if j.tail.events && j.tail.off+size > j.store.segmentBytes {
		// Go on with a larger segment: the run must not end because
		// there is no descriptor or file left.
		_ = j.begin()
	}
	head, err := record.AppendHeader(j.scratch[:0], e)
	if err != nil {
		return fmt.Errorf("append to run %s: %w", j.id, err)
	}
	vec := j.vec[:1]
	if e.Size() <= smallPayload {
		head = append(append(head, e.Data...), e.Bytes...)
	} else {
		if len(e.Data) > 0 {
			vec = append(vec, e.Data)
		}
		if len(e.Bytes) > 0 {
			vec = append(vec, e.Bytes)
		}
	}
	vec[0] = head
	j.scratch = head
	if err = failpoint.Inject("store.append"); err == nil {
		err = j.write(vec, size)
	}
	clear(j.vec[:]) // keep no reference to the payload
	if err != nil {
		return fmt.Errorf("append to run %s: %w", j.id, err)
	}

	at := point{seq: e.Seq, off: j.tail.off}
	j.tail.off += size
	j.tail.count(e)
	j.mu.Lock()
	end := j.segs[len(j.segs)-1]
	end.size = j.tail.off
	end.index.add(at)
	j.last, j.bytes, j.dirty = e.Seq, j.tail.bytes, true
	j.mu.Unlock()
	return nil
}

// Note writes a new description of the run. It is not an event; the newest
// description counts. The journal fills in Last and Bytes.
func (j *Journal) Note(info spool.Info) error {
	j.writeMu.Lock()
	defer j.writeMu.Unlock()
	if err := j.describe(record.Between, info); err != nil {
		return fmt.Errorf("note run %s: %w", j.id, err)
	}
	return nil
}

// Seal writes the final description of the run, after its closed event. The run
// is complete then: nothing can be appended any more. The journal fills in Last
// and Bytes.
func (j *Journal) Seal(info spool.Info) error {
	j.writeMu.Lock()
	defer j.writeMu.Unlock()
	if err := failpoint.Inject("store.seal"); err != nil {
		return fmt.Errorf("seal run %s: %w", j.id, err)
	}
	j.ending = true
	if err := j.describe(record.AtEnd, info); err != nil {
		return fmt.Errorf("seal run %s: %w", j.id, err)
	}
	if err := j.retire(); err != nil {
		return fmt.Errorf("seal run %s: %w", j.id, err)
	}
	return nil
}

// Ending declares that the following events are the end of the log. They may use
// the reserve of a full disk; see [Store.KeepReserve]. Outcomes and the closed
// event may use it in any case.
func (j *Journal) Ending() {
	j.writeMu.Lock()
	j.ending = true
	j.writeMu.Unlock()
}

// mayUseRoom returns an error for an event that is not the end of a log while
// the reserve is not full: the free space is kept for the ends of logs. The
// caller holds writeMu.
func (j *Journal) mayUseRoom() error {
	if j.ending || !j.store.short.Load() {
		return nil
	}
	return j.store.KeepReserve()
}

// Discard removes the log of a run that did not start, and closes the journal.
func (j *Journal) Discard() error {
	j.mu.Lock()
	segs := j.segs
	j.mu.Unlock()
	var errs []error
	for _, seg := range segs {
		errs = append(errs, removeFile(seg.path))
	}
	if err := errors.Join(append(errs, j.Close())...); err != nil {
		return fmt.Errorf("discard run %s: %w", j.id, err)
	}
	return nil
}

// describe writes a description. The caller holds writeMu.
func (j *Journal) describe(place record.Place, info spool.Info) error {
	if err := j.writable(); err != nil {
		return err
	}
	if info.ID != j.id {
		return fmt.Errorf("%w: description of run %q", spool.ErrInvalid, info.ID)
	}
	info = cloneInfo(info, j.tail.info)
	info.Last, info.Bytes = j.tail.next-1, j.tail.bytes
	buf, err := record.AppendDescription(nil, place, j.tail.salt, j.store.now(), &info)
	if err != nil {
		return err
	}
	final := 0
	if place == record.AtEnd {
		final = len(buf)
		buf = appendFooter(buf, final, j.tail.salt)
	}
	if err := j.write([][]byte{buf}, int64(len(buf))); err != nil {
		return err
	}
	j.tail.off += int64(len(buf))
	j.tail.info, j.tail.final, j.tail.sealed = info, final, final > 0
	j.publish()
	return nil
}

// writable returns an error if the journal cannot be written to. The caller
// holds writeMu.
func (j *Journal) writable() error {
	switch {
	case j.closed:
		return fs.ErrClosed
	case j.tail.sealed:
		return eventlog.ErrSealed
	case j.readOnly:
		return ErrReadOnly
	}
	j.mu.Lock()
	err := j.syncErr
	j.syncErr = nil
	j.mu.Unlock()
	return err
}

// publish makes the tail visible to readers. The caller holds writeMu.
func (j *Journal) publish() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.segs[len(j.segs)-1].size = j.tail.off
	j.last, j.bytes = j.tail.next-1, j.tail.bytes
	j.info, j.sealed = j.tail.info, j.tail.sealed
	j.dirty = true
}

// write writes the parts, of total bytes, at the tail without moving it: readers
// do not see them yet. After an error it removes them from the file. The caller
// holds writeMu.
func (j *Journal) write(vec [][]byte, total int64) error {
	if j.torn {
		if err := j.file.Truncate(j.tail.off); err != nil {
			return err
		}
		j.torn = false
	}
	var again [3][]byte // a write removes from vec what it has written
	n := copy(again[:], vec)
	err := writeAll(j.file, vec, j.tail.off, total)
	for isFull(err) && j.ending && j.store.spend() {
		copy(vec[:n], again[:n])
		err = writeAll(j.file, vec[:n], j.tail.off, total)
	}
	if err == nil {
		err = failpoint.Inject("store.written")
	}
	if err == nil && j.store.policy == SyncAlways {
		err = j.store.fsync(j.file)
	}
	if err != nil {
		// The next record would overwrite these bytes, but it may be
		// shorter, or never come.
		j.torn = j.file.Truncate(j.tail.off) != nil
		var failed *fs.PathError
		if errors.As(err, &failed) { // it may name the file by an earlier name
			j.mu.Lock()
			failed.Path = j.segs[len(j.segs)-1].path
			j.mu.Unlock()
		}
		return err
	}
	return nil
}

// writeAll writes the parts at off, with one system call unless the kernel
// writes less than asked.
func writeAll(f *os.File, vec [][]byte, off, total int64) error {
	for {
		n, err := writevAt(f, vec, off)
		n = max(n, 0)
		off, total = off+int64(n), total-int64(n)
		switch {
		case total == 0:
			return nil
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return &fs.PathError{Op: "write", Path: f.Name(), Err: err}
		case n == 0:
			return &fs.PathError{Op: "write", Path: f.Name(), Err: io.ErrShortWrite}
		}
		for n > 0 && n >= len(vec[0]) {
			n -= len(vec[0])
			vec = vec[1:]
		}
		vec[0] = vec[0][n:]
	}
}

// begin creates the segment of the next event, with the newest description at
// its head, so that the last segment always has it. If it fails, the journal
// continues with the present segment. The caller holds writeMu or has the only
// reference to the journal.
func (j *Journal) begin() error {
	if err := failpoint.Inject("store.begin"); err != nil {
		return err
	}
	seg := newSegment(j.store.runsDir(), j.id, j.tail.next)
	if j.file == nil {
		return j.beginFirst(seg)
	}
	f, err := makeFile(seg.path, os.O_TRUNC)
	if err != nil {
		return err
	}
	if err := j.beginIn(f, seg); err != nil {
		return errors.Join(err, f.Close(), os.Remove(seg.path))
	}
	return nil
}

// beginFirst creates the first segment, which gets its name once it has its head:
// so a run that exists names its owner, even if that dies at once.
func (j *Journal) beginFirst(seg *segment) error {
	if f, ok := j.store.spares.TakeFill(); ok {
		err := j.beginIn(f, seg)
		if err == nil {
			return nil
		}
		err = errors.Join(err, drop(f))
		if !errors.Is(err, fs.ErrNotExist) { // otherwise it was swept meanwhile
			return err
		}
	}
	f, err := j.store.makeFirst(j.id)
	if err != nil {
		return err
	}
	if err := j.beginIn(f, seg); err != nil {
		return errors.Join(err, drop(f))
	}
	return nil
}

// beginIn makes an empty file, which may still have a temporary name, the
// segment that is appended to.
func (j *Journal) beginIn(f *os.File, seg *segment) error {
	t := tail{next: j.tail.next, salt: newSalt(), info: j.tail.info, bytes: j.tail.bytes}
	t.info.Last, t.info.Bytes = t.next-1, t.bytes
	buf, err := record.AppendDescription([]byte(segmentMagic), record.AtHead, t.salt, j.store.now(), &t.info)
	if err != nil {
		return err
	}
	t.off = int64(len(buf))
	if err := writeAll(f, [][]byte{buf}, 0, t.off); err != nil {
		return err
	}
	if err := failpoint.Inject("store.begun"); err != nil {
		return err
	}
	if f.Name() != seg.path {
		if err := renameNew(f.Name(), seg.path); err != nil {
			return err
		}
		// In this order: a run of that id may be filed at this moment.
		if err := checkNotFiled(seg.path); err != nil {
			return errors.Join(err, os.Rename(seg.path, f.Name()))
		}
	}
	if err := j.store.syncBegun(f); err != nil {
		return err
	}
	err = j.retire()
	j.tail, j.torn = t, false
	j.mu.Lock()
	j.file = f
	j.segs = append(j.segs[:len(j.segs):len(j.segs)], seg)
	if err != nil { // the error of the old file; the new one is usable
		j.syncErr = err
	}
	j.mu.Unlock()
	j.publish()
	return nil
}

// retire stops appending to the present file. The caller holds writeMu.
func (j *Journal) retire() error {
	j.mu.Lock()
	f := j.file
	j.file, j.dirty = nil, false
	if f != nil && j.store.policy == SyncInterval {
		// Sync it later: the writer would have to wait for a whole segment.
		j.retired = append(j.retired, f)
		f = nil
	}
	j.mu.Unlock()
	if f == nil {
		return nil
	}
	return f.Close()
}

// Last returns the seq of the last event on disk, and whether the run is
// complete.
func (j *Journal) Last() (seq spool.Seq, sealed bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.last, j.sealed
}

// Info returns the newest description of the run, with the present Last and
// Bytes. The caller must not change its slices and maps.
func (j *Journal) Info() spool.Info {
	j.mu.Lock()
	defer j.mu.Unlock()
	info := j.info
	info.Last, info.Bytes = j.last, j.bytes
	return info
}

// Refresh reads what the owner of the run has written since the journal was
// opened for reading or last refreshed. For the owner it does nothing.
func (j *Journal) Refresh() error {
	j.writeMu.Lock()
	defer j.writeMu.Unlock()
	if !j.readOnly || j.tail.sealed {
		return nil
	}
	err := j.refresh()
	j.mu.Lock()
	j.bad = err
	j.mu.Unlock()
	return err
}

func (j *Journal) refresh() error {
	for {
		j.mu.Lock()
		seg := j.segs[len(j.segs)-1]
		j.mu.Unlock()
		if err := j.refreshSegment(seg); err != nil {
			return err
		}
		if j.tail.sealed || j.tail.off == 0 {
			return nil
		}
		// The owner creates a segment with its first event: if the one
		// after our last event exists, this segment is complete.
		next := newSegment(j.store.runsDir(), j.id, j.tail.next)
		if next.first == seg.first {
			return nil
		}
		if _, err := statSegment(next.path); errors.Is(err, fs.ErrNotExist) {
			return nil
		} else if err != nil {
			return fmt.Errorf("refresh run %s: %w", j.id, err)
		}
		before := j.tail
		j.tail = tail{next: next.first, info: before.info, bytes: before.bytes}
		err := j.refreshSegment(next)
		if j.tail.off == 0 { // the segment has no head yet
			j.tail = before
			return err
		}
		if err != nil {
			return err
		}
	}
}

// refreshSegment updates the tail from a segment, and makes it the last one.
func (j *Journal) refreshSegment(seg *segment) error {
	f, err := openSegment(seg.path)
	if err != nil {
		return openFault(err, "refresh", j.id, seg.path)
	}
	defer f.Close()
	size, _, err := f.sizes()
	if err != nil {
		return fmt.Errorf("refresh run %s: %w", j.id, err)
	}
	if j.tail.off > 0 || !j.tail.readFinal(f, size, j.id) {
		err = j.tail.scan(f, size, j.id, func(p point) {
			j.mu.Lock()
			seg.index.add(p)
			j.mu.Unlock()
		})
		if err != nil {
			err = fault(err, j.id, seg.path, j.tail.off)
		}
	}
	j.mu.Lock()
	if j.segs[len(j.segs)-1] != seg {
		if j.tail.off == 0 {
			j.mu.Unlock()
			return err
		}
		j.segs = append(j.segs[:len(j.segs):len(j.segs)], seg)
	}
	j.mu.Unlock()
	j.publish()
	return err
}

// fault returns the error that stopped a scan, or nil if the record may still be
// being written.
func fault(err error, id spool.RunID, path string, off int64) error {
	var failed *fs.PathError
	switch {
	case errors.Is(err, errTorn):
		return nil
	case errors.As(err, &failed):
		return fmt.Errorf("read run %s: %w", id, err)
	}
	return &CorruptError{Run: id, File: path, Offset: off, Err: err}
}

// openFault returns the error of opening a segment.
func openFault(err error, doing string, id spool.RunID, path string) error {
	if errors.Is(err, blockfile.ErrDamaged) {
		return &CorruptError{Run: id, File: path, Err: err}
	}
	return fmt.Errorf("%s run %s: %w", doing, id, err)
}

// Close closes the journal's file, after a sync if the policy asks for it.
func (j *Journal) Close() error {
	j.writeMu.Lock()
	defer j.writeMu.Unlock()
	if j.closed {
		return nil
	}
	j.closed = true
	j.store.unregister(j)
	errs := []error{j.retire(), j.sync()}
	j.mu.Lock()
	errs = append(errs, j.syncErr)
	j.syncErr = nil
	j.mu.Unlock()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close run %s: %w", j.id, err)
	}
	return nil
}
