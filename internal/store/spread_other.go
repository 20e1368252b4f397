//go:build !linux

package store

// spread does nothing here.
func spread(string) {}
