package index

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
)

// keyedRow is a row and the beginning of what it is sorted by, which most comparisons
// need alone.
type keyedRow struct {
	key uint64
	row uint32
}

// sortKeyed sorts rows by their keys, and where these are the same by another order.
func sortKeyed(rows []keyedRow, then func(a, b uint32) int) {
	slices.SortFunc(rows, func(a, b keyedRow) int {
		if n := cmp.Compare(a.key, b.key); n != 0 {
			return n
		}
		return then(a.row, b.row)
	})
}

// sortEntries sorts entries by their keys.
func sortEntries(entries []Entry) {
	rows := make([]keyedRow, len(entries))
	sorted := true
	for i := range entries {
		rows[i] = keyedRow{uint64(entries[i].Created) ^ 1<<63, uint32(i)} // in the order of signed numbers
		sorted = sorted && (i == 0 || entries[i-1].Key().compare(entries[i].Key()) <= 0)
	}
	if sorted {
		return
	}
	sortKeyed(rows, func(a, b uint32) int { return strings.Compare(entries[a].ID, entries[b].ID) })
	unsorted := slices.Clone(entries)
	for i, r := range rows {
		entries[i] = unsorted[r.row]
	}
}

// sortRows returns the rows up to n in the order of their texts.
func sortRows(n int, text func(row uint32) string) []uint32 {
	rows, sorted := make([]keyedRow, n), make([]uint32, n)
	same := 0 // bytes with which all texts begin
	if n > 0 {
		same = len(text(0))
	}
	for i := range uint32(n) {
		same = sameBytes(text(0)[:same], text(i))
	}
	for i := range rows {
		var begin [8]byte
		copy(begin[:], text(uint32(i))[same:])
		rows[i] = keyedRow{binary.BigEndian.Uint64(begin[:]), uint32(i)}
	}
	sortKeyed(rows, func(a, b uint32) int { return strings.Compare(text(a), text(b)) })
	for i, r := range rows {
		sorted[i] = r.row
	}
	return sorted
}

// sameBytes returns how many bytes two texts begin with.
func sameBytes(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
