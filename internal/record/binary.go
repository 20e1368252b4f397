package record

import (
	"encoding/binary"
	"errors"
	"time"
)

// A start, its answer and the first update of a run have a binary form: numbers,
// and strings with their lengths before them. It costs less than JSON, and
// strings that are not UTF-8 arrive unchanged.

var errCut = errors.New("message is cut")

// maxRoom bounds how many elements are allocated on the word of a length alone.
const maxRoom = 1024

func appendText[T ~string | ~[]byte](dst []byte, s T) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

func appendTexts(dst []byte, list []string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	for _, s := range list {
		dst = appendText(dst, s)
	}
	return dst
}

func appendMap(dst []byte, m map[string]string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(m)))
	for k, v := range m {
		dst = appendText(appendText(dst, k), v)
	}
	return dst
}

// appendTime appends a time as nanoseconds, zero for none.
func appendTime(dst []byte, t time.Time) []byte {
	if t.IsZero() {
		return binary.AppendVarint(dst, 0)
	}
	return binary.AppendVarint(dst, t.UnixNano())
}

// message is the rest of a message that is being decoded. After an error every
// value is zero.
type message struct {
	b   []byte
	err error
}

func (m *message) uint() uint64 {
	n, size := binary.Uvarint(m.b)
	return take(m, n, size)
}

func (m *message) int() int64 {
	n, size := binary.Varint(m.b)
	return take(m, n, size)
}

func take[T any](m *message, n T, size int) T {
	if size <= 0 {
		m.fail()
		var none T
		return none
	}
	m.b = m.b[size:]
	return n
}

func (m *message) fail() { m.b, m.err = nil, errCut }

// bytes returns a string without copying it.
func (m *message) bytes() []byte {
	n := m.uint()
	if n > uint64(len(m.b)) {
		m.fail()
		return nil
	}
	b := m.b[:n:n]
	m.b = m.b[n:]
	return b
}

func (m *message) text() string { return string(m.bytes()) }

// count returns a number of elements, of at least one byte each.
func (m *message) count() int {
	n := m.uint()
	if n > uint64(len(m.b)) {
		m.fail()
		return 0
	}
	return int(n)
}

func (m *message) texts() []string {
	n := m.count()
	if n == 0 {
		return nil
	}
	list := make([]string, 0, min(n, maxRoom))
	for range n {
		list = append(list, m.text())
	}
	return list
}

func (m *message) textMap() map[string]string {
	n := m.count()
	if n == 0 {
		return nil
	}
	all := make(map[string]string, min(n, maxRoom))
	for range n {
		k := m.text()
		all[k] = m.text()
	}
	return all
}

func (m *message) time() time.Time {
	if ns := m.int(); ns != 0 {
		return time.Unix(0, ns).UTC()
	}
	return time.Time{}
}
