//go:build !linux

package local

// closeOnExec does nothing where no run can be started.
func closeOnExec() {}
