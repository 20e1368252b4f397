package keeper

import (
	"encoding/binary"
	"errors"
)

// The two messages of every run, its start and its first news, have a form of
// their own: numbers, and strings with their lengths before them. It costs less
// than JSON, and strings that are not UTF-8 arrive as they are.

var errMessage = errors.New("message is cut")

// roomFor is how many strings are believed in before they are there.
const roomFor = 1024

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

// message is what is left of one that is being decoded.
type message struct {
	b   []byte
	err error // of the first thing that was not there
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

func (m *message) fail() { m.b, m.err = nil, errMessage }

// bytes returns a string where it is.
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

// count returns how many strings come, which is no more than there can be.
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
	list := make([]string, 0, min(n, roomFor))
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
	all := make(map[string]string, min(n, roomFor))
	for range n {
		k := m.text()
		all[k] = m.text()
	}
	return all
}
