package prompt

import (
	"os"
	"path/filepath"
	"strings"
)

// maxHistory is the maximum number of cells in the history.
const maxHistory = 1000

// History holds the cells of this and earlier prompts. Its file has one line for
// each line of a cell; a tab begins each line but the first.
type History struct {
	path  string   // if empty, the history is not saved
	cells []string // oldest first
}

// OpenHistory reads a history. If the file cannot be read, the history is empty.
// If the path is empty, the history is not saved.
func OpenHistory(path string) *History {
	h := &History{path: path}
	if path == "" {
		return h
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return h
	}
	for line := range strings.Lines(string(b)) {
		line = strings.TrimRight(line, "\r\n")
		if more, ok := strings.CutPrefix(line, "\t"); ok && len(h.cells) > 0 {
			h.cells[len(h.cells)-1] += "\n" + more
		} else if line != "" {
			h.cells = append(h.cells, line)
		}
	}
	if n := len(h.cells); n > maxHistory {
		h.cells = h.cells[n-maxHistory:]
		h.rewrite()
	}
	return h
}

// Add adds a cell to the history and to its file. The prompt works without the
// file, so that it passes over an error.
func (h *History) Add(cell string) {
	cell = strings.TrimRight(cell, " \t\r\n")
	cell = strings.TrimLeft(cell, "\t\r\n")
	if strings.TrimSpace(cell) == "" || len(h.cells) > 0 && h.cells[len(h.cells)-1] == cell {
		return
	}
	if h.cells = append(h.cells, cell); len(h.cells) > maxHistory {
		h.cells = h.cells[1:]
	}
	if h.path == "" {
		return
	}
	if os.MkdirAll(filepath.Dir(h.path), 0o700) != nil {
		return
	}
	// Another prompt may add cells to the same file: one write adds one cell.
	f, err := os.OpenFile(h.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return
	}
	_, _ = f.WriteString(encodeCell(cell))
	_ = f.Close()
}

func encodeCell(cell string) string { return strings.ReplaceAll(cell, "\n", "\n\t") + "\n" }

// rewrite replaces the file, which has grown too long.
func (h *History) rewrite() {
	f, err := os.CreateTemp(filepath.Dir(h.path), filepath.Base(h.path)+".*")
	if err != nil {
		return
	}
	var all strings.Builder
	for _, cell := range h.cells {
		all.WriteString(encodeCell(cell))
	}
	_, err = f.WriteString(all.String())
	if closed := f.Close(); err != nil || closed != nil || os.Rename(f.Name(), h.path) != nil {
		_ = os.Remove(f.Name())
	}
}

// at returns a cell; 1 is the newest.
func (h *History) at(i int) string { return h.cells[len(h.cells)-i] }
