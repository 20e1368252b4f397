package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// maxHistory is the maximum number of lines in the history.
const maxHistory = 1000

// history holds the typed lines of this and earlier commands. It implements the
// history of a [golang.org/x/term.Terminal].
type history struct {
	path  string   // if empty, the history is not saved
	lines []string // oldest first
	off   bool     // ignore lines: they answer input()
}

// openHistory returns the history of this user in the working directory.
func (a *app) openHistory() *history {
	state, err := a.stateDir()
	if err != nil {
		return &history{}
	}
	dir, err := os.Getwd()
	if err != nil {
		return &history{}
	}
	sum := sha256.Sum256([]byte(dir))
	return openHistory(filepath.Join(state, "history", "py-"+hex.EncodeToString(sum[:8])))
}

// openHistory reads a history. If the file cannot be read, the history is empty.
func openHistory(path string) *history {
	h := &history{path: path}
	b, err := os.ReadFile(path)
	if err != nil {
		return h
	}
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimRight(line, "\r\n"); line != "" {
			h.lines = append(h.lines, line)
		}
	}
	if n := len(h.lines); n > maxHistory {
		h.lines = h.lines[n-maxHistory:]
	}
	return h
}

// Add adds a line.
func (h *history) Add(line string) {
	if h.off || strings.TrimSpace(line) == "" || len(h.lines) > 0 && h.lines[len(h.lines)-1] == line {
		return
	}
	h.lines = append(h.lines, line)
	if len(h.lines) > maxHistory {
		h.lines = h.lines[1:]
	}
}

// Len returns the number of lines.
func (h *history) Len() int { return len(h.lines) }

// At returns a line; 0 is the newest.
func (h *history) At(i int) string { return h.lines[len(h.lines)-1-i] }

// save writes the history to its file.
func (h *history) save() error {
	if h.path == "" || len(h.lines) == 0 {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(h.path), 0o700); err != nil {
		return err
	}
	// Write a temporary file and rename it: of two commands at once one
	// history survives, complete.
	f, err := os.CreateTemp(filepath.Dir(h.path), filepath.Base(h.path)+".*")
	if err != nil {
		return err
	}
	_, err = f.WriteString(strings.Join(h.lines, "\n") + "\n")
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), h.path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
