package index

import (
	"fmt"
	"testing"
)

// BenchmarkOpenLog opens an index whose log is as long as logs become.
func BenchmarkOpenLog(b *testing.B) {
	dir := b.TempDir()
	w := lock(b, dir)
	entries := make([]Entry, logRecords-1)
	for i := range entries {
		entries[i] = Entry{
			ID: fmt.Sprintf("%08x%016x", uint32(i)*2654435761, i), Created: int64(i) * 1000, Ended: int64(i)*1000 + 500, Bytes: 4096, Name: "build",
			Terms: []Term{NewTerm("name", fmt.Sprint(i)), NewTerm("engine", "process"), NewTerm("outcome", "exited"), NewTerm("label", "task", fmt.Sprint(i))},
		}
	}
	must(b, w.Write(entries, nil))
	must(b, w.Close())
	for b.Loop() {
		s, err := Open(dir)
		must(b, err)
		closeIt(b, s)
	}
}
