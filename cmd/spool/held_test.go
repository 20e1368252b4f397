package main_test

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spool-run/spool/internal/servertest"
)

const ours = "github.com/spool-run/spool/"

// TestHeld checks the packages that are not initialised at the start of a command; see
// package lateinit. Built with a version of Go that the declarations are not for, it
// fails: look at that version's linker and runtime before you extend them.
func TestHeld(t *testing.T) {
	atStart := initialised(t)
	imports, order := packages(t)
	var all []string
	for _, declared := range []struct{ file, user string }{
		{"../../internal/cluster/natsd/serverinit/held.go", ours + "internal/cluster/natsd"},
		{"../../internal/archive/s3/minioinit/held.go", ours + "internal/archive/s3"},
	} {
		held := heldIn(t, declared.file)
		all = append(all, held...)
		for _, name := range held {
			if atStart[name] {
				t.Errorf("%s is initialised at the start", name)
			}
			for _, other := range order {
				if slices.Contains(imports[other], name) && strings.HasPrefix(other, ours) && other != declared.user {
					t.Errorf("%s imports %s, which only %s initialises", other, name, declared.user)
				}
			}
		}
		if want := slices.DeleteFunc(slices.Clone(order), func(name string) bool { return !slices.Contains(held, name) }); !slices.Equal(held, want) {
			t.Errorf("%s declares %q, want the order of their dependencies: %q", declared.file, held, want)
		}
	}
	if sampler := "github.com/nats-io/nats-server/v2/server/pse"; atStart[sampler] {
		t.Errorf("%s is initialised: every command samples its processor time", sampler)
	}
	needs := make(map[string]bool) // packages that import one that is held, directly or not
	for _, name := range order {
		needs[name] = slices.ContainsFunc(imports[name], func(imported string) bool { return needs[imported] || slices.Contains(all, imported) })
		if needs[name] && atStart[name] && !strings.HasPrefix(name, ours) {
			t.Errorf("%s is initialised at the start, and imports what is held", name)
		}
	}
}

// initialised returns the packages that a command initialises at its start.
func initialised(t *testing.T) map[string]bool {
	cmd := exec.Command(servertest.Binary(t), "--version")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	trace, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, trace)
	}
	names := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^init (\S+) @`).FindAllSubmatch(trace, -1) {
		names[importPath(t, string(m[1]))] = true
	}
	if len(names) == 0 {
		t.Fatalf("no packages in %s", trace)
	}
	return names
}

// heldIn returns the packages that a file declares, in this order.
func heldIn(t *testing.T, file string) (names []string) {
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var variables []string
	for _, m := range regexp.MustCompile(`(?m)^\t//go:linkname (\S+) (\S+)\.\.inittask$`).FindAllSubmatch(source, -1) {
		variables = append(variables, "&"+string(m[1]))
		names = append(names, importPath(t, string(m[2])))
	}
	if len(variables) == 0 {
		t.Fatalf("%s declares no package", file)
	}
	if all := strings.Join(variables, ", "); !bytes.Contains(source, fmt.Appendf(nil, "held = lateinit.Hold(%s)", all)) {
		t.Errorf("%s does not hold %s in the order in which it declares them", file, all)
	}
	return names
}

// importPath is the path of a package from its name in a symbol, such as nats%2ego.
func importPath(t *testing.T, symbol string) string {
	name, err := url.PathUnescape(symbol)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// packages returns what the packages of the program import, and all of them in the order
// of their dependencies.
func packages(t *testing.T) (imports map[string][]string, order []string) {
	cmd := exec.Command("go", "list", "-deps", "-f", `{{.ImportPath}} {{join .Imports " "}}`, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as the program is built
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list the packages of the program: %v", err)
	}
	imports = make(map[string][]string)
	for line := range strings.Lines(string(out)) {
		names := strings.Fields(line)
		imports[names[0]] = names[1:]
		order = append(order, names[0])
	}
	return imports, order
}
