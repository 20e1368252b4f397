package vfs

import (
	"errors"
	"slices"
	"sync"
)

// Server answers the file calls of one guest, which runs in a process of its
// own: the workers of package wasipy send them with a [Client], the processes
// of package pyodide with JavaScript. A guest may send any bytes.
type Server struct {
	fs  FS
	max int

	mu     sync.Mutex
	files  map[uint32]File
	next   uint32
	closed bool
}

// NewServer returns a server of a file system for a guest that may have
// maxFiles files open at once.
func NewServer(fsys FS, maxFiles int) *Server {
	return &Server{fs: fsys, max: maxFiles, files: make(map[uint32]File)}
}

// Close closes the files that the guest left open, but not the file system.
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

// ErrMalformed means that a request is not of the form that file calls have.
// Clients do not send such requests, so a guest that does has been subverted
// and should be ended.
var ErrMalformed = errors.New("malformed file call")

// Call answers a request and appends the answer to dst. The error is nil or
// [ErrMalformed], for which there is no answer. Call is safe for concurrent
// use.
func (s *Server) Call(dst, request []byte) ([]byte, error) {
	if len(request) > MaxMessage {
		return dst, ErrMalformed
	}
	start := len(dst)
	dst = append(dst, 0, 0)
	out, err := s.call(dst, &reader{b: request})
	switch err { //nolint:errorlint // it comes from call, unwrapped
	case nil:
		return out, nil
	case ErrMalformed:
		return dst[:start], err
	}
	le.PutUint16(dst[start:], uint16(ErrnoOf(err)))
	return dst[:start+2], nil
}

func (s *Server) call(dst []byte, r *reader) ([]byte, error) {
	op := r.u8()
	switch {
	case op > OpClose:
		return dst, ErrMalformed
	case op >= OpFstat:
		return s.fileCall(dst, op, r)
	}
	var err error
	switch op {
	case OpStat:
		follow, path := r.u8() != 0, r.str()
		if r.bad {
			return dst, ErrMalformed
		}
		info, err := s.fs.Stat(path, follow)
		return appendInfo(dst, info), err
	case OpOpen:
		return s.open(dst, r)
	case OpReadDir:
		path := r.str()
		if r.bad {
			return dst, ErrMalformed
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
			return dst, ErrMalformed
		}
		target, err := s.fs.Readlink(path)
		return append(dst, target...), err
	case OpMkdir, OpChmod, OpCreate:
		perm, path := Mode(r.u32()), r.str()
		switch {
		case r.bad:
			err = ErrMalformed
		case op == OpMkdir:
			err = s.fs.Mkdir(path, perm)
		case op == OpChmod:
			err = s.fs.Chmod(path, perm)
		default:
			err = s.create(path, perm)
		}
	case OpResize:
		size, path := r.offset(), r.str()
		if r.bad {
			return dst, ErrMalformed
		}
		err = s.resize(path, size)
	case OpUnlink, OpRmdir:
		path := r.str()
		switch {
		case r.bad:
			err = ErrMalformed
		case op == OpUnlink:
			err = s.fs.Unlink(path)
		default:
			err = s.fs.Rmdir(path)
		}
	case OpRename, OpSymlink:
		from, to := r.str(), r.str()
		switch {
		case r.bad:
			err = ErrMalformed
		case op == OpRename:
			err = s.fs.Rename(from, to)
		default:
			err = s.fs.Symlink(from, to)
		}
	case OpChtimes:
		atime, mtime, path := int64(r.u64()), int64(r.u64()), r.str()
		if r.bad {
			return dst, ErrMalformed
		}
		err = s.fs.Chtimes(path, atime, mtime)
	default:
		err = ErrMalformed
	}
	return dst, err
}

// create makes an empty file. It fails if the guest could not open the file.
func (s *Server) create(path string, perm Mode) error {
	handle, err := s.reserve()
	if err != nil {
		return err
	}
	defer s.release(handle)
	f, err := s.fs.Open(path, Write|Create|Exclusive, perm)
	if err != nil {
		return err
	}
	return f.Close()
}

// resize changes the size of a file that the guest has not opened. It fails if
// the guest could not open the file.
func (s *Server) resize(path string, size int64) error {
	handle, err := s.reserve()
	if err != nil {
		return err
	}
	defer s.release(handle)
	f, err := s.fs.Open(path, Write, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(size), f.Close())
}

func (s *Server) open(dst []byte, r *reader) ([]byte, error) {
	flags, perm, path := Flags(r.u16()), Mode(r.u32()), r.str()
	if r.bad {
		return dst, ErrMalformed
	}
	// The handle is reserved before the file is opened: a refused call must
	// not have made or emptied a file.
	handle, err := s.reserve()
	if err != nil {
		return dst, err
	}
	f, err := s.fs.Open(path, flags, perm)
	if err != nil {
		s.release(handle)
		return dst, err
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return dst, errors.Join(EBADF, f.Close())
	}
	s.files[handle] = f
	s.mu.Unlock()
	return le.AppendUint32(dst, handle), nil
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
		return dst, ErrMalformed
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
			return dst, ErrMalformed
		}
		start := len(dst)
		dst = slices.Grow(dst, n)[:start+n]
		n, err := f.ReadAt(dst[start:], off)
		return dst[:start+n], err
	case OpWrite:
		off, p := r.offset(), r.rest()
		if r.bad || len(p) > MaxIO {
			return dst, ErrMalformed
		}
		n, err := f.WriteAt(p, off)
		return le.AppendUint32(dst, uint32(n)), err
	case OpAppend:
		p := r.rest()
		if len(p) > MaxIO {
			return dst, ErrMalformed
		}
		n, end, err := f.Append(p)
		return le.AppendUint64(le.AppendUint32(dst, uint32(n)), uint64(end)), err
	case OpTruncate:
		size := r.offset()
		if r.bad {
			return dst, ErrMalformed
		}
		return dst, f.Truncate(size)
	case OpSync:
		return dst, f.Sync()
	case OpClose:
		return dst, f.Close()
	}
	return dst, ErrMalformed
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
