package main

import (
	"bytes"
	"strings"
	"testing"
)

// module builds a small module: a type, imports and exports, one global and
// the bodies of three functions, tick, copy and fill, and one more.
func module(body []byte) []section {
	sections := []section{
		{sectionType, []byte{2, 0x60, 0, 0, 0x60, 3, 0x7f, 0x7f, 0x7f, 0}},
		{sectionImport, append(append([]byte{1}, "\x01h\x01t"...), 0, 0)},
		{sectionFunction, []byte{4, 0, 1, 1, 0}},
		{sectionGlobal, []byte{1, 0x7f, 1, 0x41, 0, 0x0b}},
		{sectionExport, append([]byte{3}, "\x07sb_tick\x00\x01\x07sb_copy\x00\x02\x07sb_fill\x00\x03"...)},
	}
	empty := []byte{0, 0x0b}
	move := []byte{0, 0x20, 0, 0x20, 1, 0x20, 2, 0xfc, 10, 0, 0, 0x0b}
	var code []byte
	code = append(code, 4)
	for _, b := range [][]byte{empty, move, empty, body} {
		code = append(appendU(code, uint64(len(b))), b...)
	}
	return append(sections, section{sectionCode, code})
}

// bodies are the functions of a module after the change.
func bodies(t *testing.T, sections []section) [][]byte {
	t.Helper()
	r := reader{b: find(sections, sectionCode).body}
	var out [][]byte
	for n := r.u(); n > 0; n-- {
		out = append(out, r.bytes(int(r.u())))
	}
	if r.err != nil || r.more() {
		t.Fatalf("the code does not parse: %v", r.err)
	}
	return out
}

func TestLoopsTakeFuel(t *testing.T) {
	loop := []byte{0, 0x03, 0x40, 0x0c, 0, 0x0b, 0x0b} // loop, br 0
	sections := module(loop)
	loops, err := addFuel(sections, 100)
	if err != nil || loops != 1 {
		t.Fatalf("%d loops, %v", loops, err)
	}
	got := bodies(t, sections)[3]
	want := []byte{
		1, 1, 0x7f, // a local
		0x03, 0x40, // loop
		0x23, 1, 0x41, 1, 0x6b, 0x22, 0, 0x24, 1, // fuel--
		0x20, 0, 0x41, 0, 0x4c, 0x04, 0x40, // if fuel <= 0
		0x23, 1, 0x41, 0xe4, 0, 0x6a, 0x24, 1, 0x10, 1, 0x0b, // fuel += 100, tick
		0x0c, 0, 0x0b, 0x0b,
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got  %x\nwant %x", got, want)
	}
	if g := find(sections, sectionGlobal).body; g[0] != 2 || !bytes.HasSuffix(g, []byte{0x7f, 1, 0x41, 0xe4, 0, 0x0b}) {
		t.Errorf("globals %x", g)
	}
	if e := find(sections, sectionExport).body; e[0] != 4 || !strings.HasSuffix(string(e), "\x07sb_fuel\x03\x01") {
		t.Errorf("exports %q", e)
	}
}

func TestMovesOfMemoryGoThroughTheFunctionsThatCount(t *testing.T) {
	move := []byte{0, 0x41, 0, 0x41, 0, 0x41, 0, 0xfc, 10, 0, 0, 0x41, 0, 0x41, 0, 0x41, 0, 0xfc, 11, 0, 0x0b}
	sections := module(move)
	if _, err := addFuel(sections, 100); err != nil {
		t.Fatal(err)
	}
	got := bodies(t, sections)
	if b := got[3]; bytes.Contains(b, []byte{0xfc}) || !bytes.Contains(b, []byte{0x10, 2}) || !bytes.Contains(b, []byte{0x10, 3}) {
		t.Errorf("its memory is moved by %x", b)
	}
	if b := got[1]; !bytes.Contains(b, []byte{0xfc, 10, 0, 0}) || !bytes.Contains(b, []byte{0x41, bulkShift, 0x76, 0x6b, 0x24, 1}) {
		t.Errorf("sb_copy is %x", b)
	}
}

func TestDataBecomesMemory(t *testing.T) {
	data := []byte{2, 0, 0x41, 4, 0x0b, 2, 'a', 'b', 0, 0x41, 0, 0x0b, 1, 'c'}
	got, err := flatten([]section{{sectionData, data}})
	if err != nil || string(got) != "c\x00\x00\x00ab" {
		t.Errorf("%q %v", got, err)
	}
	for _, bad := range [][]byte{{1, 1, 1, 'x'}, {1, 0, 0x23, 0, 0x0b, 0}, {1, 0, 0x41, 0x7f, 0x0b, 1, 'x'}} {
		if m, err := flatten([]section{{sectionData, bad}}); err == nil {
			t.Errorf("%x became %q", bad, m)
		}
	}
}

func TestModulesSurviveParseAndEmit(t *testing.T) {
	m := emit(module([]byte{0, 0x0b}))
	sections, err := parse(m)
	if err != nil || !bytes.Equal(emit(sections), m) {
		t.Errorf("%v", err)
	}
}

// FuzzAddFuel feeds it what is no module: it must refuse, not fail.
func FuzzAddFuel(f *testing.F) {
	f.Add(emit(module([]byte{0, 0x03, 0x40, 0x0c, 0, 0x0b, 0x0b})))
	f.Add([]byte(header))
	f.Fuzz(func(t *testing.T, b []byte) {
		sections, err := parse(b)
		if err != nil {
			return
		}
		_, _ = flatten(sections)
		_, _ = addFuel(sections, 100)
	})
}
