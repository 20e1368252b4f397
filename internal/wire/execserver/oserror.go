package execserver

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/spool-run/spool/internal/wire/execserver/fileuri"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// codeNotFound is the error code for a missing file or file handle.
const codeNotFound = -32004

// errnoText holds the texts known to codex clients that differ from Go's by
// more than a capital letter.
var errnoText = map[syscall.Errno]string{
	syscall.EBUSY:        "Resource busy",
	syscall.ECHILD:       "No child process",
	syscall.EDQUOT:       "Quota exceeded",
	syscall.EIO:          "I/O error",
	syscall.ELOOP:        "Symbolic link loop",
	syscall.EMFILE:       "No file descriptors available",
	syscall.ENAMETOOLONG: "Filename too long",
	syscall.ENOMEM:       "Out of memory",
	syscall.ENOTTY:       "Not a tty",
	syscall.EOPNOTSUPP:   "Not supported",
	syscall.EOVERFLOW:    "Value too large for data type",
	syscall.ESPIPE:       "Invalid seek",
	syscall.ESTALE:       "Stale file handle",
	syscall.ETIMEDOUT:    "Operation timed out",
	syscall.EXDEV:        "Cross-device link",
}

// osText returns the text of an errno as codex clients know it, such as "No
// such file or directory (os error 2)".
func osText(errno syscall.Errno) string {
	text, ok := errnoText[errno]
	if !ok {
		text = errno.Error()
		text = strings.ToUpper(text[:1]) + text[1:]
	}
	return fmt.Sprintf("%s (os error %d)", text, int(errno))
}

// osMessage returns [osText] if err wraps an errno, and err's own text
// otherwise.
func osMessage(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return osText(errno)
	}
	return err.Error()
}

// osError converts the error of a file operation to a wire error. An
// [*rpc.Error] is returned unchanged.
func osError(err error) *rpc.Error {
	var (
		rerr    *rpc.Error
		syntax  *fileuri.SyntaxError
		foreign *fileuri.HostError
		errno   syscall.Errno
	)
	code := rpc.CodeInternal
	switch {
	case errors.As(err, &rerr):
		return rerr
	case errors.As(err, &syntax):
		code = rpc.CodeInvalidParams
	case errors.As(err, &foreign):
		code = rpc.CodeInvalidRequest
	case errors.As(err, &errno):
		switch errno {
		case syscall.ENOENT:
			code = codeNotFound
		case syscall.EACCES, syscall.EPERM, syscall.EINVAL:
			code = rpc.CodeInvalidRequest
		}
	}
	return &rpc.Error{Code: code, Message: osMessage(err)}
}
