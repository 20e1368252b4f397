package vfs

import (
	"errors"
	"slices"
	"sync"
)

// Server answers the file calls of one guest in another process. What it is
// sent may be anything.
type Server struct {
	fs  FS
	max int

	mu     sync.Mutex
	files  map[uint32]File
	next   uint32
	closed bool
}

// NewServer returns a server of a file system, with at most so many files open
// at once.
func NewServer(fsys FS, files int) *Server {
	return &Server{fs: fsys, max: files, files: make(map[uint32]File)}
}

// Close closes what the guest left open. The file system stays.
func (s *Server) Close() error {
	s.mu.Lock()
	files := s.files
	s.files, s.closed = nil, true
	s.mu.Unlock()
	var errs []error
	for _, f := range files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// Call answers a request and appends the answer to dst. Calls may come at the
// same time.
func (s *Server) Call(dst, request []byte) []byte {
	start := len(dst)
	dst = append(dst, 0, 0)
	out, err := s.call(dst, &reader{b: request})
	if err != nil {
		le.PutUint16(dst[start:], uint16(ErrnoOf(err)))
		return dst[:start+2]
	}
	return out
}

func (s *Server) call(dst []byte, r *reader) ([]byte, error) {
	op := r.u8()
	if op >= OpFstat {
		return s.fileCall(dst, op, r)
	}
	var err error
	switch op {
	case OpStat:
		follow, path := r.u8() != 0, r.str()
		if r.bad {
			return dst, EINVAL
		}
		info, err := s.fs.Stat(path, follow)
		return appendInfo(dst, info), err
	case OpOpen:
		return s.open(dst, r)
	case OpReadDir:
		path := r.str()
		if r.bad {
			return dst, EINVAL
		}
		entries, err := s.fs.ReadDir(path)
		dst = le.AppendUint32(dst, uint32(len(entries)))
		for _, e := range entries {
			dst = le.AppendUint64(dst, e.Ino)
			dst = le.AppendUint32(dst, uint32(e.Type))
			dst = appendStr(dst, e.Name)
		}
		return dst, err
	case OpReadlink:
		path := r.str()
		if r.bad {
			return dst, EINVAL
		}
		target, err := s.fs.Readlink(path)
		return append(dst, target...), err
	case OpMkdir, OpChmod:
		perm, path := Mode(r.u32()), r.str()
		switch {
		case r.bad:
			err = EINVAL
		case op == OpMkdir:
			err = s.fs.Mkdir(path, perm)
		default:
			err = s.fs.Chmod(path, perm)
		}
	case OpUnlink, OpRmdir:
		path := r.str()
		switch {
		case r.bad:
			err = EINVAL
		case op == OpUnlink:
			err = s.fs.Unlink(path)
		default:
			err = s.fs.Rmdir(path)
		}
	case OpRename, OpSymlink:
		from, to := r.str(), r.str()
		switch {
		case r.bad:
			err = EINVAL
		case op == OpRename:
			err = s.fs.Rename(from, to)
		default:
			err = s.fs.Symlink(from, to)
		}
	case OpChtimes:
		atime, mtime, path := int64(r.u64()), int64(r.u64()), r.str()
		if r.bad {
			return dst, EINVAL
		}
		err = s.fs.Chtimes(path, atime, mtime)
	default:
		err = ENOSYS
	}
	return dst, err
}

func (s *Server) open(dst []byte, r *reader) ([]byte, error) {
	flags, perm, path := Flags(r.u16()), Mode(r.u32()), r.str()
	if r.bad {
		return dst, EINVAL
	}
	// The place is taken before the file is opened: a refusal must not have
	// made or emptied one.
	handle, err := s.reserve()
	if err != nil {
		return dst, err
	}
	f, err := s.fs.Open(path, flags, perm)
	if err != nil {
		s.release(handle)
		return dst, err
	}
	info, err := f.Stat()
	s.mu.Lock()
	if err == nil && !s.closed {
		s.files[handle] = f
		s.mu.Unlock()
		return appendInfo(le.AppendUint32(dst, handle), info), nil
	}
	delete(s.files, handle)
	s.mu.Unlock()
	if err == nil {
		err = EBADF
	}
	return dst, errors.Join(ErrnoOf(err), f.Close())
}

func (s *Server) reserve() (uint32, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return 0, EBADF
	case len(s.files) >= s.max:
		return 0, EMFILE
	}
	for {
		s.next++
		if _, taken := s.files[s.next]; !taken {
			s.files[s.next] = reserved{}
			return s.next, nil
		}
	}
}

func (s *Server) release(handle uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.files, handle)
}

func (s *Server) fileCall(dst []byte, op byte, r *reader) ([]byte, error) {
	handle := r.u32()
	s.mu.Lock()
	f, ok := s.files[handle]
	if op == OpClose && ok {
		delete(s.files, handle)
	}
	s.mu.Unlock()
	switch {
	case r.bad:
		return dst, EINVAL
	case !ok:
		return dst, EBADF
	}
	switch op {
	case OpFstat:
		info, err := f.Stat()
		return appendInfo(dst, info), err
	case OpRead:
		off, n := r.offset(), int(min(r.u32(), MaxIO))
		if r.bad {
			return dst, EINVAL
		}
		start := len(dst)
		dst = slices.Grow(dst, n)[:start+n]
		n, err := f.ReadAt(dst[start:], off)
		return dst[:start+n], err
	case OpWrite:
		off, p := r.offset(), r.rest()
		if r.bad || len(p) > MaxIO {
			return dst, EINVAL
		}
		n, err := f.WriteAt(p, off)
		return le.AppendUint32(dst, uint32(n)), err
	case OpAppend:
		p := r.rest()
		if len(p) > MaxIO {
			return dst, EINVAL
		}
		n, end, err := f.Append(p)
		return le.AppendUint64(le.AppendUint32(dst, uint32(n)), uint64(end)), err
	case OpTruncate:
		size := r.offset()
		if r.bad {
			return dst, EINVAL
		}
		return dst, f.Truncate(size)
	case OpSync:
		return dst, f.Sync()
	case OpClose:
		return dst, f.Close()
	}
	return dst, ENOSYS
}

// reserved holds the place of a file that is being opened.
type reserved struct{}

func (reserved) Stat() (Info, error)                { return Info{}, EBADF }
func (reserved) ReadAt([]byte, int64) (int, error)  { return 0, EBADF }
func (reserved) WriteAt([]byte, int64) (int, error) { return 0, EBADF }
func (reserved) Append([]byte) (int, int64, error)  { return 0, 0, EBADF }
func (reserved) Truncate(int64) error               { return EBADF }
func (reserved) Sync() error                        { return EBADF }
func (reserved) Close() error                       { return EBADF }
