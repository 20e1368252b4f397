//go:build !linux

package main

// spread does nothing here.
func spread(string) {}
