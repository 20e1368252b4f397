// Command pack makes of a linked interpreter what package wasipy embeds: its code,
// with the loops counted and without its data, and its data as memory.
//
//	pack IN.wasm CODE.wasm DATA
package main

import (
	"errors"
	"fmt"
	"os"
)

// loopsPerTick is how often the host gets a word: about every 10 µs, and in
// the longest loops there are, those of hash functions, every few ms.
const loopsPerTick = 2_000

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: pack IN.wasm CODE.wasm DATA")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

func run(in, codeFile, dataFile string) error {
	module, err := os.ReadFile(in)
	if err != nil {
		return err
	}
	sections, err := parse(module)
	if err != nil {
		return fmt.Errorf("parse %s: %w", in, err)
	}
	memory, err := flatten(sections)
	if err != nil {
		return fmt.Errorf("data of %s: %w", in, err)
	}
	sections = without(sections, sectionCustom, sectionData, sectionDataCount)
	loops, err := addFuel(sections, loopsPerTick)
	if err != nil {
		return fmt.Errorf("count the loops of %s: %w", in, err)
	}
	code := emit(sections)
	if err := os.WriteFile(codeFile, code, 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(dataFile, memory, 0o644); err != nil {
		return err
	}
	fmt.Printf("%d loops, %d bytes of code, %d of memory\n", loops, len(code), len(memory))
	return nil
}

// flatten lays the data of a module out as it will be in memory.
func flatten(sections []section) ([]byte, error) {
	data := find(sections, sectionData)
	if data == nil {
		return nil, nil
	}
	var memory []byte
	r := reader{b: data.body}
	for n := r.u(); n > 0 && r.err == nil; n-- {
		if kind := r.u(); kind != 0 {
			return nil, fmt.Errorf("segment of kind %d", kind)
		}
		if op := r.byte(); op != 0x41 {
			return nil, errors.New("segment at an address that is not constant")
		}
		at := r.s()
		if end := r.byte(); end != 0x0b {
			return nil, errors.New("segment at an address that is not constant")
		}
		bytes := r.bytes(int(r.u()))
		if at < 0 || at > 1<<30 {
			return nil, fmt.Errorf("segment at %d", at)
		}
		if grow := int(at) + len(bytes) - len(memory); grow > 0 {
			memory = append(memory, make([]byte, grow)...)
		}
		copy(memory[at:], bytes)
	}
	return memory, r.err
}
