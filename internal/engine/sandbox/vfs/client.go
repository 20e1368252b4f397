package vfs

import "fmt"

// Client is a file system in another process: it speaks to a [Server].
type Client struct {
	call func(request []byte) ([]byte, error)
}

var _ FS = (*Client)(nil)

// NewClient returns a client whose calls are carried by a function. It is
// called at the same time by those who use the client at the same time; the
// answer it returns is its caller's.
func NewClient(call func(request []byte) ([]byte, error)) *Client { return &Client{call} }

// do makes a call and returns what is behind the errno.
func (c *Client) do(request []byte) (*reader, error) {
	if len(request) > MaxMessage { // reads and writes are divided: it is a path
		return nil, ENAMETOOLONG
	}
	answer, err := c.call(request)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", EIO, err)
	}
	r := &reader{b: answer}
	errno := Errno(r.u16())
	switch {
	case r.bad:
		return nil, EIO
	case errno != 0:
		return nil, errno
	}
	return r, nil
}

func (c *Client) none(request []byte) error {
	_, err := c.do(request)
	return err
}

// Stat implements [FS].
func (c *Client) Stat(path string, follow bool) (Info, error) {
	b := byte(0)
	if follow {
		b = 1
	}
	return c.info(appendStr([]byte{OpStat, b}, path))
}

func (c *Client) info(request []byte) (Info, error) {
	r, err := c.do(request)
	if err != nil {
		return Info{}, err
	}
	info := r.info()
	if r.bad {
		return Info{}, EIO
	}
	return info, nil
}

// Open implements [FS].
func (c *Client) Open(path string, flags Flags, perm Mode) (File, error) {
	req := le.AppendUint16([]byte{OpOpen}, uint16(flags))
	r, err := c.do(appendStr(le.AppendUint32(req, uint32(perm)), path))
	if err != nil {
		return nil, err
	}
	handle := r.u32()
	if r.bad {
		return nil, EIO
	}
	return &clientFile{c, handle}, nil
}

// ReadDir implements [FS].
func (c *Client) ReadDir(path string) ([]Entry, error) {
	r, err := c.do(appendStr([]byte{OpReadDir}, path))
	if err != nil {
		return nil, err
	}
	n := r.u32()
	var entries []Entry
	for range n {
		e := Entry{Ino: r.u64(), Type: Mode(r.u32()), Name: r.str()}
		if r.bad {
			return nil, EIO
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// Mkdir implements [FS].
func (c *Client) Mkdir(path string, perm Mode) error {
	return c.none(appendStr(le.AppendUint32([]byte{OpMkdir}, uint32(perm)), path))
}

// Unlink implements [FS].
func (c *Client) Unlink(path string) error { return c.none(appendStr([]byte{OpUnlink}, path)) }

// Rmdir implements [FS].
func (c *Client) Rmdir(path string) error { return c.none(appendStr([]byte{OpRmdir}, path)) }

// Rename implements [FS].
func (c *Client) Rename(from, to string) error {
	return c.none(appendStr(appendStr([]byte{OpRename}, from), to))
}

// Symlink implements [FS].
func (c *Client) Symlink(target, path string) error {
	return c.none(appendStr(appendStr([]byte{OpSymlink}, target), path))
}

// Readlink implements [FS].
func (c *Client) Readlink(path string) (string, error) {
	r, err := c.do(appendStr([]byte{OpReadlink}, path))
	if err != nil {
		return "", err
	}
	return string(r.rest()), nil
}

// Chmod implements [FS].
func (c *Client) Chmod(path string, perm Mode) error {
	return c.none(appendStr(le.AppendUint32([]byte{OpChmod}, uint32(perm)), path))
}

// Chtimes implements [FS].
func (c *Client) Chtimes(path string, atime, mtime int64) error {
	req := le.AppendUint64(le.AppendUint64([]byte{OpChtimes}, uint64(atime)), uint64(mtime))
	return c.none(appendStr(req, path))
}

// clientFile is an open file of a [Client].
type clientFile struct {
	c      *Client
	handle uint32
}

func (f *clientFile) request(op byte) []byte { return le.AppendUint32([]byte{op}, f.handle) }

func (f *clientFile) Stat() (Info, error) { return f.c.info(f.request(OpFstat)) }

func (f *clientFile) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, EINVAL
	}
	done := 0
	for done < len(p) {
		req := le.AppendUint64(f.request(OpRead), uint64(off)+uint64(done))
		r, err := f.c.do(le.AppendUint32(req, uint32(min(len(p)-done, MaxIO))))
		if err != nil {
			if done > 0 {
				break
			}
			return 0, err
		}
		n := copy(p[done:], r.rest())
		if n == 0 {
			break
		}
		done += n
	}
	return done, nil
}

func (f *clientFile) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, EINVAL
	}
	done := 0
	for {
		part := p[done:min(len(p), done+MaxIO)]
		req := le.AppendUint64(f.request(OpWrite), uint64(off)+uint64(done))
		r, err := f.c.do(append(req, part...))
		if err != nil {
			return done, partial(done, err)
		}
		n := int(r.u32())
		done += n
		if done >= len(p) || n < len(part) {
			return done, nil
		}
	}
}

func (f *clientFile) Append(p []byte) (int, int64, error) {
	done, end := 0, int64(0)
	for {
		part := p[done:min(len(p), done+MaxIO)]
		r, err := f.c.do(append(f.request(OpAppend), part...))
		if err != nil {
			return done, end, partial(done, err)
		}
		n := int(r.u32())
		end = int64(r.u64())
		done += n
		if done >= len(p) || n < len(part) {
			return done, end, nil
		}
	}
}

func (f *clientFile) Truncate(size int64) error {
	if size < 0 {
		return EINVAL
	}
	return f.c.none(le.AppendUint64(f.request(OpTruncate), uint64(size)))
}

func (f *clientFile) Sync() error  { return f.c.none(f.request(OpSync)) }
func (f *clientFile) Close() error { return f.c.none(f.request(OpClose)) }

// partial drops the error of a write of which some was done, as write(2) does.
func partial(n int, err error) error {
	if err == nil || n > 0 {
		return nil
	}
	return ErrnoOf(err)
}
