package main

import (
	"errors"
	"fmt"
)

// The names that matter in a module.
const (
	tickExport = "sb_tick"
	copyExport = "sb_copy"
	fillExport = "sb_fill"
	fuelExport = "sb_fuel" // is added
)

// bulkShift says how much memory counts as much as one pass of a loop.
const bulkShift = 8

// addFuel makes every pass of a loop header count: each takes one from a new
// global, and the one that takes the last fills it up again and calls the
// function that the module exports as sb_tick. So the host gets a word in any
// loop, be it in C or in Python, and the work done can be counted. To move
// memory counts by its size, and goes through the functions that the module
// exports for it, which do it in pieces.
//
// It returns the number of loops.
func addFuel(sections []section, every int64) (int, error) {
	m, err := survey(sections)
	if err != nil {
		return 0, err
	}
	globals, exports, code := find(sections, sectionGlobal), find(sections, sectionExport), find(sections, sectionCode)

	r := reader{b: globals.body}
	fuel := m.importedGlobals + r.u()
	body := appendU(nil, fuel-m.importedGlobals+1)
	body = append(body, globals.body[r.i:]...)
	body = append(body, 0x7f, 1, 0x41) // a mutable i32, i32.const
	body = append(appendS(body, every), 0x0b)
	globals.body = body

	r = reader{b: exports.body}
	n := r.u()
	body = append(appendU(nil, n+1), exports.body[r.i:]...)
	body = append(appendName(body, fuelExport), 3)
	exports.body = appendU(body, fuel)

	r = reader{b: code.body}
	n = r.u()
	if n != uint64(len(m.functions)) {
		return 0, errors.New("functions and their code differ in number")
	}
	out := appendU(nil, n)
	loops := 0
	for i := range n {
		body := r.bytes(int(r.u()))
		if r.err != nil {
			return 0, r.err
		}
		if m.importedFunctions+i != m.tick {
			var found int
			f := fueling{surveyed: &m, fuel: fuel, every: every, index: m.importedFunctions + i}
			body, found, err = f.function(body, m.params[m.functions[i]])
			if err != nil {
				return 0, fmt.Errorf("function %d: %w", i, err)
			}
			loops += found
		}
		out = appendU(out, uint64(len(body)))
		out = append(out, body...)
	}
	code.body = out
	return loops, nil
}

// surveyed is what addFuel has to know of a module.
type surveyed struct {
	params                             []uint64 // of each type
	functions                          []uint64 // types of those with code
	importedFunctions, importedGlobals uint64
	tick, copy, fill                   uint64
}

func survey(sections []section) (surveyed, error) {
	var m surveyed
	for _, id := range []byte{sectionType, sectionImport, sectionFunction, sectionGlobal, sectionExport, sectionCode} {
		if find(sections, id) == nil {
			return m, fmt.Errorf("the module has no section %d", id)
		}
	}
	r := reader{b: find(sections, sectionType).body}
	for n := r.u(); n > 0 && r.err == nil; n-- {
		if form := r.byte(); form != 0x60 {
			r.fail("type of form %#x", form)
		}
		params := r.u()
		r.bytes(int(params))
		r.bytes(int(r.u()))
		m.params = append(m.params, params)
	}
	if r.err != nil {
		return m, fmt.Errorf("types: %w", r.err)
	}
	r = reader{b: find(sections, sectionImport).body}
	for n := r.u(); n > 0 && r.err == nil; n-- {
		r.name()
		r.name()
		switch kind := r.byte(); kind {
		case 0:
			r.u()
			m.importedFunctions++
		case 1:
			r.byte()
			r.limits()
		case 2:
			r.limits()
		case 3:
			r.bytes(2)
			m.importedGlobals++
		default:
			r.fail("import of kind %d", kind)
		}
	}
	if r.err != nil {
		return m, fmt.Errorf("imports: %w", r.err)
	}
	r = reader{b: find(sections, sectionFunction).body}
	for n := r.u(); n > 0 && r.err == nil; n-- {
		t := r.u()
		if t >= uint64(len(m.params)) {
			r.fail("no type %d", t)
		}
		m.functions = append(m.functions, t)
	}
	if r.err != nil {
		return m, fmt.Errorf("functions: %w", r.err)
	}
	r = reader{b: find(sections, sectionExport).body}
	wanted := map[string]*uint64{tickExport: &m.tick, copyExport: &m.copy, fillExport: &m.fill}
	for n := r.u(); n > 0 && r.err == nil; n-- {
		name, kind, index := r.name(), r.byte(), r.u()
		if to := wanted[name]; to != nil && kind == 0 {
			*to = index
			delete(wanted, name)
		}
	}
	if r.err != nil {
		return m, fmt.Errorf("exports: %w", r.err)
	}
	for name := range wanted {
		return m, fmt.Errorf("the module does not export %s", name)
	}
	return m, nil
}

// fueling is the change of one function.
type fueling struct {
	*surveyed
	fuel  uint64 // the global
	every int64
	index uint64 // of the function
	local uint64 // one that is added
}

// function puts the count into a function. It returns how many loops it has.
func (f *fueling) function(body []byte, params uint64) ([]byte, int, error) {
	r := reader{b: body}
	groups, locals := r.u(), params
	begin := r.i
	for range groups {
		locals += r.u()
		r.byte()
	}
	end := r.i
	if r.err != nil {
		return nil, 0, r.err
	}
	f.local = locals

	var out []byte
	loops, changed := 0, false
	count := f.loop()
	for r.more() {
		start := r.i
		what := r.instruction()
		text := body[start:r.i]
		switch {
		case what == isLoop:
			out = append(append(out, text...), count...)
			loops++
		case what == isCopy && f.index != f.copy && f.index != f.fill:
			out = appendU(append(out, 0x10), f.copy)
		case what == isFill && f.index != f.copy && f.index != f.fill:
			out = appendU(append(out, 0x10), f.fill)
		case what == isCopy || what == isFill:
			out = append(append(out, f.bulk()...), text...)
		default:
			out = append(out, text...)
			continue
		}
		changed = true
	}
	if r.err != nil || !changed {
		return body, 0, r.err
	}
	head := append(appendU(nil, groups+1), body[begin:end]...)
	head = append(head, 1, 0x7f) // one more i32
	return append(head, out...), loops, nil
}

// loop is what a loop begins with: take one; if none is left, fill up and tick.
func (f *fueling) loop() []byte {
	b := f.global(nil, 0x23)
	b = append(b, 0x41, 1, 0x6b)
	b = appendU(append(b, 0x22), f.local) // local.tee
	b = f.global(b, 0x24)
	b = appendU(append(b, 0x20), f.local)
	b = append(b, 0x41, 0, 0x4c, 0x04, 0x40) // i32.const 0, i32.le_s, if
	b = f.global(b, 0x23)
	b = append(appendS(append(b, 0x41), f.every), 0x6a)
	b = f.global(b, 0x24)
	b = appendU(append(b, 0x10), f.tick)
	return append(b, 0x0b)
}

// bulk takes for as much memory as the number on the stack says, and leaves
// the number there.
func (f *fueling) bulk() []byte {
	b := appendU([]byte{0x22}, f.local)
	b = f.global(b, 0x23)
	b = appendU(append(b, 0x20), f.local)
	b = append(b, 0x41, bulkShift, 0x76, 0x6b) // i32.shr_u, i32.sub
	return f.global(b, 0x24)
}

func (f *fueling) global(b []byte, op byte) []byte { return appendU(append(b, op), f.fuel) }

// What matters of an instruction.
type kind byte

const (
	isOther kind = iota
	isLoop
	isCopy
	isFill
)

// instruction reads one instruction.
func (r *reader) instruction() kind {
	switch op := r.byte(); {
	case op == 0x03:
		r.s()
		return isLoop
	case op == 0x02 || op == 0x04: // block, if
		r.s()
	case op == 0x0c || op == 0x0d || op == 0x10 || op == 0x12 || op == 0xd2: // br, br_if, call, return_call, ref.func
		r.u()
	case op == 0x0e: // br_table
		for n := r.u() + 1; n > 0 && r.err == nil; n-- {
			r.u()
		}
	case op == 0x11 || op == 0x13: // call_indirect, return_call_indirect
		r.u()
		r.u()
	case op == 0x1c: // select with types
		r.bytes(int(r.u()))
	case op >= 0x20 && op <= 0x26: // locals, globals, tables
		r.u()
	case op >= 0x28 && op <= 0x3e: // memory
		r.u()
		r.u()
	case op == 0x3f || op == 0x40: // memory.size, memory.grow
		r.u()
	case op == 0x41 || op == 0x42: // constants
		r.s()
	case op == 0x43:
		r.bytes(4)
	case op == 0x44:
		r.bytes(8)
	case op == 0xd0: // ref.null
		r.s()
	case op == 0xfc:
		return r.extended()
	case op > 0xc4 && op != 0xd1 || op >= 0x05 && op < 0x0b || op > 0x13 && op < 0x1a || op == 0x27:
		if op != 0x05 { // else has nothing more
			r.fail("instruction %#x is not known", op)
		}
	}
	return isOther
}

func (r *reader) extended() kind {
	switch sub := r.u(); {
	case sub <= 7: // saturating conversions
	case sub == 10:
		r.u()
		r.u()
		return isCopy
	case sub == 11:
		r.u()
		return isFill
	case sub == 8 || sub == 12 || sub == 14: // memory.init, table.init, table.copy
		r.u()
		r.u()
	case sub <= 17:
		r.u()
	default:
		r.fail("instruction 0xfc %d is not known", sub)
	}
	return isOther
}
