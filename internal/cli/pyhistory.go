package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
)

// historyFile returns the file with the cells that this user typed in the working
// directory, or nothing if there can be none.
func (a *app) historyFile() string {
	state, err := a.stateDir()
	if err != nil {
		return ""
	}
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	sum := sha256.Sum256([]byte(dir))
	return filepath.Join(state, "history", "py-"+hex.EncodeToString(sum[:8]))
}
