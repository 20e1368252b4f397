package index

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// The log is a sequence of records:
//
//	0  u32  size of the rest
//	4  u32  CRC32C of the rest
//	8  u8   operation
//	9  i64  created
//	17 i64  ended     (these only for opAdd)
//	25 i64  bytes
//	33 i64  raw
//	41 u8   flags
//	42 u8   size of the name
//	43 u32  number of terms, then each as u64
//	        name
//	        id, up to the end
const (
	recordHead = 8
	addHead    = 1 + 8*4 + 1 + 1 + 4
	removeHead = 1 + 8
)

const (
	opAdd    = 1
	opRemove = 2
)

var le = binary.LittleEndian

func appendRecord(dst []byte, body func([]byte) []byte) []byte {
	at := len(dst)
	dst = body(append(dst, make([]byte, recordHead)...))
	le.PutUint32(dst[at:], uint32(len(dst)-at-recordHead))
	le.PutUint32(dst[at+4:], crc32.Checksum(dst[at+recordHead:], castagnoli))
	return dst
}

func appendAdd(dst []byte, e *Entry) []byte {
	name := cutName(e.Name)
	return appendRecord(dst, func(b []byte) []byte {
		b = append(b, opAdd)
		b = le.AppendUint64(b, uint64(e.Created))
		b = le.AppendUint64(b, uint64(e.Ended))
		b = le.AppendUint64(b, uint64(e.Bytes))
		b = le.AppendUint64(b, uint64(e.Raw))
		b = append(b, byte(e.Flags), byte(len(name)))
		b = le.AppendUint32(b, uint32(len(e.Terms)))
		for _, t := range e.Terms {
			b = le.AppendUint64(b, uint64(t))
		}
		return append(append(b, name...), e.ID...)
	})
}

func appendRemove(dst []byte, k Key) []byte {
	return appendRecord(dst, func(b []byte) []byte {
		b = append(b, opRemove)
		b = le.AppendUint64(b, uint64(k.Created))
		return append(b, k.ID...)
	})
}

// recent is what a log says.
type recent struct {
	said    map[string]said // the newest of each id
	entries []*Entry        // all that were added, in this order
	records int
}

// said is what a log says of an id.
type said struct {
	key   Key
	entry *Entry // nil if it was removed
}

// newest returns the entries that were neither replaced nor removed later.
func (r *recent) newest() []*Entry {
	var newest []*Entry
	for _, e := range r.entries {
		if r.said[e.ID].entry == e {
			newest = append(newest, e)
		}
	}
	return newest
}

// usualRecord is how many bytes a record has, about.
const usualRecord = 100

// parseLog reads a log up to its end or the first record that is not whole, and
// returns how many bytes are good.
func parseLog(b []byte) (recent, int, error) {
	r := recent{said: make(map[string]said, len(b)/usualRecord), entries: make([]*Entry, 0, len(b)/usualRecord)}
	off := 0
	for off < len(b) {
		rest := b[off:]
		if len(rest) < recordHead {
			return r, off, fmt.Errorf("%w: torn record in the log", ErrDamaged)
		}
		size := int64(le.Uint32(rest))
		if int64(len(rest)) < recordHead+size {
			return r, off, fmt.Errorf("%w: torn record in the log", ErrDamaged)
		}
		body := rest[recordHead : recordHead+size]
		if crc32.Checksum(body, castagnoli) != le.Uint32(rest[4:]) || !r.apply(body) {
			return r, off, fmt.Errorf("%w: bad record in the log", ErrDamaged)
		}
		off += recordHead + int(size)
	}
	return r, off, nil
}

func (r *recent) apply(b []byte) bool {
	r.records++
	switch {
	case len(b) > removeHead && b[0] == opRemove:
		id := string(b[removeHead:])
		r.said[id] = said{key: Key{int64(le.Uint64(b[1:])), id}}
		return true
	case len(b) > addHead && b[0] == opAdd:
		e := &Entry{
			Created: int64(le.Uint64(b[1:])), Ended: int64(le.Uint64(b[9:])), Bytes: int64(le.Uint64(b[17:])),
			Raw: int64(le.Uint64(b[25:])), Flags: Flags(b[33]),
		}
		name, n := int(b[34]), int(le.Uint32(b[35:]))
		b = b[addHead:]
		if n > len(b)/8 || len(b) <= 8*n+name {
			return false
		}
		e.Terms = make([]Term, n)
		for i := range e.Terms {
			e.Terms[i] = Term(le.Uint64(b[8*i:]))
		}
		text := string(b[8*n:])
		e.Name, e.ID = text[:name], text[name:]
		r.entries = append(r.entries, e)
		r.said[e.ID] = said{e.Key(), e}
		return true
	}
	return false
}
