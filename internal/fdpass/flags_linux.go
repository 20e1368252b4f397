package fdpass

import "golang.org/x/sys/unix"

const (
	sendFlags    = unix.MSG_NOSIGNAL
	receiveFlags = unix.MSG_CMSG_CLOEXEC
)
