//go:build !linux

package cli

import "os"

// discardTyped discards typed input on Linux only.
func discardTyped(*os.File) {}

// setTyping changes the mode of a terminal on Linux only. Elsewhere a key needs
// Enter after it, and a secret is shown.
func setTyping(*os.File, typing) func() { return nil }
