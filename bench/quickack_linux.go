package main

import "syscall"

// setQuickAck makes the kernel acknowledge received data at once.
func setQuickAck(fd int) error {
	return syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_QUICKACK, 1)
}
