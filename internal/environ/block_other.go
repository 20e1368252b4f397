//go:build !linux

package environ

// HideBlock does nothing on this platform: the kernel shows the environment of a
// process to no file reader.
func HideBlock() error { return nil }
