package vfs

import (
	"bytes"
	"errors"
	"testing"
)

func newClient(files int) (*Client, *Server) {
	server := NewServer(NewTree(NewMemory(NewQuota(1<<22, 100))), files)
	return NewClient(func(request []byte) ([]byte, error) { return server.Call(nil, request) }), server
}

func TestServerBoundsOpenFiles(t *testing.T) {
	client, server := newClient(2)
	a, err := client.Open("/a", Write|Create, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Open("/b", Write|Create, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Open("/c", Write|Create, 0o644); !errors.Is(err, EMFILE) {
		t.Errorf("a third file: %v, want EMFILE", err)
	}
	if _, err := client.Stat("/c", true); !errors.Is(err, ENOENT) {
		t.Errorf("what could not be opened was made: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if err := a.Close(); !errors.Is(err, EBADF) {
		t.Errorf("close again: %v, want EBADF", err)
	}
	if _, err := client.Open("/c", Write|Create, 0o644); err != nil {
		t.Error(err)
	}
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	if _, err := client.Open("/c", Read, 0); !errors.Is(err, EBADF) {
		t.Errorf("open at a closed server: %v, want EBADF", err)
	}
}

// TestServerCreatesAndResizesByPath makes the two calls that have no method of
// FS.
func TestServerCreatesAndResizesByPath(t *testing.T) {
	client, server := newClient(1)
	defer server.Close()
	call := func(request []byte) Errno {
		t.Helper()
		answer, err := server.Call(nil, request)
		if err != nil || len(answer) != 2 {
			t.Fatalf("answer %q, %v", answer, err)
		}
		return Errno(le.Uint16(answer))
	}
	create := func(path string) Errno {
		return call(appendStr(le.AppendUint32([]byte{OpCreate}, 0o600), path))
	}
	resize := func(path string, size uint64) Errno {
		return call(appendStr(le.AppendUint64([]byte{OpResize}, size), path))
	}
	if e := create("/f"); e != 0 {
		t.Errorf("create: %v", e)
	}
	if e := create("/f"); e != EEXIST {
		t.Errorf("create again: %v, want EEXIST", e)
	}
	if e := resize("/f", 7); e != 0 {
		t.Errorf("resize: %v", e)
	}
	if e := resize("/none", 7); e != ENOENT {
		t.Errorf("resize no file: %v, want ENOENT", e)
	}
	if info, err := client.Stat("/f", true); err != nil || info.Size != 7 || info.Mode != TypeFile|0o600 {
		t.Errorf("the file is %+v, %v", info, err)
	}
	if _, err := client.Open("/f", Read, 0); err != nil {
		t.Fatal(err)
	}
	if e := create("/g"); e != EMFILE {
		t.Errorf("create with too many open files: %v, want EMFILE", e)
	}
	if _, err := client.Stat("/g", true); !errors.Is(err, ENOENT) {
		t.Errorf("a refused create made the file: %v", err)
	}
	if e := resize("/f", 0); e != EMFILE {
		t.Errorf("resize with too many open files: %v, want EMFILE", e)
	}
	if info, err := client.Stat("/f", true); err != nil || info.Size != 7 {
		t.Errorf("a refused resize left %+v, %v", info, err)
	}
}

// TestServerRefusesMalformedRequests sends what no client sends.
func TestServerRefusesMalformedRequests(t *testing.T) {
	client, server := newClient(1)
	defer server.Close()
	if _, err := client.Open("/f", Write|Create, 0o644); err != nil { // handle 1
		t.Fatal(err)
	}
	for name, request := range map[string][]byte{
		"empty":                {},
		"no operation":         {0},
		"an unknown operation": {OpClose + 1, 2, 0, 0, 0}, // also without an open file
		"a path cut off":       {OpStat, 0, 255, 255, 255, 255, '/'},
		"one path of two":      {OpRename, 1, 0, 0, 0, '/'},
		"no handle":            {OpFstat, 1, 0},
		"an offset that is -1": append([]byte{OpWrite, 1, 0, 0, 0}, bytes.Repeat([]byte{255}, 8)...),
		"a write too large":    append([]byte{OpWrite, 1, 0, 0, 0}, make([]byte, 8+MaxIO+1)...),
		"an append too large":  append([]byte{OpAppend, 1, 0, 0, 0}, make([]byte, MaxIO+1)...),
		"a message too large":  appendStr([]byte{OpUnlink}, string(make([]byte, MaxMessage))),
		"a size that is -1":    append([]byte{OpTruncate, 1, 0, 0, 0}, bytes.Repeat([]byte{255}, 8)...),
		"a size cut off":       {OpResize, 1, 0, 0, 0, '/'},
	} {
		if answer, err := server.Call([]byte("kept"), request); !errors.Is(err, ErrMalformed) || string(answer) != "kept" {
			t.Errorf("%s: answer %q, %v, want ErrMalformed", name, answer, err)
		}
	}
	if err := client.Unlink("/" + string(bytes.Repeat([]byte("x"), MaxMessage))); !errors.Is(err, ENAMETOOLONG) {
		t.Errorf("a client of a path too large: %v, want ENAMETOOLONG", err)
	}
}

func TestClientMovesMoreThanOneMessageHolds(t *testing.T) {
	client, server := newClient(4)
	defer server.Close()
	f, err := client.Open("/f", Read|Write|Create, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	want := bytes.Repeat([]byte("0123456789abcdef"), 3*MaxIO/16/2)
	if n, err := f.WriteAt(want, 0); n != len(want) || err != nil {
		t.Fatalf("wrote %d of %d, %v", n, len(want), err)
	}
	if n, end, err := f.Append(want); n != len(want) || end != int64(2*len(want)) || err != nil {
		t.Fatalf("appended %d of %d, to %d, %v", n, len(want), end, err)
	}
	got := make([]byte, 3*len(want))
	n, err := f.ReadAt(got, 0)
	if err != nil || !bytes.Equal(got[:n], append(want, want...)) {
		t.Errorf("read %d bytes, %v, not what was written", n, err)
	}
	if n, err := f.WriteAt(make([]byte, 4<<20), int64(2*len(want))); err != nil || n != 1<<22-2*len(want) {
		t.Errorf("up to the quota %d bytes fit, %v", n, err)
	}
}

// FuzzServer sends any bytes. The server refuses a message as malformed, or
// answers it with an errno that has a name.
func FuzzServer(f *testing.F) {
	f.Add([]byte{OpStat, 1, 1, 0, 0, 0, '/'})
	f.Add([]byte{OpOpen, 7, 0, 0, 0, 0, 0, 2, 0, 0, 0, '/', 'a'})
	f.Add([]byte{OpRead, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255})
	f.Add([]byte{OpWrite, 1, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 127, 1})
	f.Add([]byte{OpTruncate, 1, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255})
	f.Add([]byte{OpReadDir, 1, 0, 0, 0, '/'})
	f.Fuzz(func(t *testing.T, message []byte) {
		client, server := newClient(8)
		defer server.Close()
		if _, err := client.Open("/f", Read|Write|Create, 0o644); err != nil {
			t.Fatal(err)
		}
		for len(message) > 0 {
			n := min(len(message), 1+int(message[0])%64)
			answer, err := server.Call([]byte("kept"), message[:n])
			message = message[n:]
			if err != nil {
				if !errors.Is(err, ErrMalformed) || string(answer) != "kept" {
					t.Fatalf("answer %q, %v", answer, err)
				}
				continue
			}
			if !bytes.HasPrefix(answer, []byte("kept")) || len(answer) < 6 {
				t.Fatalf("answer %q", answer)
			}
			if e := Errno(le.Uint16(answer[4:])); e != 0 && errnos[e].name == "" {
				t.Fatalf("errno %d has no name", e)
			}
		}
	})
}

// FuzzClient has a server answer anything. A client takes it for an error.
func FuzzClient(f *testing.F) {
	f.Add([]byte{0, 0})
	f.Add([]byte{0, 0, 255, 255, 255, 255, 1, 2, 3})
	f.Fuzz(func(t *testing.T, answer []byte) {
		client := NewClient(func([]byte) ([]byte, error) { return answer, nil })
		_, _ = client.Stat("/", true)
		_, _ = client.ReadDir("/")
		_, _ = client.Readlink("/")
		if file, err := client.Open("/", Read, 0); err == nil {
			_, _ = file.Stat()
			_ = file.Truncate(1)
			_ = file.Close()
		}
	})
}

// FuzzPaths resolves any path in a tree full of links, and checks that the
// answer is the one of component by component.
func FuzzPaths(f *testing.F) {
	f.Add("/a/b", "/c", "../a")
	f.Add("/l/../../..", "l", "/")
	f.Fuzz(func(t *testing.T, path, link, target string) {
		tree := NewTree(NewMemory(NewQuota(1<<20, 50)))
		_ = tree.MkdirAll("/a/b")
		_ = tree.Symlink(target, "/a/l")
		_ = tree.Symlink(target, link)
		_ = tree.Mkdir(path, 0o755)
		_ = tree.WriteFile(path, []byte("x"), 0o644)
		_ = tree.Rename(path, "/a/moved")
		info, err := tree.Stat(path, true)
		if err == nil && info.Mode.IsSymlink() {
			t.Fatalf("%q is still a link", path)
		}
		var errno Errno
		if err != nil && !errors.As(err, &errno) {
			t.Fatalf("stat %q: %v is no errno", path, err)
		}
	})
}
