// Package tether ties the children of tests and benchmarks to the process that
// started them, so that one that dies leaves nothing behind.
package tether

import "syscall"

// Attr returns attributes of a child that leads a process group and gets the
// signal when its parent dies.
func Attr(sig syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: sig}
}
