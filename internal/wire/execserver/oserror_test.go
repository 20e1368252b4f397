package execserver

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/spool-run/spool/internal/wire/execserver/fileuri"
	"github.com/spool-run/spool/internal/wire/rpc"
)

func TestOSError(t *testing.T) {
	for _, tt := range []struct {
		err  error
		code int
		text string
	}{
		{&os.PathError{Op: "open", Path: "x", Err: syscall.ENOENT}, codeNotFound, "No such file or directory (os error 2)"},
		{syscall.EACCES, rpc.CodeInvalidRequest, "Permission denied (os error 13)"},
		{syscall.EPERM, rpc.CodeInvalidRequest, "Operation not permitted (os error 1)"},
		{syscall.EINVAL, rpc.CodeInvalidRequest, "Invalid argument (os error 22)"},
		{fmt.Errorf("write: %w", syscall.EROFS), rpc.CodeInternal, "Read-only file system (os error 30)"},
		{syscall.EBUSY, rpc.CodeInternal, "Resource busy (os error 16)"},
		{syscall.Errno(9999), rpc.CodeInternal, "Errno 9999 (os error 9999)"},
		{errors.New("other"), rpc.CodeInternal, "other"},
		{&fileuri.SyntaxError{Message: "bad"}, rpc.CodeInvalidParams, "bad"},
		{&fileuri.HostError{URI: "file://h/"}, rpc.CodeInvalidRequest, "'file://h/' is invalid on 'linux'"},
		{rpc.Errorf(-1, "kept"), -1, "kept"},
	} {
		if got := osError(tt.err); got.Code != tt.code || got.Message != tt.text {
			t.Errorf("osError(%v) = %d %s, want %d %s", tt.err, got.Code, got.Message, tt.code, tt.text)
		}
	}
}

func TestDecodeBase64(t *testing.T) {
	for _, tt := range []struct{ in, want, err string }{
		{"", "", ""},
		{"aGk=", "hi", ""},
		{"aGk", "", "Invalid padding"},
		{"aGk==", "", "Invalid padding"},
		{"aGl=", "", "Invalid last symbol 108, offset 2."}, // nonzero trailing bits
		{"!", "", "Invalid symbol 33, offset 0."},
		{"aG=k", "", "Invalid symbol 61, offset 2."},
		{"aG\nk=", "", "Invalid symbol 10, offset 2."},
		{"aGk=\n", "", "Invalid symbol 61, offset 3."},
		{"a", "", "Invalid input length: 1"},
		{"a===", "", "Invalid symbol 61, offset 1."},
		{"aGk=aGk=", "", "Invalid symbol 61, offset 3."},
		{"a_-=", "", "Invalid symbol 95, offset 1."},
	} {
		got, err := decodeBase64(tt.in)
		if string(got) != tt.want || err == nil != (tt.err == "") || err != nil && err.Error() != tt.err {
			t.Errorf("decodeBase64(%q) = %q, %v", tt.in, got, err)
		}
	}
}
