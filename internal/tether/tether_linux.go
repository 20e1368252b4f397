// Package tether makes the children of tests and benchmarks die with the
// process that started them.
package tether

import "syscall"

// Attr returns attributes of a child that leads a process group and receives
// the signal when its parent dies.
func Attr(sig syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: sig}
}
