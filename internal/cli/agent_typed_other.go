//go:build !linux

package cli

import "os"

// discardTyped discards typed input on Linux only.
func discardTyped(*os.File) {}

// hideTyped turns echo off on Linux only.
func hideTyped(*os.File) func() { return func() {} }
