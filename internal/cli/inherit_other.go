//go:build !linux

package cli

// keepDescriptors does nothing where no run can be started.
func keepDescriptors() {}
