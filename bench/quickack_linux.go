package main

import "syscall"

// setQuickAck has the kernel acknowledge what it received at once.
func setQuickAck(fd int) error {
	return syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_QUICKACK, 1)
}
