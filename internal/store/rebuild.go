package store

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/blockfile"
	"github.com/spool-run/spool/internal/record"
	"github.com/spool-run/spool/internal/store/index"
)

// eachFiled calls add with every filed run, several at a time. It reads the runs of
// several directories at once, of more than there are processors: some wait for the
// disk.
func (s *Store) eachFiled(ctx context.Context, add func([]index.Entry) error) error {
	shards, err := s.shards()
	if err != nil {
		return err
	}
	unfiled := newNames() // which tell what is hidden
	if err := unfiled.read(s.runsDir(), ""); err != nil {
		return err
	}
	next := make(chan string)
	errs := make([]error, 2*runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			r := newShardReader(s, unfiled.hidden)
			for dir := range next {
				entries, err := r.read(dir)
				if err == nil && errs[i] == nil {
					err = add(entries)
				}
				errs[i] = cmp.Or(errs[i], err)
			}
		})
	}
	for _, dir := range shards {
		if ctx.Err() != nil {
			break
		}
		next <- dir
	}
	close(next)
	wg.Wait()
	return errors.Join(append(errs, ctx.Err())...)
}

// shardReader reads what the index has of the runs in subdirectories, one after
// another. A million runs are read in seconds: for most, that is one file, opened and
// read once, and the few fields of its final description.
type shardReader struct {
	s      *Store
	hidden map[spool.RunID]bool
	file   shardFile
	end    [finalRead]byte
	brief  record.Brief
	window window // of a segment whose events are read
	terms  []index.Term
	seen   map[spool.Digest]bool
}

func newShardReader(s *Store, hidden map[spool.RunID]bool) *shardReader {
	return &shardReader{s: s, hidden: hidden, seen: make(map[spool.Digest]bool), file: shardFile{user: os.Geteuid()}}
}

// onlySegment ends the name of a run's file, if it has one.
var onlySegment = strings.Repeat("0", seqDigits-1) + "1" + segmentExt

// read returns what the index has of the runs in a subdirectory.
func (r *shardReader) read(dir string) ([]index.Entry, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	files, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	slices.Sort(files) // the files of one run follow each other
	entries := make([]index.Entry, 0, len(files))
	others := newNames()
	maps.Copy(others.hidden, r.hidden)
	for i := 0; i < len(files); {
		id, ext, _ := strings.Cut(files[i], ".")
		n := 1
		for i+n < len(files) && len(files[i+n]) > len(id) && files[i+n][:len(id)] == id && files[i+n][len(id)] == '.' {
			n++
		}
		var e index.Entry
		ok := n == 1 && ext == onlySegment && !r.hidden[spool.RunID(id)] && spool.RunID(id).Check() == nil
		if ok {
			e, ok = r.entry(d, files[i], id)
		}
		if ok {
			entries = append(entries, e)
		} else {
			for _, name := range files[i : i+n] {
				others.add(dir, name, "")
			}
		}
		i += n
	}
	others.finish()
	for id, segs := range others.runs {
		if e, ok := r.s.filedEntry(id, segs, others.renamed[id]); ok {
			entries = append(entries, e)
		}
	}
	return entries, nil
}

// filedEntry returns what the index has of any filed run. It reports false for one that
// was removed meanwhile.
func (s *Store) filedEntry(id spool.RunID, segs []*segment, renamed bool) (index.Entry, bool) {
	r := summarize(id, segs)
	if errors.Is(r.err, fs.ErrNotExist) {
		return index.Entry{}, false
	}
	// One that is corrupt is in the index, too: reading it tells the error.
	if r.info.Created.IsZero() {
		r.info.Created = r.wrote
	}
	if renamed {
		s.renamed(&r.info)
	}
	return entryOf(&r, s.blobTerms(&r), renamed), true
}

// The terms that every run has, but for their last part.
var (
	nameTerm    = index.NewTerm(termName)
	engineTerm  = index.NewTerm(termEngine)
	outcomeTerm = index.NewTerm(termOutcome)
	withLabel   = index.NewTerm(termHasLabel)
	valueTerm   = index.NewTerm(termLabel)
)

// entry is filedEntry for a run with one file, of which it is asked for nothing rare. It
// reports false for others.
func (r *shardReader) entry(dir *os.File, name, id string) (e index.Entry, ok bool) {
	f := &r.file
	if !f.open(int(dir.Fd()), name) {
		return e, false
	}
	defer f.close()
	data, _, _, ok := finalData(f, f.size, r.end[:])
	b := &r.brief
	if !ok || !b.Decode(data) || string(b.ID) != id || b.Created.IsZero() || b.Ended.IsZero() {
		return e, false
	}
	r.terms = r.terms[len(r.terms):] // the entries before have the others
	if cap(r.terms) < 2*len(b.Labels)+4 {
		r.terms = make([]index.Term, 0, max(4096, 2*len(b.Labels)+4))
	}
	if string(b.Engine) != spool.EngineProcess && !r.addBlobs() {
		return e, false
	}
	r.terms = append(r.terms, engineTerm.Extend(b.Engine))
	if len(b.Name) > 0 {
		r.terms = append(r.terms, nameTerm.Extend(b.Name))
	}
	if b.Outcome != nil {
		r.terms = append(r.terms, outcomeTerm.Extend(b.Outcome))
	}
	for _, l := range b.Labels {
		if string(l.Name) == LabelImported { // which tells when it ages
			return e, false
		}
		r.terms = append(r.terms, withLabel.Extend(l.Name))
		if len(l.Value) > 0 {
			r.terms = append(r.terms, valueTerm.Extend(l.Name).Extend(l.Value))
		}
	}
	e = index.Entry{
		ID: id, Created: b.Created.UnixNano(), Ended: b.Ended.UnixNano(), Bytes: f.size, Raw: f.size,
		Name: string(b.Name), Terms: r.terms[:len(r.terms):len(r.terms)],
	}
	if b.Workspace {
		e.Flags |= index.Workspace
	}
	return e, true
}

// addBlobs adds the terms of the blobs to which the events in the file refer.
func (r *shardReader) addBlobs() bool {
	clear(r.seen)
	r.window = window{f: &r.file, size: r.file.size, step: indexStep, buf: r.window.buf[:0]}
	if scanRecords(&r.window, func(data []byte) { EachDigest(data, func(d spool.Digest) { r.seen[d] = true }) }) != nil {
		return false
	}
	r.terms = digestTerms(r.terms, r.seen)
	return true
}

// shardFile is a file of a directory that is open, of which the beginning has been
// read. It is used again for the next one.
type shardFile struct {
	user  int // who must own it
	fd    int
	size  int64
	begin []byte
	buf   [finalRead]byte
}

// open opens a file that is not compressed. It reports false for other files, and for
// one that cannot be read or that another user could change: opening it in another way
// tells why.
func (f *shardFile) open(dir int, name string) bool {
	var err error
	if f.fd, err = ignoringEINTR(func() (int, error) {
		return unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}); err != nil {
		return false
	}
	var st unix.Stat_t
	n, err := ignoringEINTR(func() (int, error) { return unix.Pread(f.fd, f.buf[:], 0) })
	if err == nil {
		err = unix.Fstat(f.fd, &st)
	}
	f.begin, f.size = f.buf[:max(n, 0)], st.Size
	compressed := n >= len(blockfile.Magic) && string(f.begin[:len(blockfile.Magic)]) != segmentMagic
	if err != nil || compressed || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o022 != 0 || int(st.Uid) != f.user {
		f.close()
		return false
	}
	return true
}

func (f *shardFile) close() { _ = unix.Close(f.fd) } // it was only read

// ReadAt implements [io.ReaderAt].
func (f *shardFile) ReadAt(p []byte, off int64) (int, error) {
	if off >= 0 && off+int64(len(p)) <= int64(len(f.begin)) {
		return copy(p, f.begin[off:]), nil
	}
	for done := 0; ; {
		n, err := ignoringEINTR(func() (int, error) { return unix.Pread(f.fd, p[done:], off+int64(done)) })
		done += max(n, 0)
		switch {
		case err != nil || done == len(p):
			return done, err
		case n == 0:
			return done, io.EOF
		}
	}
}

func ignoringEINTR(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); err != unix.EINTR {
			return n, err
		}
	}
}
