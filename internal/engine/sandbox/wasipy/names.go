package wasipy

import (
	"archive/zip"
	"bytes"
	"fmt"
	"strings"
)

// builtin are the modules in the interpreter itself that have no file in the
// library and that someone could ask for.
var builtin = []string{"sys", "builtins", "time", "math", "cmath", "itertools", "zlib", "marshal", "gc", "errno", "atexit", "array", "unicodedata", "binascii", "faulthandler", "select"}

// moduleNames lists the modules of the interpreter at the top.
func moduleNames(library []byte) (map[string]bool, error) {
	names := make(map[string]bool)
	for _, n := range builtin {
		names[n] = true
	}
	z, err := zip.NewReader(bytes.NewReader(library), int64(len(library)))
	if err != nil {
		return nil, fmt.Errorf("read the library: %w", err)
	}
	for _, f := range z.File {
		dir, rest, deep := strings.Cut(f.Name, "/")
		switch {
		case !deep:
			names[strings.TrimSuffix(f.Name, ".pyc")] = true
		case rest == "__init__.pyc":
			names[dir] = true
		}
	}
	return names, nil
}
