package main

import (
	"errors"
	"fmt"
)

// The names the fuel has in a module.
const (
	tickExport = "sb_tick"
	fuelExport = "sb_fuel"
)

// addFuel makes every pass of a loop header count: each takes one from a new
// global, and the one that takes the last fills it up again and calls the
// function that the module exports as sb_tick. So the host gets a word in any
// loop, be it in C or in Python, and the work done can be counted.
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
			body, found, err = fuelFunction(body, m.params[m.functions[i]], fuel, m.tick, every)
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
	tick                               uint64
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
	found := false
	for n := r.u(); n > 0 && r.err == nil; n-- {
		name, kind, index := r.name(), r.byte(), r.u()
		if name == tickExport && kind == 0 {
			m.tick, found = index, true
		}
	}
	if r.err != nil {
		return m, fmt.Errorf("exports: %w", r.err)
	}
	if !found {
		return m, fmt.Errorf("the module does not export %s", tickExport)
	}
	return m, nil
}

// fuelFunction puts the count into the loops of one function.
func fuelFunction(body []byte, params, fuel, tick uint64, every int64) ([]byte, int, error) {
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

	// fuel--; if it is zero, fill it up and tick.
	var count []byte
	count = appendU(append(count, 0x23), fuel)
	count = append(count, 0x41, 1, 0x6b)
	count = appendU(append(count, 0x22), locals) // local.tee
	count = appendU(append(count, 0x24), fuel)
	count = appendU(append(count, 0x20), locals)
	count = append(count, 0x45, 0x04, 0x40, 0x41) // i32.eqz, if, i32.const
	count = appendS(count, every)
	count = appendU(append(count, 0x24), fuel)
	count = appendU(append(count, 0x10), tick)
	count = append(count, 0x0b)

	var out []byte
	loops := 0
	for r.more() {
		start := r.i
		loop := r.instruction()
		out = append(out, body[start:r.i]...)
		if loop {
			out = append(out, count...)
			loops++
		}
	}
	if r.err != nil || loops == 0 {
		return body, 0, r.err
	}
	head := append(appendU(nil, groups+1), body[begin:end]...)
	head = append(head, 1, 0x7f) // one more i32
	return append(head, out...), loops, nil
}

// instruction reads one instruction and says whether it begins a loop.
func (r *reader) instruction() (loop bool) {
	switch op := r.byte(); {
	case op == 0x03:
		r.s()
		return true
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
		r.extended()
	case op > 0xc4 && op != 0xd1 || op >= 0x05 && op < 0x0b || op > 0x13 && op < 0x1a || op == 0x27:
		if op != 0x05 { // else has nothing more
			r.fail("instruction %#x is not known", op)
		}
	}
	return false
}

func (r *reader) extended() {
	switch sub := r.u(); {
	case sub <= 7: // saturating conversions
	case sub == 8 || sub == 10 || sub == 12 || sub == 14: // memory.init, memory.copy, table.init, table.copy
		r.u()
		r.u()
	case sub <= 17:
		r.u()
	default:
		r.fail("instruction 0xfc %d is not known", sub)
	}
}
