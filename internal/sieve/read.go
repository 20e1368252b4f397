package sieve

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/spool-run/spool"
)

// ErrDamaged is the error of a sieve that is not as [Builder.Notes] made it, or of
// another version. The log is searched without it.
var ErrDamaged = errors.New("sieve is damaged")

// Read returns the parts of a segment. Parts beside each other that have to be read are
// one. Without a query all parts have to be read, and are not joined. The parts point into
// notes.
func Read(notes []byte, q *Query) ([]Part, error) {
	n := len(notes) - 4
	if n < 1 || notes[0] != version || crc32.Checksum(notes[:n], castagnoli) != binary.LittleEndian.Uint32(notes[n:]) {
		return nil, ErrDamaged
	}
	m := message{b: notes[1:n]}
	var parts []Part
	for range m.uint() {
		p := Part{Begin: m.place(), Offset: int64(m.uint()), Size: int64(m.uint()), Others: m.bytes(), May: true}
		if m.uint() == 1 {
			set := m.bytes()
			p.May = q == nil || q.may(set)
		}
		if m.err != nil {
			return nil, m.err
		}
		k := len(parts) - 1
		if k >= 0 {
			parts[k].End = p.Begin
		}
		if k >= 0 && p.May && parts[k].May && q != nil {
			parts[k].Size += p.Size
		} else {
			parts = append(parts, p)
		}
	}
	end := m.place()
	if len(parts) > 0 {
		parts[len(parts)-1].End = end
	}
	return parts, m.err
}

// After returns the parts from the one that has the event after a cursor on, none if
// there is no such part.
func After(parts []Part, after spool.Seq) []Part {
	for i := range parts {
		if p := &parts[i]; p.Begin.Next <= after+1 && after+1 < p.End.Next {
			return parts[i:]
		}
	}
	return nil
}

// message is the rest of notes that are being read. After an error every value is zero.
type message struct {
	b   []byte
	err error
}

func (m *message) uint() uint64 {
	v, n := binary.Uvarint(m.b)
	if n <= 0 {
		m.b, m.err = nil, fmt.Errorf("%w: it is cut", ErrDamaged)
		return 0
	}
	m.b = m.b[n:]
	return v
}

func (m *message) bytes() []byte {
	n := m.uint()
	if n > uint64(len(m.b)) {
		m.b, m.err = nil, fmt.Errorf("%w: it is cut", ErrDamaged)
		return nil
	}
	b := m.b[:n:n]
	m.b = m.b[n:]
	return b
}

func (m *message) place() Place {
	p := Place{Next: spool.Seq(m.uint())}
	for i := range p.Open {
		p.Open[i] = Position{spool.Seq(m.uint()), int(m.uint())}
	}
	return p
}
