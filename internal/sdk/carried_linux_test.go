package sdk

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"debug/elf"
	"encoding/binary"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var packages = flag.String("packages", "", "directory with the packages that TestCarriedPrograms checks, as scripts/packages builds them")

// machines are the processors that names of packages mean.
var machines = map[string]elf.Machine{
	"x86_64.whl": elf.EM_X86_64, "aarch64.whl": elf.EM_AARCH64,
	"linux-x64-": elf.EM_X86_64, "linux-arm64-": elf.EM_AARCH64,
}

// TestCarriedPrograms checks that every package in a directory carries the program for
// the processor in its name, and that those for all processors carry none.
func TestCarriedPrograms(t *testing.T) {
	if *packages == "" {
		return // those that tests build are checked there
	}
	files, err := filepath.Glob(filepath.Join(*packages, "*.[wt][hg][lz]"))
	if err != nil || len(files) < 6 {
		t.Fatalf("packages %q, want six at least: %v", files, err)
	}
	for _, file := range files {
		checkCarried(t, file)
	}
}

// checkCarried checks the program in a package.
func checkCarried(t *testing.T, file string) {
	t.Helper()
	var want elf.Machine
	for part, machine := range machines {
		if strings.Contains(filepath.Base(file), part) {
			want = machine
		}
	}
	program, size, err := carried(file)
	if err != nil {
		t.Errorf("%s: %v", file, err)
		return
	}
	if want == 0 || size == 0 {
		if want != 0 || size != 0 {
			t.Errorf("%s carries a program of %d bytes, for %v", file, size, want)
		}
		return
	}
	// The section headers are its end. To read all of it takes seconds.
	end := program.Shoff + uint64(program.Shnum)*uint64(program.Shentsize)
	kind := elf.Type(program.Type)
	if string(program.Ident[:4]) != elf.ELFMAG || elf.Class(program.Ident[elf.EI_CLASS]) != elf.ELFCLASS64 ||
		elf.Machine(program.Machine) != want || kind != elf.ET_EXEC && kind != elf.ET_DYN || end > uint64(size) {
		t.Errorf("%s carries %d bytes with the header %+v, want a program for %v", file, size, program, want)
	}
}

// carried returns the header of the program in a wheel or an npm package, and its size,
// which is zero if there is none.
func carried(file string) (header elf.Header64, size int64, err error) {
	read := func(r io.Reader, n int64) (elf.Header64, int64, error) {
		err := binary.Read(r, binary.LittleEndian, &header)
		return header, n, err
	}
	if strings.HasSuffix(file, ".whl") {
		z, err := zip.OpenReader(file)
		if err != nil {
			return header, 0, err
		}
		defer z.Close()
		f, err := z.Open("spool/bin/spool")
		if errors.Is(err, os.ErrNotExist) {
			return header, 0, nil
		}
		if err != nil {
			return header, 0, err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return header, 0, err
		}
		return read(f, info.Size())
	}
	f, err := os.Open(file)
	if err != nil {
		return header, 0, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return header, 0, err
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return header, 0, nil
		}
		if err != nil {
			return header, 0, err
		}
		if h.Name == "package/bin/spool" {
			return read(r, h.Size)
		}
	}
}
