//go:build !linux

package cli

import "os"

// discardTyped would forget what was typed and not read yet.
func discardTyped(*os.File) {}

// hideTyped would not show what is typed.
func hideTyped(*os.File) func() { return func() {} }
