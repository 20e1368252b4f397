package main

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The sections of a WebAssembly module that matter here.
const (
	sectionCustom    = 0
	sectionType      = 1
	sectionImport    = 2
	sectionFunction  = 3
	sectionGlobal    = 6
	sectionExport    = 7
	sectionCode      = 10
	sectionData      = 11
	sectionDataCount = 12
)

const header = "\x00asm\x01\x00\x00\x00"

// section is one section of a module.
type section struct {
	id   byte
	body []byte
}

// parse splits a module into its sections.
func parse(module []byte) ([]section, error) {
	if len(module) < len(header) || string(module[:len(header)]) != header {
		return nil, errors.New("not a WebAssembly module")
	}
	r := reader{b: module, i: len(header)}
	var sections []section
	for r.more() {
		id := r.byte()
		sections = append(sections, section{id: id, body: r.bytes(int(r.u()))})
	}
	return sections, r.err
}

// emit is the inverse of parse.
func emit(sections []section) []byte {
	out := []byte(header)
	for _, s := range sections {
		out = append(out, s.id)
		out = appendU(out, uint64(len(s.body)))
		out = append(out, s.body...)
	}
	return out
}

func find(sections []section, id byte) *section {
	for i := range sections {
		if sections[i].id == id {
			return &sections[i]
		}
	}
	return nil
}

func without(sections []section, ids ...byte) []section {
	var out []section
next:
	for _, s := range sections {
		for _, id := range ids {
			if s.id == id {
				continue next
			}
		}
		out = append(out, s)
	}
	return out
}

// reader reads the parts of a module. After its first error it reads zeros.
type reader struct {
	b   []byte
	i   int
	err error
}

func (r *reader) more() bool { return r.err == nil && r.i < len(r.b) }

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("at byte %d: %s", r.i, fmt.Sprintf(format, args...))
	}
}

func (r *reader) byte() byte {
	if r.err != nil || r.i >= len(r.b) {
		r.fail("the module ends early")
		return 0
	}
	r.i++
	return r.b[r.i-1]
}

func (r *reader) bytes(n int) []byte {
	if r.err != nil || n < 0 || n > len(r.b)-r.i {
		r.fail("the module ends early")
		return nil
	}
	r.i += n
	return r.b[r.i-n : r.i]
}

// u reads an unsigned LEB128 number.
func (r *reader) u() uint64 {
	v, n := binary.Uvarint(r.b[min(r.i, len(r.b)):])
	if r.err != nil || n <= 0 {
		r.fail("bad number")
		return 0
	}
	r.i += n
	return v
}

// s reads a signed LEB128 number.
func (r *reader) s() int64 {
	var v int64
	for shift := uint(0); ; shift += 7 {
		b := r.byte()
		if shift < 64 {
			v |= int64(b&0x7f) << shift
		}
		if b&0x80 == 0 {
			if b&0x40 != 0 && shift+7 < 64 {
				v |= -1 << (shift + 7)
			}
			return v
		}
	}
}

func (r *reader) name() string { return string(r.bytes(int(r.u()))) }

func (r *reader) limits() {
	flags := r.byte()
	r.u()
	if flags&1 != 0 {
		r.u()
	}
}

func appendU(b []byte, v uint64) []byte { return binary.AppendUvarint(b, v) }

func appendS(b []byte, v int64) []byte {
	for {
		c := byte(v & 0x7f)
		v >>= 7
		if v == 0 && c&0x40 == 0 || v == -1 && c&0x40 != 0 {
			return append(b, c)
		}
		b = append(b, c|0x80)
	}
}

func appendName(b []byte, s string) []byte { return append(appendU(b, uint64(len(s))), s...) }
