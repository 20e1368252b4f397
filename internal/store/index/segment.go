package index

import (
	"cmp"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"slices"
	"sort"
	"strings"
	"syscall"
)

// A segment is a head and then columns, one value per entry, in the order of
// their keys:
//
//	created i64, ended i64, bytes i64, raw i64
//	terms   u64: half of the term and, in the lower half, the row of an entry that has it, sorted
//	ids     u32: where the id of each entry begins in the text, and where the last ends
//	names   u32: the same of its name, in the names
//	byID    u32: rows in the order of ids
//	byName  u32: rows in the order of names
//	termsAt u32: where the terms of each entry begin in its terms, and where the last end
//	ofRow   u64: the terms of each entry
//	flags   u8
//	text    the ids, and then the names
//
// The head:
//
//	0  magic
//	8  u32 entries   12 u32 terms   16 u32 size of the ids
//	20 u32 CRC32C of the columns
//	24 i64 first created  32 i64 last created  40 i64 last ended
//	48 u32 size of the names   52 u32 CRC32C of the head before
const (
	segmentMagic = "SPOOLIX4"
	segmentHead  = 56
)

// segment is an open segment: a file in memory.
type segment struct {
	file  segmentFile
	data  []byte // the whole file
	rows  int
	dead  []byte // bits; nil for none
	ndead int

	first, last, ended int64
	sum                uint32

	created, ends, bytes, raw, terms, ids, names, byID, byName, termsAt, ofRow, flags, text, nameText []byte
}

// encodeSegment returns the file of a segment with these entries, which it sorts.
func encodeSegment(entries []Entry) []byte {
	sortEntries(entries)
	nterms, ntext, nnames := 0, 0, 0
	for i := range entries {
		e := &entries[i]
		e.Name = cutName(e.Name)
		nterms, ntext, nnames = nterms+len(e.Terms), ntext+len(e.ID), nnames+len(e.Name)
	}
	rows := len(entries)
	size := segmentHead + rows*32 + nterms*16 + (rows+1)*12 + rows*9 + ntext + nnames
	b := make([]byte, segmentHead, size)
	ended := int64(math.MinInt64)
	for i := range entries {
		b = le.AppendUint64(b, uint64(entries[i].Created))
	}
	for i := range entries {
		b = le.AppendUint64(b, uint64(entries[i].Ended))
		ended = max(ended, entries[i].Ended)
	}
	for i := range entries {
		b = le.AppendUint64(b, uint64(entries[i].Bytes))
	}
	for i := range entries {
		b = le.AppendUint64(b, uint64(entries[i].Raw))
	}
	terms := make([]uint64, 0, nterms)
	for i := range entries {
		for _, t := range entries[i].Terms {
			terms = append(terms, uint64(t.half())<<32|uint64(i))
		}
	}
	slices.Sort(terms)
	for _, t := range terms {
		b = le.AppendUint64(b, t)
	}
	id := func(row uint32) string { return entries[row].ID }
	name := func(row uint32) string { return entries[row].Name }
	for _, text := range []func(uint32) string{id, name} {
		at := 0
		for i := range entries {
			b = le.AppendUint32(b, uint32(at))
			at += len(text(uint32(i)))
		}
		b = le.AppendUint32(b, uint32(at))
	}
	for _, text := range []func(uint32) string{id, name} {
		for _, row := range sortRows(rows, text) {
			b = le.AppendUint32(b, row)
		}
	}
	at := 0
	for i := range entries {
		b = le.AppendUint32(b, uint32(at))
		at += len(entries[i].Terms)
	}
	b = le.AppendUint32(b, uint32(at))
	for i := range entries {
		for _, t := range entries[i].Terms {
			b = le.AppendUint64(b, uint64(t))
		}
	}
	for i := range entries {
		b = append(b, byte(entries[i].Flags))
	}
	for i := range entries {
		b = append(b, entries[i].ID...)
	}
	for i := range entries {
		b = append(b, entries[i].Name...)
	}
	copy(b, segmentMagic)
	le.PutUint32(b[8:], uint32(rows))
	le.PutUint32(b[12:], uint32(nterms))
	le.PutUint32(b[16:], uint32(ntext))
	le.PutUint32(b[20:], crc32.Checksum(b[segmentHead:], castagnoli))
	if rows > 0 {
		le.PutUint64(b[24:], uint64(entries[0].Created))
		le.PutUint64(b[32:], uint64(entries[rows-1].Created))
	}
	le.PutUint64(b[40:], uint64(ended))
	le.PutUint32(b[48:], uint32(nnames))
	le.PutUint32(b[52:], crc32.Checksum(b[:52], castagnoli))
	return b
}

// openSegment maps a segment into memory. It checks the head, and the sizes, but
// not the checksum of the columns.
func openSegment(path string, deadPath string, file segmentFile) (*segment, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if fi.Size() < segmentHead || fi.Size() > math.MaxInt32 {
		return nil, fmt.Errorf("%w: %s has %d bytes", ErrDamaged, file.Name, fi.Size())
	}
	data, err := syscall.Mmap(int(f.Fd()), 0, int(fi.Size()), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	s, err := parseSegment(data)
	if err != nil {
		_ = syscall.Munmap(data)
		return nil, fmt.Errorf("%w in %s", err, file.Name)
	}
	s.file = file
	if deadPath != "" {
		b, err := os.ReadFile(deadPath)
		if err == nil {
			err = s.setDead(b)
		}
		if err != nil {
			_ = syscall.Munmap(data)
			return nil, err
		}
	}
	return s, nil
}

// parseSegment finds the columns of a segment.
func parseSegment(data []byte) (*segment, error) {
	if len(data) < segmentHead || string(data[:8]) != segmentMagic || crc32.Checksum(data[:52], castagnoli) != le.Uint32(data[52:]) {
		return nil, fmt.Errorf("%w: wrong head", ErrDamaged)
	}
	s := &segment{
		data: data, rows: int(le.Uint32(data[8:])), sum: le.Uint32(data[20:]),
		first: int64(le.Uint64(data[24:])), last: int64(le.Uint64(data[32:])), ended: int64(le.Uint64(data[40:])),
	}
	nterms, ntext, nnames := int(le.Uint32(data[12:])), int(le.Uint32(data[16:])), int(le.Uint32(data[48:]))
	rest := data[segmentHead:]
	if int64(len(rest)) != int64(s.rows)*32+int64(nterms)*16+int64(s.rows+1)*12+int64(s.rows)*9+int64(ntext)+int64(nnames) {
		return nil, fmt.Errorf("%w: wrong size", ErrDamaged)
	}
	take := func(n int) (b []byte) {
		b, rest = rest[:n:n], rest[n:]
		return b
	}
	s.created, s.ends, s.bytes, s.raw = take(s.rows*8), take(s.rows*8), take(s.rows*8), take(s.rows*8)
	s.terms = take(nterms * 8)
	s.ids, s.names = take((s.rows+1)*4), take((s.rows+1)*4)
	s.byID, s.byName = take(s.rows*4), take(s.rows*4)
	s.termsAt, s.ofRow = take((s.rows+1)*4), take(nterms*8)
	s.flags, s.text, s.nameText = take(s.rows), take(ntext), rest
	return s, nil
}

// verify compares the checksum of the columns.
func (s *segment) verify() error {
	if crc32.Checksum(s.data[segmentHead:], castagnoli) != s.sum {
		return fmt.Errorf("%w: wrong checksum of %s", ErrDamaged, s.file.Name)
	}
	return nil
}

func (s *segment) close() error { return syscall.Munmap(s.data) }

// setDead sets which entries do not count, from the contents of a file: bits and
// their checksum.
func (s *segment) setDead(b []byte) error {
	n := (s.rows + 7) / 8
	if len(b) != n+4 || crc32.Checksum(b[:n], castagnoli) != le.Uint32(b[n:]) {
		return fmt.Errorf("%w: wrong checksum of %s", ErrDamaged, s.file.Dead)
	}
	s.dead = b[:n]
	s.ndead = 0
	for row := range s.rows {
		if s.isDead(row) {
			s.ndead++
		}
	}
	return nil
}

func (s *segment) isDead(row int) bool { return s.dead != nil && s.dead[row/8]&(1<<(row%8)) != 0 }

func (s *segment) createdAt(row int) int64 { return int64(le.Uint64(s.created[8*row:])) }
func (s *segment) endedAt(row int) int64   { return int64(le.Uint64(s.ends[8*row:])) }
func (s *segment) bytesAt(row int) int64   { return int64(le.Uint64(s.bytes[8*row:])) }
func (s *segment) rawAt(row int) int64     { return int64(le.Uint64(s.raw[8*row:])) }

// id returns the id of an entry, as a part of the file.
func (s *segment) id(row int) []byte { return part(s.ids, s.text, row) }

// name returns the name of an entry, as a part of the file.
func (s *segment) name(row int) []byte { return part(s.names, s.nameText, row) }

// part returns the text of a row.
func part(offsets, text []byte, row int) []byte {
	from, to := le.Uint32(offsets[4*row:]), le.Uint32(offsets[4*row+4:])
	if from > to || int64(to) > int64(len(text)) { // damaged
		return nil
	}
	return text[from:to]
}

// compareRow orders an entry and a key.
func (s *segment) compareRow(row int, k Key) int {
	if n := cmp.Compare(s.createdAt(row), k.Created); n != 0 {
		return n
	}
	return strings.Compare(string(s.id(row)), k.ID)
}

// search returns the first row whose key is not less than k.
func (s *segment) search(k Key) int {
	return sort.Search(s.rows, func(row int) bool { return s.compareRow(row, k) >= 0 })
}

// find returns the row of a key that counts, or -1.
func (s *segment) find(k Key) int {
	if k.Created < s.first || k.Created > s.last {
		return -1
	}
	if row := s.search(k); row < s.rows && !s.isDead(row) && s.compareRow(row, k) == 0 {
		return row
	}
	return -1
}

// postings returns the part of the column of terms that has a term, and others with the
// same half.
func (s *segment) postings(t Term) []byte {
	n, half := len(s.terms)/8, uint64(t.half())
	from := sort.Search(n, func(i int) bool { return le.Uint64(s.terms[8*i:]) >= half<<32 })
	to := from + sort.Search(n-from, func(i int) bool { return le.Uint64(s.terms[8*(from+i):])>>32 > half })
	return s.terms[8*from : 8*to]
}

// posting returns a row of postings, or one that does not exist if the segment is
// damaged.
func posting(p []byte, i int) int { return int(uint32(le.Uint64(p[8*i:]))) }

// hasRow reports whether postings have a row.
func hasRow(p []byte, row int) bool {
	n := len(p) / 8
	i := sort.Search(n, func(i int) bool { return posting(p, i) >= row })
	return i < n && posting(p, i) == row
}

// rowByID returns a row in the order of ids, and its id. A row of a damaged
// segment may not exist.
func (s *segment) rowByID(i int) (int, []byte) {
	row := int(le.Uint32(s.byID[4*i:]))
	if row >= s.rows {
		return row, nil
	}
	return row, s.id(row)
}

// searchID returns the first place in the order of ids that is not before one.
func (s *segment) searchID(id string) int {
	return sort.Search(s.rows, func(i int) bool {
		_, at := s.rowByID(i)
		return string(at) >= id
	})
}

// prefixed returns the rows whose ids begin with a prefix, in order.
func (s *segment) prefixed(prefix string) []int {
	var rows []int
	for i := s.searchID(prefix); i < s.rows; i++ {
		row, id := s.rowByID(i)
		if !strings.HasPrefix(string(id), prefix) {
			break
		}
		rows = append(rows, row)
	}
	slices.Sort(rows)
	return rows
}

// named returns the rows whose names a pattern may match, in order. It reports false if
// its beginning says too little: then looking at every name is as good.
func (s *segment) named(g *glob) (rows []int, ok bool) {
	if g.prefix == "" {
		return nil, false
	}
	name := func(i int) (int, string) {
		row := int(le.Uint32(s.byName[4*i:]))
		if row >= s.rows { // damaged
			return row, ""
		}
		return row, string(s.name(row))
	}
	from := sort.Search(s.rows, func(i int) bool {
		_, at := name(i)
		return at >= g.prefix
	})
	n := sort.Search(s.rows-from, func(i int) bool {
		_, at := name(from + i)
		return at > g.prefix && !strings.HasPrefix(at, g.prefix)
	})
	if n > s.rows/8 {
		return nil, false
	}
	for i := from; i < from+n; i++ {
		if row, at := name(i); g.match([]byte(at)) {
			rows = append(rows, row)
		}
	}
	slices.Sort(rows)
	return rows, true
}

// findID returns the row of an id that counts.
func (s *segment) findID(want string) (int, bool) {
	for i := s.searchID(want); i < s.rows; i++ {
		row, id := s.rowByID(i)
		if string(id) != want {
			return 0, false
		}
		if !s.isDead(row) {
			return row, true
		}
	}
	return 0, false
}

// entries appends the entries that count.
func (s *segment) entries(dst []Entry) []Entry {
	for row := range s.rows {
		if !s.isDead(row) {
			dst = append(dst, s.whole(row))
		}
	}
	return dst
}

// whole returns an entry with its name and its terms.
func (s *segment) whole(row int) Entry {
	e := s.entry(row)
	e.Name = string(s.name(row))
	from, to := le.Uint32(s.termsAt[4*row:]), le.Uint32(s.termsAt[4*row+4:])
	if from > to || int64(to) > int64(len(s.ofRow)/8) { // damaged
		return e
	}
	e.Terms = make([]Term, to-from)
	for i := range e.Terms {
		e.Terms[i] = Term(le.Uint64(s.ofRow[8*(int(from)+i):]))
	}
	return e
}

// fixed returns an entry with what has a fixed size.
func (s *segment) fixed(row int) Entry {
	return Entry{Created: s.createdAt(row), Ended: s.endedAt(row), Bytes: s.bytesAt(row), Raw: s.rawAt(row), Flags: Flags(s.flags[row])}
}

// entry returns an entry without its name and its terms.
func (s *segment) entry(row int) Entry {
	e := s.fixed(row)
	e.ID = string(s.id(row))
	return e
}
