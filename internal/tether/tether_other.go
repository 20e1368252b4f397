//go:build !linux

// Package tether ties the children of tests and benchmarks to the process that
// started them, so that one that dies leaves nothing behind.
package tether

import "syscall"

// Attr returns attributes of a child that leads a process group. On this
// platform nothing tells it of its parent's death.
func Attr(syscall.Signal) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
