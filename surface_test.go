package spool_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// public are all packages that a program outside this module can import, with
// the module's own name for the root.
var public = []string{".", "agent", "client", "local", "python", "render", "search", "serve"}

// The most exported names there may be: constants, variables, types and
// functions of the root package, and the same and methods of all packages.
const (
	maxRootNames = 131
	maxNames     = 415
)

// TestPublicSurface fails if a package became public that is not meant to be,
// or if the public packages have more names than a person wants to read.
func TestPublicSurface(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", "{{.Name}} {{.Dir}}", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(string(out)) {
		name, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		dir, err := filepath.Rel(root, dir)
		if err != nil {
			t.Fatal(err)
		}
		if name != "main" && !slices.Contains(strings.Split(dir, string(filepath.Separator)), "internal") {
			found = append(found, dir)
		}
	}
	slices.Sort(found)
	if !slices.Equal(found, public) {
		t.Errorf("public packages %q, want %q", found, public)
	}
	total := 0
	for _, dir := range public {
		names, methods := exported(t, dir)
		t.Logf("%s: %d names, %d methods", dir, names, methods)
		if dir == "." && names > maxRootNames {
			t.Errorf("the root package exports %d names, and may %d", names, maxRootNames)
		}
		total += names + methods
	}
	if total > maxNames {
		t.Errorf("the public packages export %d names, and may %d", total, maxNames)
	}
}

// exported counts the exported names of a package, and the exported methods of
// its exported types.
func exported(t *testing.T, dir string) (names, methods int) {
	t.Helper()
	count := make(map[string]bool) // whether it is a method; files for several systems repeat names
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range f.Decls {
			note(count, decl)
		}
	}
	for _, method := range count {
		if method {
			methods++
		} else {
			names++
		}
	}
	return names, methods
}

// note takes the exported names of a declaration.
func note(count map[string]bool, decl ast.Decl) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			if d.Name.IsExported() {
				count[d.Name.Name] = false
			}
			return
		}
		recv := d.Recv.List[0].Type
		if star, ok := recv.(*ast.StarExpr); ok {
			recv = star.X
		}
		if generic, ok := recv.(*ast.IndexExpr); ok {
			recv = generic.X
		}
		if id, ok := recv.(*ast.Ident); ok && id.IsExported() && d.Name.IsExported() {
			count[id.Name+"."+d.Name.Name] = true
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() {
					count[s.Name.Name] = false
				}
			case *ast.ValueSpec:
				for _, name := range s.Names {
					if name.IsExported() {
						count[name.Name] = false
					}
				}
			}
		}
	}
}
