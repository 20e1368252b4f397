package execserver

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/spool-run/spool/internal/leaktest"
	"github.com/spool-run/spool/internal/wire/execserver/fileuri"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// fileTest is a file state, its directory, and its notifications.
type fileTest struct {
	*testing.T
	files *files
	dir   string
	notes chan string
}

// atOnce makes a large answer without waiting for room.
func atOnce(_ context.Context, _ int64, make func() (any, error)) (any, error) { return make() }

func newFileTest(t *testing.T) *fileTest {
	leaktest.Check(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ft := &fileTest{T: t, dir: dir, notes: make(chan string, 16)}
	ft.files = newFiles(func(method string, params any) {
		b, err := json.Marshal(params)
		if err != nil {
			t.Error(err)
		}
		ft.notes <- method + " " + string(b)
	}, atOnce)
	t.Cleanup(ft.files.close)
	return ft
}

// call sends a request. In the params, $D is the URI of the directory. The
// result is JSON, or "code message".
func (t *fileTest) call(method, params string) string {
	t.Helper()
	params = strings.ReplaceAll(params, "$D", fileuri.Format(t.dir))
	result, ok, err := t.files.handle(t.Context(), method, json.RawMessage(params))
	if !ok {
		t.Fatalf("%s is unknown", method)
	}
	return answerText(t.T, result, err)
}

// want sends a request and checks the answer; $P in it is the directory.
func (t *fileTest) want(method, params, want string) {
	t.Helper()
	want = strings.NewReplacer("$D", fileuri.Format(t.dir), "$P", t.dir).Replace(want)
	if got := t.call(method, params); got != want {
		t.Errorf("%s %s\n got %s\nwant %s", method, params, got, want)
	}
}

func answerText(t *testing.T, result any, err error) string {
	t.Helper()
	if err != nil {
		var e *rpc.Error
		if !errors.As(err, &e) {
			t.Fatalf("error %v is not a wire error", err)
		}
		return fmt.Sprintf("%d %s", e.Code, e.Message)
	}
	b, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func (t *fileTest) write(name, contents string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(t.dir, name), []byte(contents), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (t *fileTest) mkdir(name string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(t.dir, name), 0o755); err != nil {
		t.Fatal(err)
	}
}

func (t *fileTest) link(target, name string) {
	t.Helper()
	if err := os.Symlink(target, filepath.Join(t.dir, name)); err != nil {
		t.Fatal(err)
	}
}

func (t *fileTest) remove(name string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(t.dir, name)); err != nil {
		t.Fatal(err)
	}
}

func (t *fileTest) read(name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(t.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// populate makes a file f, a directory sub with a file s, links lf, ld, dang
// and loop, and a pipe.
func (t *fileTest) populate() {
	t.Helper()
	t.mkdir("sub/deep")
	t.write("f", "hi\n")
	t.write("sub/s", "s\n")
	t.link("f", "lf")
	t.link("sub", "ld")
	t.link("nowhere", "dang")
	t.link("loop", "loop")
	if err := syscall.Mkfifo(filepath.Join(t.dir, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
}

const (
	enoent  = "-32004 No such file or directory (os error 2)"
	enotdir = "-32603 Not a directory (os error 20)"
	eisdir  = "-32603 Is a directory (os error 21)"
	eexist  = "-32603 File exists (os error 17)"
	eloop   = "-32603 Symbolic link loop (os error 40)"
)

func TestFilesUnknownMethod(t *testing.T) {
	f := newFiles(nil, atOnce)
	defer f.close()
	if _, ok, err := f.handle(t.Context(), "fs/rename", nil); ok || err != nil {
		t.Errorf("fs/rename: %v, %v", ok, err)
	}
}

func TestReadFile(t *testing.T) {
	ft := newFileTest(t)
	ft.populate()
	for _, tt := range []struct{ params, want string }{
		{`{"path":"$D/f"}`, `{"dataBase64":"aGkK"}`},
		{`{"path":"$D/lf"}`, `{"dataBase64":"aGkK"}`},
		{`{"path":"$D/f","followSymlinks":null}`, `{"dataBase64":"aGkK"}`},
		{`{"path":"$D/f","followSymlinks":false}`, `{"dataBase64":"aGkK"}`},
		{`{"path":"$D/lf","followSymlinks":false}`, eloop},
		{`{"path":"$D/ld/s","followSymlinks":false}`, enotdir},
		{`{"path":"$D/none","followSymlinks":false}`, enoent},
		{`{"path":"$D/sub","followSymlinks":false}`, "-32600 path is not a regular file"},
		{`{"path":"$D/pipe","followSymlinks":false}`, "-32600 path is not a regular file"},
		{`{"path":"$D"}`, "-32600 path `$P` is not a file"},
		{`{"path":"$D/pipe"}`, "-32600 path `$P/pipe` is not a file"},
		{`{"path":"file:///dev/zero"}`, "-32600 path `/dev/zero` is not a file"},
		{`{"path":"$D/none"}`, enoent},
		{`{"path":"$D/f/x"}`, enotdir},
		{`{"path":"$D/loop"}`, eloop},
		{`{"path":"/tmp"}`, "-32602 invalid URI: relative URL without a base"},
		{`{"path":"file://other/tmp"}`, "-32600 'file://other/tmp' is invalid on 'linux'"},
		{`{"path":"$D/%00"}`, "-32602 '$D/%00' is invalid on 'linux'"},
		{`{}`, "-32602 missing field `path`"},
		{`null`, "-32602 invalid type: null, expected an object"},
		{`{"path":"$D/f","sandbox":{"permissions":{"type":"disabled"},"windowsSandboxLevel":"disabled"}}`, `{"dataBase64":"aGkK"}`},
	} {
		ft.want("fs/readFile", tt.params, tt.want)
	}
	if got := ft.call("fs/readFile", `{"path":"file:///proc/self/cmdline"}`); !strings.HasPrefix(got, `{"dataBase64":"`) || len(got) < 25 {
		t.Errorf("a file of /proc, which has no size: %s", got)
	}
	if got := ft.call("fs/readFile", `{"path":3}`); !strings.HasPrefix(got, "-32602 invalid type: number") {
		t.Error(got)
	}
}

func TestReadFileLimit(t *testing.T) {
	ft := newFileTest(t)
	ft.write("big", "")
	if err := os.Truncate(filepath.Join(ft.dir, "big"), maxReadFile+1); err != nil {
		t.Fatal(err)
	}
	ft.want("fs/readFile", `{"path":"$D/big"}`, "-32600 file is too large to read: limit is 536870912 bytes")

	// The limit also applies to a file that grows or reports no size.
	_, err := readAtMost(t.Context(), strings.NewReader("12345"), 0, 4)
	if err == nil {
		t.Error("no error above the limit")
	}
	b, err := readAtMost(t.Context(), strings.NewReader("1234"), 0, 4)
	if err != nil || string(b) != "1234" {
		t.Errorf("at the limit: %q, %v", b, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := readAtMost(ctx, strings.NewReader("1"), 1, 4); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

func TestWriteFile(t *testing.T) {
	ft := newFileTest(t)
	ft.populate()
	ft.write("w", "longer than before")
	for _, tt := range []struct{ params, want string }{
		{`{"path":"$D/w","dataBase64":"aGk="}`, `{}`},
		{`{"path":"$D/new","dataBase64":""}`, `{}`},
		{`{"path":"$D/n2","dataBase64":"aGk=","followSymlinks":false}`, `{}`},
		{`{"path":"$D/dang","dataBase64":"aGk="}`, `{}`},
		{`{"path":"file:///dev/null","dataBase64":"aGk="}`, `{}`},
		{`{"path":"file:///dev/full","dataBase64":"aGk="}`, "-32603 No space left on device (os error 28)"},
		{`{"path":"$D/w","dataBase64":"a!"}`, "-32600 fs/writeFile requires valid base64 dataBase64: Invalid symbol 33, offset 1."},
		{`{"path":"$D/w","dataBase64":"aGk"}`, "-32600 fs/writeFile requires valid base64 dataBase64: Invalid padding"},
		{`{"path":"$D/w","dataBase64":"aG\nk="}`, "-32600 fs/writeFile requires valid base64 dataBase64: Invalid symbol 10, offset 2."},
		{`{"path":"$D/w"}`, "-32602 missing field `dataBase64`"},
		{`{"path":"$D","dataBase64":""}`, eisdir},
		{`{"path":"$D/no/w","dataBase64":""}`, enoent},
		{`{"path":"$D/pipe","dataBase64":""}`, "-32603 No such device or address (os error 6)"},
		{`{"path":"$D/lf","dataBase64":"","followSymlinks":false}`, eloop},
		{`{"path":"$D/ld/n","dataBase64":"","followSymlinks":false}`, enotdir},
		{`{"path":"$D/sub","dataBase64":"","followSymlinks":false}`, eisdir},
		{`{"path":"$D/no/w","dataBase64":"","followSymlinks":false}`, enoent},
	} {
		ft.want("fs/writeFile", tt.params, tt.want)
	}
	if got := ft.read("w") + ft.read("n2") + ft.read("nowhere") + ft.read("f"); got != "hihihihi\n" {
		t.Errorf("files hold %q", got)
	}
}

func TestWriteFileToFullPipeEndsWithTheCall(t *testing.T) {
	ft := newFileTest(t)
	ft.populate()
	r, err := os.OpenFile(filepath.Join(ft.dir, "pipe"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	params := fmt.Sprintf(`{"path":%q,"dataBase64":%q}`, fileuri.Format(ft.dir+"/pipe"), base64.StdEncoding.EncodeToString(make([]byte, 1<<20)))
	go func() {
		_, _, err := ft.files.handle(ctx, "fs/writeFile", json.RawMessage(params))
		done <- err
	}()
	if _, err := r.Read(make([]byte, 1)); err != nil { // the write has begun
		t.Fatal(err)
	}
	cancel()
	if err := <-done; err == nil {
		t.Error("no error")
	}
}

func TestCreateDirectory(t *testing.T) {
	ft := newFileTest(t)
	ft.populate()
	for _, tt := range []struct{ params, want string }{
		{`{"path":"$D/c/d/e"}`, `{}`},
		{`{"path":"$D/c/d/e"}`, `{}`},
		{`{"path":"$D/ld"}`, `{}`},
		{`{"path":"file:///"}`, `{}`},
		{`{"path":"file:///","recursive":false}`, eexist},
		{`{"path":"$D/c/d/e","recursive":false}`, eexist},
		{`{"path":"$D/c/x/e","recursive":false}`, enoent},
		{`{"path":"$D/f"}`, eexist},
		{`{"path":"$D/f/x"}`, enotdir},
		{`{"path":"$D/dang"}`, eexist},
		{`{"path":"$D/lf","followSymlinks":false}`, enotdir},
		{`{"path":"$D/ld","followSymlinks":false}`, enotdir},
		{`{"path":"$D/ld/q","followSymlinks":false}`, enotdir},
		{`{"path":"$D/c/q/r","followSymlinks":false}`, `{}`},
		{`{"path":"$D/c/q/r","followSymlinks":false}`, `{}`},
		{`{"path":"file:///","followSymlinks":false}`, `{}`},
		{`{"path":"file:///","followSymlinks":false,"recursive":false}`, eexist},
		{`{"path":"$D/c/q/r","followSymlinks":false,"recursive":false}`, eexist},
		{`{"path":"$D/c/q/t/x","followSymlinks":false,"recursive":false}`, enoent},
		{`{"path":"$D/c/q/t","followSymlinks":false,"recursive":false}`, `{}`},
	} {
		ft.want("fs/createDirectory", tt.params, tt.want)
	}
}

func TestGetMetadata(t *testing.T) {
	ft := newFileTest(t)
	ft.populate()
	type kind struct{ dir, file, link bool }
	for _, tt := range []struct {
		params string
		want   kind
		size   uint64
	}{
		{`{"path":"$D/f"}`, kind{file: true}, 3},
		{`{"path":"$D/lf"}`, kind{file: true, link: true}, 3},
		{`{"path":"$D/ld/s"}`, kind{file: true}, 2},
		{`{"path":"$D/sub/s","followSymlinks":false}`, kind{file: true}, 2},
		{`{"path":"$D/pipe"}`, kind{}, 0},
		{`{"path":"file:///dev/null"}`, kind{}, 0},
	} {
		var m metadata
		if err := json.Unmarshal([]byte(ft.call("fs/getMetadata", tt.params)), &m); err != nil {
			t.Fatal(err)
		}
		if got := (kind{m.IsDirectory, m.IsFile, m.IsSymlink}); got != tt.want || m.Size != tt.size || m.ModifiedAtMS < 1e12 {
			t.Errorf("%s: %+v", tt.params, m)
		}
	}
	for _, path := range []string{"$D/sub", "$D/ld", "file:///"} {
		if got := ft.call("fs/getMetadata", `{"path":"`+path+`"}`); !strings.Contains(got, `"isDirectory":true`) {
			t.Errorf("%s: %s", path, got)
		}
	}
	for _, tt := range []struct{ params, want string }{
		{`{"path":"$D/dang"}`, enoent},
		{`{"path":"$D/loop"}`, eloop},
		{`{"path":"$D/dang","followSymlinks":false}`, "-32600 path contains a symbolic link"},
		{`{"path":"$D/lf","followSymlinks":false}`, "-32600 path contains a symbolic link"},
		{`{"path":"$D/ld/s","followSymlinks":false}`, enotdir},
		{`{"path":"$D/none","followSymlinks":false}`, enoent},
		{`{"path":"$D/` + strings.Repeat("a", 256) + `"}`, "-32603 Filename too long (os error 36)"},
	} {
		ft.want("fs/getMetadata", tt.params, tt.want)
	}
}

func TestCanonicalize(t *testing.T) {
	ft := newFileTest(t)
	ft.populate()
	ft.write("bad\xff", "")
	ft.write("nl\nx", "")
	ft.write("a b#%?[]", "")
	for _, tt := range []struct{ params, want string }{
		{`{"path":"$D/ld/s"}`, `{"path":"$D/sub/s"}`},
		{`{"path":"$D/sub/../ld//"}`, `{"path":"$D/sub"}`},
		{`{"path":"$D/bad%ff"}`, `{"path":"$D/bad%FF"}`},
		{`{"path":"$D/nl%0ax"}`, `{"path":"$D/nl%0Ax"}`},
		{`{"path":"$D/a%20b%23%25%3f[]"}`, `{"path":"$D/a%20b%23%25%3F[]"}`},
		{`{"path":"file:///"}`, `{"path":"file:///"}`},
		{`{"path":"$D/nope"}`, enoent},
		{`{"path":"$D/loop"}`, eloop},
	} {
		ft.want("fs/canonicalize", tt.params, tt.want)
	}
}

func TestReadDirectoryKeepsEveryName(t *testing.T) {
	ft := newFileTest(t)
	ft.populate()
	ft.write("bad\xff", "")
	ft.write("nl\nx", "")
	var result struct{ Entries []directoryEntry }
	if err := json.Unmarshal([]byte(ft.call("fs/readDirectory", `{"path":"$D"}`)), &result); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(result.Entries, func(a, b directoryEntry) int { return strings.Compare(a.FileName, b.FileName) })
	got := fmt.Sprintf("%+v", result.Entries)
	want := fmt.Sprintf("%+v", []directoryEntry{
		{"bad\ufffd", []byte("bad\xff"), false, true},
		{"f", nil, false, true},
		{"ld", nil, true, false},
		{"lf", nil, false, true},
		{"nl\nx", nil, false, true},
		{"pipe", nil, false, false},
		{"sub", nil, true, false},
	})
	if got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	ft.want("fs/readDirectory", `{"path":"$D/sub/deep"}`, `{"entries":[]}`)
	ft.want("fs/readDirectory", `{"path":"$D/f"}`, enotdir)
	ft.want("fs/readDirectory", `{"path":"$D/pipe"}`, enotdir)
	ft.want("fs/readDirectory", `{"path":"$D/none"}`, enoent)
}

func TestRemove(t *testing.T) {
	ft := newFileTest(t)
	ft.populate()
	ft.mkdir("c/d/e")
	ft.mkdir("e")
	for _, tt := range []struct{ params, want string }{
		{`{"path":"$D/nope"}`, `{}`},
		{`{"path":"$D/nope","force":null}`, `{}`},
		{`{"path":"$D/nope","force":false}`, enoent},
		{`{"path":"$D/f/x"}`, enotdir},
		{`{"path":"$D/c","recursive":false}`, "-32603 Directory not empty (os error 39)"},
		{`{"path":"$D/c/d/e","recursive":false}`, `{}`},
		{`{"path":"$D/c"}`, `{}`},
		{`{"path":"$D/ld"}`, `{}`},
		{`{"path":"$D/loop"}`, `{}`},
		{`{"path":"$D/pipe","recursive":false}`, `{}`},
		{`{"path":"file:///"}`, "-32600 fs/remove does not remove the root directory"},
		{`{"path":"$D/sub","followSymlinks":false}`, "-32603 recursive no-follow removal is unsupported"},
		{`{"path":"$D/nope","followSymlinks":false,"recursive":false}`, `{}`},
		{`{"path":"$D/nope","followSymlinks":false,"recursive":false,"force":false}`, enoent},
		{`{"path":"$D/dang","followSymlinks":false,"recursive":false,"force":false}`, "-32600 path contains a symbolic link"},
		{`{"path":"$D/f","followSymlinks":false,"recursive":false,"force":false}`, `{}`},
		{`{"path":"$D/e","followSymlinks":false,"recursive":false}`, `{}`},
		{`{"path":"$D/sub","followSymlinks":false,"recursive":false}`, "-32603 Directory not empty (os error 39)"},
		{`{"path":"$D/lf/x","followSymlinks":false,"recursive":false}`, enotdir},
	} {
		ft.want("fs/remove", tt.params, tt.want)
	}
	if got := ft.read("sub/s"); got != "s\n" {
		t.Errorf("removing the link removed its target: %q", got)
	}
}

func TestCopy(t *testing.T) {
	ft := newFileTest(t)
	ft.populate()
	ft.link("s", "sub/link")
	if err := os.Chmod(filepath.Join(ft.dir, "sub/s"), 0o750); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ from, to, recursive, want string }{
		{"f", "f2", "false", `{}`},
		{"f", "f2", "false", `{}`},
		{"f", "sub", "false", eisdir},
		{"f", "no/f2", "false", enoent},
		{"nope", "f2", "false", enoent},
		{"lf", "lf2", "false", `{}`},
		{"lf", "lf2", "false", eexist},
		{"sub", "sub2", "false", "-32600 fs/copy requires recursive: true when sourcePath is a directory"},
		{"sub", "f", "true", eexist},
		{"sub", "sub/x", "true", "-32600 fs/copy cannot copy a directory to itself or one of its descendants"},
		{"sub", "ld/x/y", "true", "-32600 fs/copy cannot copy a directory to itself or one of its descendants"},
		{"sub", "sub", "true", "-32600 fs/copy cannot copy a directory to itself or one of its descendants"},
		{"sub", "nn/mm", "true", `{}`},
		{"sub", "sub-other", "true", `{}`},
		{"sub", "nn/mm", "true", eexist}, // because of the link in it
		{"pipe", "pipe2", "true", "-32600 fs/copy only supports regular files, directories, and symlinks"},
		{"f", "f", "false", `{}`},
		{"f", "lf", "false", `{}`},
	} {
		ft.want("fs/copy", fmt.Sprintf(`{"sourcePath":"$D/%s","destinationPath":"$D/%s","recursive":%s}`, tt.from, tt.to, tt.recursive), tt.want)
	}
	ft.want("fs/copy", `{"sourcePath":"$D/f","destinationPath":"$D/x"}`, "-32602 missing field `recursive`")
	if got := ft.read("f") + ft.read("f2") + ft.read("nn/mm/s"); got != "hi\nhi\ns\n" {
		t.Errorf("contents %q; a file copied to itself must stay", got)
	}
	if got, err := os.Readlink(filepath.Join(ft.dir, "nn/mm/link")); err != nil || got != "s" {
		t.Errorf("link %q, %v", got, err)
	}
	if info, err := os.Stat(filepath.Join(ft.dir, "nn/mm/s")); err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// FuzzFilesParams sends arbitrary params to the methods that only read.
func FuzzFilesParams(f *testing.F) {
	methods := []string{
		"fs/readFile", "fs/getMetadata", "fs/canonicalize", "fs/readDirectory", "fs/readBlock",
		"fs/writeBlock", "fs/close", "fs/walk", "fs/watchMissing",
	}
	for i := range methods {
		f.Add(uint(i), []byte(`{"path":"file:///nonexistent/x","handleId":"h","offset":1,"len":2,"chunk":"aGk=","options":{"maxDepth":1},"watchId":1,"missing":["file:///nonexistent"],"sandbox":{}}`))
		f.Add(uint(i), []byte(`[null]`))
	}
	files := newFiles(func(string, any) {}, atOnce)
	f.Cleanup(files.close)
	f.Fuzz(func(t *testing.T, which uint, params []byte) {
		if bytes.Contains(params, []byte("file:")) && !bytes.Contains(params, []byte("nonexistent")) {
			return // use only paths that do not exist
		}
		_, ok, err := files.handle(t.Context(), methods[which%uint(len(methods))], params)
		var e *rpc.Error
		if !ok || err != nil && !errors.As(err, &e) {
			t.Fatalf("%v %v", ok, err)
		}
	})
}

// A listing has at most maxDirectoryEntries names.
func TestReadDirectoryIsBounded(t *testing.T) {
	ft := newFileTest(t)
	ft.write("f", "")
	for i := range maxDirectoryEntries - 1 {
		if err := os.Link(filepath.Join(ft.dir, "f"), filepath.Join(ft.dir, strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
	}
	list := func() error {
		_, _, err := ft.files.handle(t.Context(), "fs/readDirectory", json.RawMessage(`{"path":"file://`+ft.dir+`"}`))
		return err
	}
	if err := list(); err != nil {
		t.Errorf("%d names: %v", maxDirectoryEntries, err)
	}
	ft.write("one more", "")
	if err := list(); err == nil || !strings.Contains(err.Error(), "more than 50000 entries") {
		t.Errorf("one more: %v", err)
	}
}
