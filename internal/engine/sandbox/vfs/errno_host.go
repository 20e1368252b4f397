package vfs

import (
	"errors"
	"syscall"
)

// hostErrnos are the errors of this machine that a guest may see as they are.
// What is not among them says more about the machine than about the guest's
// call.
var hostErrnos = map[syscall.Errno]Errno{
	syscall.EACCES:       EACCES,
	syscall.EAGAIN:       EAGAIN,
	syscall.EBADF:        EBADF,
	syscall.EBUSY:        EBUSY,
	syscall.EDQUOT:       EDQUOT,
	syscall.EEXIST:       EEXIST,
	syscall.EFBIG:        EFBIG,
	syscall.EINTR:        EINTR,
	syscall.EINVAL:       EINVAL,
	syscall.EIO:          EIO,
	syscall.EISDIR:       EISDIR,
	syscall.ELOOP:        ELOOP,
	syscall.EMFILE:       EMFILE,
	syscall.EMLINK:       EMLINK,
	syscall.ENAMETOOLONG: ENAMETOOLONG,
	syscall.ENFILE:       ENFILE,
	syscall.ENODEV:       ENODEV,
	syscall.ENOENT:       ENOENT,
	syscall.ENOMEM:       ENOMEM,
	syscall.ENOSPC:       ENOSPC,
	syscall.ENOSYS:       ENOSYS,
	syscall.ENOTDIR:      ENOTDIR,
	syscall.ENOTEMPTY:    ENOTEMPTY,
	syscall.ENOTSUP:      ENOTSUP,
	syscall.ENXIO:        ENXIO,
	syscall.EOVERFLOW:    EOVERFLOW,
	syscall.EPERM:        EPERM,
	syscall.EROFS:        EROFS,
	syscall.ETXTBSY:      ETXTBSY,
	syscall.EXDEV:        EXDEV,
}

func hostErrno(err error) (Errno, bool) {
	var host syscall.Errno
	if !errors.As(err, &host) {
		return 0, false
	}
	e, ok := hostErrnos[host]
	return e, ok
}
