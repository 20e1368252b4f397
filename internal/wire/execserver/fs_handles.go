package execserver

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"syscall"

	"github.com/spool-run/spool/internal/wire/rpc"
)

// Limits of file handles.
const (
	maxHandles  = 128     // per connection
	maxHandleID = 32      // bytes
	maxBlock    = 1 << 20 // bytes per read or write
)

// fileHandle is an open file of a connection.
type fileHandle struct {
	file *os.File // nil until it is open; guarded by files.mu
}

func (h *fileHandle) close() {
	if h.file != nil {
		_ = h.file.Close() // each write has reported its own error
	}
}

func unknownHandle(id string) error {
	return rpc.Errorf(codeNotFound, "unknown file handle `%s`", id)
}

func (f *files) open(_ context.Context, params json.RawMessage) (any, error) {
	var p struct {
		pathParams
		HandleID string  `json:"handleId"`
		Mode     *string `json:"mode"`
	}
	if err := decode(params, &p, "handleId", "path"); err != nil {
		return nil, err
	}
	flags := os.O_RDONLY
	if p.Mode != nil {
		switch *p.Mode {
		case "read":
		case "replace":
			flags = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
		default:
			return nil, unknownVariant(*p.Mode, "`read` or `replace`")
		}
	}
	t, path, err := f.resolve(&p.pathParams, flags != os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	h, err := f.reserve(p.HandleID)
	if err != nil {
		return nil, err
	}
	file, err := openIn(t, path, flags)
	if err != nil {
		f.drop(p.HandleID, h)
		return nil, err
	}
	f.mu.Lock()
	kept := f.handles[p.HandleID] == h
	if kept {
		h.file = file
	}
	f.mu.Unlock()
	if !kept { // closed during the open
		_ = file.Close()
		return nil, unknownHandle(p.HandleID)
	}
	return struct {
		HandleID string `json:"handleId"`
	}{p.HandleID}, nil
}

// openRegular opens a file for a handle, without waiting for the other end of
// a pipe.
func openRegular(path string, flags int) (*os.File, error) { return openIn(host{}, path, flags) }

func openIn(t tree, path string, flags int) (*os.File, error) {
	file, err := t.open(path, flags|syscall.O_NONBLOCK, 0o666, followLinks)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = notAFile(path)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// reserve reserves the id before the file is opened, so that the limits apply
// before a file is created.
func (f *files) reserve(id string) (*fileHandle, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch _, taken := f.handles[id]; {
	case f.closed:
		return nil, os.ErrClosed
	case len(id) > maxHandleID:
		return nil, rpc.Errorf(rpc.CodeInvalidRequest, "file handle ID must not exceed %d bytes", maxHandleID)
	case taken:
		return nil, rpc.Errorf(rpc.CodeInvalidRequest, "file handle `%s` already exists", id)
	case len(f.handles) >= maxHandles:
		return nil, rpc.Errorf(rpc.CodeInvalidRequest, "at most %d file handles may be open per connection", maxHandles)
	}
	h := new(fileHandle)
	f.handles[id] = h
	return h, nil
}

// lookup returns the file of a handle.
func (f *files) lookup(id string) (*fileHandle, *os.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.handles[id]
	if h == nil || h.file == nil {
		return nil, nil, unknownHandle(id)
	}
	return h, h.file, nil
}

// drop closes a handle, unless its id belongs to another handle now.
func (f *files) drop(id string, h *fileHandle) {
	f.mu.Lock()
	if f.handles[id] == h {
		delete(f.handles, id)
	}
	f.mu.Unlock()
	h.close()
}

func (f *files) closeHandle(_ context.Context, params json.RawMessage) (any, error) {
	var p struct {
		HandleID string `json:"handleId"`
	}
	if err := decode(params, &p, "handleId"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	h := f.handles[p.HandleID]
	delete(f.handles, p.HandleID)
	f.mu.Unlock()
	if h != nil {
		h.close()
	}
	return noResult{}, nil
}

func (f *files) readBlock(ctx context.Context, params json.RawMessage) (any, error) {
	var p struct {
		HandleID string `json:"handleId"`
		Offset   uint64 `json:"offset"`
		Len      uint64 `json:"len"`
	}
	if err := decode(params, &p, "handleId", "offset", "len"); err != nil {
		return nil, err
	}
	if p.Len < 1 || p.Len > maxBlock {
		return nil, rpc.Errorf(rpc.CodeInvalidRequest, "file read block length must be between 1 and %d", maxBlock)
	}
	h, file, err := f.lookup(p.HandleID)
	if err != nil {
		return nil, err
	}
	return f.large(ctx, int64(p.Len), func() (any, error) {
		buf := make([]byte, p.Len)
		n, err := 0, error(syscall.EINVAL)
		if p.Offset <= math.MaxInt64 {
			n, err = file.ReadAt(buf, int64(p.Offset))
		}
		switch {
		case errors.Is(err, os.ErrClosed):
			return nil, unknownHandle(p.HandleID)
		case err != nil && err != io.EOF:
			f.drop(p.HandleID, h)
			return nil, err
		}
		return struct {
			Chunk []byte `json:"chunk"`
			EOF   bool   `json:"eof"`
		}{buf[:n], n < len(buf)}, nil
	})
}

func (f *files) writeBlock(_ context.Context, params json.RawMessage) (any, error) {
	var p struct {
		HandleID string `json:"handleId"`
		Offset   uint64 `json:"offset"`
		Chunk    string `json:"chunk"`
	}
	if err := decode(params, &p, "handleId", "offset", "chunk"); err != nil {
		return nil, err
	}
	chunk, err := decodeBase64(p.Chunk)
	if err != nil {
		return nil, rpc.Errorf(rpc.CodeInvalidParams, "%s", err)
	}
	switch {
	case len(chunk) < 1 || len(chunk) > maxBlock:
		return nil, rpc.Errorf(rpc.CodeInvalidRequest, "file write block length must be between 1 and %d", maxBlock)
	case p.Offset > math.MaxInt64-uint64(len(chunk)):
		return nil, rpc.Errorf(rpc.CodeInvalidRequest, "file write range exceeds the signed 64-bit file offset limit")
	}
	_, file, err := f.lookup(p.HandleID)
	if err != nil {
		return nil, err
	}
	if _, err := file.WriteAt(chunk, int64(p.Offset)); err != nil {
		if errors.Is(err, os.ErrClosed) {
			err = unknownHandle(p.HandleID)
		}
		return nil, err
	}
	return noResult{}, nil
}
