package vfs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// kernel is the file system of this machine below a directory: what the others
// must be like. Paths must not lead above their root.
type kernel struct{ root string }

func (k kernel) at(path string) string { return k.root + path }

func (k kernel) Stat(path string, follow bool) (Info, error) {
	var st unix.Stat_t
	flags := 0
	if !follow {
		flags = unix.AT_SYMLINK_NOFOLLOW
	}
	if err := unix.Fstatat(unix.AT_FDCWD, k.at(path), &st, flags); err != nil {
		return Info{}, err
	}
	return Info{Mode: Mode(st.Mode), Size: st.Size}, nil
}

func (k kernel) open(path string, flags Flags) (int, error) {
	mode := unix.O_RDWR | unix.O_CLOEXEC
	if flags&Write == 0 {
		mode = unix.O_RDONLY | unix.O_CLOEXEC
	}
	for ours, theirs := range map[Flags]int{
		Append: unix.O_APPEND, Create: unix.O_CREAT, Exclusive: unix.O_EXCL, Truncate: unix.O_TRUNC,
		Directory: unix.O_DIRECTORY, NoFollow: unix.O_NOFOLLOW,
	} {
		if flags&ours != 0 {
			mode |= theirs
		}
	}
	return unix.Open(k.at(path), mode, 0o644)
}

// op is one operation on two file systems.
type op struct {
	what string
	a, b string
	text string
	off  int64
	size int64
	flag Flags
}

func (o op) String() string {
	return fmt.Sprintf("%s(%q, %q, %q, off %d, size %d, flags %b)", o.what, o.a, o.b, o.text, o.off, o.size, o.flag)
}

// ours applies it to a file system of this package and returns the result.
func (o op) ours(fsys FS) (string, error) {
	switch o.what {
	case "mkdir":
		return "", fsys.Mkdir(o.a, 0o755)
	case "rmdir":
		return "", fsys.Rmdir(o.a)
	case "unlink":
		return "", fsys.Unlink(o.a)
	case "rename":
		return "", fsys.Rename(o.a, o.b)
	case "symlink":
		return "", fsys.Symlink(o.text, o.a)
	case "readlink":
		return fsys.Readlink(o.a)
	case "stat", "lstat":
		info, err := fsys.Stat(o.a, o.what == "stat")
		return describe(info), err
	case "readdir":
		entries, err := fsys.ReadDir(o.a)
		return names(entries), err
	}
	f, err := fsys.Open(o.a, o.flag, 0o644)
	if err != nil {
		return "", err
	}
	defer f.Close()
	switch o.what {
	case "write":
		if o.flag&Append != 0 {
			n, end, err := f.Append([]byte(o.text))
			return fmt.Sprint(n, end), err
		}
		n, err := f.WriteAt([]byte(o.text), o.off)
		return fmt.Sprint(n), err
	case "read":
		p := make([]byte, o.size)
		n, err := f.ReadAt(p, o.off)
		return string(p[:n]), err
	case "truncate":
		return "", f.Truncate(o.size)
	}
	info, err := f.Stat()
	return describe(info), err
}

// theirs does it to the kernel.
func (o op) theirs(k kernel) (string, error) {
	switch o.what {
	case "mkdir":
		return "", unix.Mkdir(k.at(o.a), 0o755)
	case "rmdir":
		return "", unix.Rmdir(k.at(o.a))
	case "unlink":
		return "", unix.Unlink(k.at(o.a))
	case "rename":
		return "", unix.Rename(k.at(o.a), k.at(o.b))
	case "symlink":
		return "", unix.Symlink(o.text, k.at(o.a))
	case "readlink":
		buf := make([]byte, MaxPath)
		n, err := unix.Readlink(k.at(o.a), buf)
		return string(buf[:max(0, n)]), err
	case "stat", "lstat":
		info, err := k.Stat(o.a, o.what == "stat")
		return describe(info), err
	case "readdir":
		fd, err := k.open(o.a, Read|Directory)
		if err != nil {
			return "", err
		}
		dir := os.NewFile(uintptr(fd), "")
		defer dir.Close()
		list, err := dir.Readdirnames(-1)
		entries := make([]Entry, len(list))
		for i, name := range list {
			entries[i].Name = name
		}
		sortEntries(entries)
		return names(entries), err
	}
	fd, err := k.open(o.a, o.flag)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	switch o.what {
	case "write":
		if o.flag&Append != 0 {
			n, err := unix.Write(fd, []byte(o.text))
			var st unix.Stat_t
			_ = unix.Fstat(fd, &st)
			return fmt.Sprint(n, st.Size), err
		}
		n, err := unix.Pwrite(fd, []byte(o.text), o.off)
		return fmt.Sprint(n), err
	case "read":
		p := make([]byte, o.size)
		n, err := unix.Pread(fd, p, o.off)
		return string(p[:max(0, n)]), err
	case "truncate":
		return "", unix.Ftruncate(fd, o.size)
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	return describe(Info{Mode: Mode(st.Mode), Size: st.Size}), err
}

func describe(i Info) string {
	if i.Mode.IsDir() {
		return "directory"
	}
	return fmt.Sprintf("%o %d", i.Mode&TypeMask, i.Size)
}

func names(entries []Entry) string {
	list := make([]string, len(entries))
	for i, e := range entries {
		list[i] = e.Name
	}
	return strings.Join(list, " ")
}

// drawPath draws a path that may hold dots and links, but never leads above
// the root of a [kernel].
func drawPath(t *rapid.T) string {
	parts := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "d", "."}), 1, 4).Draw(t, "parts")
	if rapid.IntRange(0, 5).Draw(t, "up") == 0 && len(parts) > 1 && parts[0] != "." {
		parts[1] = ".."
	}
	path := "/" + strings.Join(parts, "/")
	if rapid.IntRange(0, 9).Draw(t, "slash") == 0 {
		path += "/"
	}
	return path
}

func drawOp(t *rapid.T) op {
	o := op{
		what: rapid.SampledFrom([]string{
			"mkdir", "mkdir", "rmdir", "unlink", "rename", "symlink", "readlink", "stat", "lstat", "readdir",
			"write", "write", "write", "read", "truncate", "open",
		}).Draw(t, "what"),
		a: drawPath(t),
	}
	switch o.what {
	case "rename":
		o.b = drawPath(t)
	case "symlink":
		o.text = rapid.SampledFrom([]string{"a", "b", "c", "d", "a/b", "./c", "d/d/d", "nowhere"}).Draw(t, "target")
	case "write":
		o.text = rapid.StringN(1, 20, 20).Draw(t, "text")
		o.off = rapid.Int64Range(0, 30).Draw(t, "off")
		o.flag = Read | Write | rapid.SampledFrom([]Flags{0, Create, Create | Exclusive, Create | Truncate, Append, Create | Append, NoFollow}).Draw(t, "flags")
	case "read":
		o.off, o.size, o.flag = rapid.Int64Range(0, 30).Draw(t, "off"), rapid.Int64Range(1, 30).Draw(t, "size"), Read
	case "truncate":
		o.size, o.flag = rapid.Int64Range(0, 50).Draw(t, "size"), Read|Write
	case "open":
		o.flag = Read | rapid.SampledFrom([]Flags{0, Directory, NoFollow, Create | Exclusive, Directory | NoFollow}).Draw(t, "flags")
	}
	return o
}

// alike checks that a file system does what the kernel does, operation by
// operation, results and error numbers.
func alike(t *rapid.T, k kernel, fsys FS, skip func(op) bool) {
	for range rapid.IntRange(5, 40).Draw(t, "operations") {
		o := drawOp(t)
		if skip(o) {
			continue
		}
		want, wantErr := o.theirs(k)
		got, err := o.ours(fsys)
		if err != nil {
			if _, own := err.(Errno); !own {
				t.Fatalf("%v: the error %v (%T) is no Errno", o, err, err)
			}
		}
		if g, w := ErrnoOf(err), ErrnoOf(wantErr); g != w && !equivalent(o, g, w) {
			t.Fatalf("%v: got error %v, the kernel says %v", o, named(g), named(w))
		}
		if wantErr == nil && got != want {
			t.Fatalf("%v: got %q, the kernel says %q", o, got, want)
		}
	}
}

func named(e Errno) string {
	if e == 0 {
		return "none"
	}
	return e.Name()
}

// equivalent are differences that POSIX leaves to the implementation, in calls
// for which several errors hold at once.
func equivalent(o op, got, want Errno) bool {
	trailing := strings.HasSuffix(o.a, "/") || strings.HasSuffix(o.b, "/") || dotted(o.a) || dotted(o.b)
	return got != 0 && want != 0 && trailing
}

func dotted(path string) bool {
	return strings.HasSuffix(path, "/.") || strings.HasSuffix(path, "/..")
}

func never(op) bool { return false }

func TestMemoryDoesWhatTheKernelDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := kernel{tempDir(t)}
		alike(t, k, NewTree(NewMemory(nil)), never)
	})
}

func TestDirectoryDoesWhatTheKernelDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := OpenDir(tempDir(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		tree := NewTree(dir)
		defer tree.Close()
		alike(t, kernel{tempDir(t)}, tree, never)
	})
}

// TestOverlayDoesWhatTheKernelDoes also checks that the layer below stays as
// it was.
func TestOverlayDoesWhatTheKernelDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lower, k := tempDir(t), kernel{tempDir(t)}
		for range rapid.IntRange(0, 15).Draw(t, "before") {
			o := drawOp(t)
			if _, err := o.theirs(kernel{lower}); err == nil {
				_, _ = o.theirs(k)
			}
		}
		before := listing(t, lower)
		dir, err := OpenDir(lower, nil)
		if err != nil {
			t.Fatal(err)
		}
		tree := NewTree(NewOverlay(dir, nil))
		defer tree.Close()
		alike(t, k, tree, func(o op) bool { // which an overlay refuses
			info, err := k.Stat(o.a, false)
			return o.what == "rename" && err == nil && info.Mode.IsDir()
		})
		if after := listing(t, lower); after != before {
			t.Fatalf("the layer below was changed:\n%s\nwas\n%s", after, before)
		}
	})
}

// TestClientDoesWhatTheKernelDoes takes every call through the form in which
// it crosses processes.
func TestClientDoesWhatTheKernelDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		server := NewServer(NewTree(NewMemory(nil)), 4)
		client := NewClient(func(request []byte) ([]byte, error) { return server.Call(nil, request) })
		alike(t, kernel{tempDir(t)}, client, never)
		if err := server.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func tempDir(t *rapid.T) string {
	dir, err := os.MkdirTemp("", "vfs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func listing(t *rapid.T, root string) string {
	var b strings.Builder
	err := filepath.Walk(root, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		fmt.Fprintln(&b, path, info.Mode(), info.ModTime().UnixNano())
		if info.Mode().IsRegular() {
			content, err := os.ReadFile(path)
			fmt.Fprintf(&b, "%q\n", content)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}
