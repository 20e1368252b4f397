package pyodide

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"path/filepath"
	"testing"

	"github.com/spool-run/spool/internal/engine/sandbox/vfs"
)

// appendTestFrame appends a frame as an interpreter sends it.
func appendTestFrame(b []byte, o op, payload string) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	return append(append(b, byte(o), 0, 0, 0), payload...)
}

// FuzzFrames checks that a stream is divided into its frames without adding or
// losing a byte, that a frame that is cut is an error, and that each file call
// has one reply.
func FuzzFrames(f *testing.F) {
	stat := string([]byte{vfs.OpStat, 1, 1, 0, 0, 0, '/'})
	f.Add(appendTestFrame(appendTestFrame(appendTestFrame(nil, opStdout, "hi\n"), opFile, stat), opDone, `{"exit_code":0}`))
	f.Add(appendTestFrame(nil, opAsk, "\x05\x00\x00\x00tool.{}")[:9])
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0})
	f.Add(appendTestFrame(nil, opFile, string([]byte{vfs.OpRead, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255})))
	f.Fuzz(func(t *testing.T, stream []byte) {
		server := vfs.NewServer(vfs.NewTree(vfs.NewMemory(vfs.NewQuota(1<<20, 50))), 8)
		defer server.Close()
		var sent bytes.Buffer
		out := newReplies(&sent)
		in := newFrames(bytes.NewReader(stream))
		size := 0
		for {
			fr, err := in.next()
			if err != nil {
				if errors.Is(err, io.EOF) != (size == len(stream)) {
					t.Fatalf("%v after %d of %d bytes", err, size, len(stream))
				}
				return
			}
			if !bytes.Equal(fr.payload, stream[size+frameHeader:size+frameHeader+len(fr.payload)]) {
				t.Fatalf("frame at %d has the payload %x", size, fr.payload)
			}
			size += frameHeader + len(fr.payload)
			if fr.op != opFile {
				continue
			}
			sent.Reset()
			if err := out.file(server, fr.payload); err != nil {
				if !errors.Is(err, ErrProtocol) || sent.Len() > 0 {
					t.Fatalf("%v, and %d bytes were sent", err, sent.Len())
				}
				return
			}
			if n := binary.LittleEndian.Uint32(sent.Bytes()); int(n) != sent.Len()-replyHeader {
				t.Fatalf("a reply of %d bytes says that it has %d", sent.Len()-replyHeader, n)
			}
		}
	})
}

// FuzzLock checks that a lock file of any bytes is refused or read, and that
// the files of packages are below the directory of packages once they are
// copied.
func FuzzLock(f *testing.F) {
	f.Add([]byte(`{"info":{"python":"3.13.2","abi_version":"2025_0"},"packages":{"numpy":{"name":"numpy","version":"2.2.5","file_name":"numpy-2.2.5.whl","sha256":"00","depends":["Lib_Blas"],"imports":["numpy"]},"lib-blas":{"name":"lib-blas","file_name":"../blas.whl","depends":["numpy"]}}}`))
	f.Add([]byte(`{"info":{},"packages":[]}`))
	f.Add([]byte(`{"packages":[1]}`))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := parseLock(b)
		if err != nil {
			return
		}
		for name := range l.packages {
			if normalise(name) != name {
				t.Errorf("package %q has another name: %q", name, normalise(name))
			}
			list, err := l.resolve([]string{name})
			if err != nil {
				continue
			}
			for _, p := range list {
				plain := p.FileName != "" && p.FileName != "." && p.FileName != ".." && filepath.Base(p.FileName) == p.FileName
				if err := copyWheel(dir, p, nil); err == nil || plain == bytes.Contains([]byte(err.Error()), []byte("no plain file")) {
					t.Errorf("package %q: %v", p.FileName, err)
				}
			}
		}
	})
}
