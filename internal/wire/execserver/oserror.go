package execserver

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/spool-run/spool/internal/wire/execserver/fileuri"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// codeNotFound is the error code for a file or file handle that is not there.
const codeNotFound = -32004

// errnoText holds the texts that the dialect's clients know where ours differ
// by more than a capital letter.
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

// osText returns the text of an error number as the dialect's clients know it,
// such as "No such file or directory (os error 2)".
func osText(errno syscall.Errno) string {
	text, ok := errnoText[errno]
	if !ok {
		text = errno.Error()
		text = strings.ToUpper(text[:1]) + text[1:]
	}
	return fmt.Sprintf("%s (os error %d)", text, int(errno))
}

// osMessage returns the text for an error of the system: [osText] where there
// is an error number in it, and its own words otherwise.
func osMessage(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return osText(errno)
	}
	return err.Error()
}

// osError is the answer to a file operation that failed with err. An
// [*rpc.Error] stays what it is.
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
