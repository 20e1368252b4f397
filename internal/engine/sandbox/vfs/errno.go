package vfs

import (
	"context"
	"errors"
	"io/fs"
)

// Errno is an error number. The numbers are those of WASI, which Emscripten
// has too, so that a guest can be given them as they are.
type Errno uint16

// The errors of a file system and of what is built on one.
const (
	E2BIG        Errno = 1
	EACCES       Errno = 2
	EAGAIN       Errno = 6
	EBADF        Errno = 8
	EBUSY        Errno = 10
	ECANCELED    Errno = 11
	ECHILD       Errno = 12
	ECONNREFUSED Errno = 14
	ECONNRESET   Errno = 15
	EDEADLK      Errno = 16
	EDQUOT       Errno = 19
	EEXIST       Errno = 20
	EFAULT       Errno = 21
	EFBIG        Errno = 22
	EHOSTUNREACH Errno = 23
	EILSEQ       Errno = 25
	EINTR        Errno = 27
	EINVAL       Errno = 28
	EIO          Errno = 29
	EISDIR       Errno = 31
	ELOOP        Errno = 32
	EMFILE       Errno = 33
	EMLINK       Errno = 34
	ENAMETOOLONG Errno = 37
	ENETUNREACH  Errno = 40
	ENFILE       Errno = 41
	ENODEV       Errno = 43
	ENOENT       Errno = 44
	ENOEXEC      Errno = 45
	ENOMEM       Errno = 48
	ENOSPC       Errno = 51
	ENOSYS       Errno = 52
	ENOTDIR      Errno = 54
	ENOTEMPTY    Errno = 55
	ENOTSUP      Errno = 58
	ENOTTY       Errno = 59
	ENXIO        Errno = 60
	EOVERFLOW    Errno = 61
	EPERM        Errno = 63
	EPIPE        Errno = 64
	ERANGE       Errno = 68
	EROFS        Errno = 69
	ESPIPE       Errno = 70
	ESRCH        Errno = 71
	ETIMEDOUT    Errno = 73
	ETXTBSY      Errno = 74
	EXDEV        Errno = 75
	ENOTCAPABLE  Errno = 76
)

var errnos = map[Errno]struct{ name, text string }{
	E2BIG:        {"E2BIG", "argument list too long"},
	EACCES:       {"EACCES", "permission denied"},
	EAGAIN:       {"EAGAIN", "resource temporarily unavailable"},
	EBADF:        {"EBADF", "bad file descriptor"},
	EBUSY:        {"EBUSY", "device or resource busy"},
	ECANCELED:    {"ECANCELED", "operation canceled"},
	ECHILD:       {"ECHILD", "no child processes"},
	ECONNREFUSED: {"ECONNREFUSED", "connection refused"},
	ECONNRESET:   {"ECONNRESET", "connection reset by peer"},
	EDEADLK:      {"EDEADLK", "resource deadlock avoided"},
	EDQUOT:       {"EDQUOT", "disk quota exceeded"},
	EEXIST:       {"EEXIST", "file exists"},
	EFAULT:       {"EFAULT", "bad address"},
	EFBIG:        {"EFBIG", "file too large"},
	EHOSTUNREACH: {"EHOSTUNREACH", "no route to host"},
	EILSEQ:       {"EILSEQ", "invalid or incomplete multibyte character"},
	EINTR:        {"EINTR", "interrupted system call"},
	EINVAL:       {"EINVAL", "invalid argument"},
	EIO:          {"EIO", "input/output error"},
	EISDIR:       {"EISDIR", "is a directory"},
	ELOOP:        {"ELOOP", "too many levels of symbolic links"},
	EMFILE:       {"EMFILE", "too many open files"},
	EMLINK:       {"EMLINK", "too many links"},
	ENAMETOOLONG: {"ENAMETOOLONG", "file name too long"},
	ENETUNREACH:  {"ENETUNREACH", "network is unreachable"},
	ENFILE:       {"ENFILE", "too many open files in system"},
	ENODEV:       {"ENODEV", "no such device"},
	ENOENT:       {"ENOENT", "no such file or directory"},
	ENOEXEC:      {"ENOEXEC", "exec format error"},
	ENOMEM:       {"ENOMEM", "cannot allocate memory"},
	ENOSPC:       {"ENOSPC", "no space left on device"},
	ENOSYS:       {"ENOSYS", "function not implemented"},
	ENOTDIR:      {"ENOTDIR", "not a directory"},
	ENOTEMPTY:    {"ENOTEMPTY", "directory not empty"},
	ENOTSUP:      {"ENOTSUP", "operation not supported"},
	ENOTTY:       {"ENOTTY", "inappropriate ioctl for device"},
	ENXIO:        {"ENXIO", "no such device or address"},
	EOVERFLOW:    {"EOVERFLOW", "value too large for defined data type"},
	EPERM:        {"EPERM", "operation not permitted"},
	EPIPE:        {"EPIPE", "broken pipe"},
	ERANGE:       {"ERANGE", "numerical result out of range"},
	EROFS:        {"EROFS", "read-only file system"},
	ESPIPE:       {"ESPIPE", "illegal seek"},
	ESRCH:        {"ESRCH", "no such process"},
	ETIMEDOUT:    {"ETIMEDOUT", "connection timed out"},
	ETXTBSY:      {"ETXTBSY", "text file busy"},
	EXDEV:        {"EXDEV", "invalid cross-device link"},
	ENOTCAPABLE:  {"ENOTCAPABLE", "capabilities insufficient"},
}

var errnoNames = func() map[string]Errno {
	m := make(map[string]Errno, len(errnos))
	for e, s := range errnos {
		m[s.name] = e
	}
	return m
}()

// Name returns the name of the error, such as "ENOENT".
func (e Errno) Name() string {
	if s, ok := errnos[e]; ok {
		return s.name
	}
	return errnos[EIO].name
}

func (e Errno) Error() string {
	if s, ok := errnos[e]; ok {
		return s.text
	}
	return errnos[EIO].text
}

// Is makes an Errno match the errors of package io/fs.
func (e Errno) Is(target error) bool {
	switch target {
	case fs.ErrNotExist:
		return e == ENOENT
	case fs.ErrExist:
		return e == EEXIST || e == ENOTEMPTY
	case fs.ErrPermission:
		return e == EACCES || e == EPERM || e == EROFS
	}
	return false
}

// ErrnoByName returns the error of that name, and whether there is one.
func ErrnoByName(name string) (Errno, bool) {
	e, ok := errnoNames[name]
	return e, ok
}

// ErrnoOf returns the error number of an error: its own if it has one, that
// of the host's for the same thing, or EIO. It is zero for nil.
func ErrnoOf(err error) Errno {
	var own Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &own):
		return own
	}
	if e, ok := hostErrno(err); ok {
		return e
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ENOENT
	case errors.Is(err, fs.ErrExist):
		return EEXIST
	case errors.Is(err, fs.ErrPermission):
		return EACCES
	case errors.Is(err, fs.ErrClosed):
		return EBADF
	case errors.Is(err, fs.ErrInvalid):
		return EINVAL
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return ECANCELED
	}
	return EIO
}
