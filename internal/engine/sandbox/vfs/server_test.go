package vfs

import (
	"bytes"
	"errors"
	"testing"
)

func newClient(files int) (*Client, *Server) {
	server := NewServer(NewTree(NewMemory(NewQuota(1<<22, 100))), files)
	return NewClient(func(request []byte) ([]byte, error) { return server.Call(nil, request), nil }), server
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

// FuzzServer sends anything. A server answers each message, and always with an
// errno that has a name.
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
			answer := server.Call([]byte("kept"), message[:n])
			message = message[n:]
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
