package index

import (
	"fmt"
	"path/filepath"
	"slices"
	"sync"
)

// builders is how many segments are encoded and written at a time. It bounds the memory
// of a build.
const builders = 2

// Build replaces the index by one that has the entries for which each calls add, which
// any number of goroutines may do at once. Until it returns, readers see the earlier
// index, if it is whole.
func (w *Writer) Build(each func(add func([]Entry) error) error) error {
	b := build{w: w, next: manifest{Version: manifestVersion, Next: w.manifest.Next}, turns: make(chan struct{}, builders)}
	if names, err := filepath.Glob(w.path("[0-9]*")); err == nil {
		for _, name := range names { // a damaged manifest does not tell which are in use
			var n int
			if _, err := fmt.Sscanf(filepath.Base(name), "%d", &n); err == nil {
				b.next.Next = max(b.next.Next, n)
			}
		}
	}
	err := each(b.add)
	if err == nil {
		err = w.addSegment(&b.next, b.entries)
	}
	if err == nil {
		err = w.addLog(&b.next)
	}
	if err == nil {
		err = w.replace(b.next)
	}
	if err != nil {
		return fmt.Errorf("build index: %w", err)
	}
	return nil
}

// build is an index that is being built.
type build struct {
	w     *Writer
	turns chan struct{}

	mu      sync.Mutex
	next    manifest
	entries []Entry // which are in no segment yet
}

// add adds entries. Who adds the last of a segment writes it, and others go on.
func (b *build) add(entries []Entry) error {
	b.mu.Lock()
	b.entries = append(b.entries, entries...)
	var full [][]Entry
	var names []string
	for len(b.entries) >= segmentRows {
		names = append(names, b.next.addSegment())
		full = append(full, b.entries[:segmentRows:segmentRows])
		b.entries = slices.Clone(b.entries[segmentRows:])
	}
	b.mu.Unlock()
	for i := range full {
		b.turns <- struct{}{}
		err := b.w.create(names[i], encodeSegment(full[i]))
		<-b.turns
		if err != nil {
			return err
		}
	}
	return nil
}
