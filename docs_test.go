package spool_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"

	"github.com/spool-run/spool/internal/cli"
)

// TestDocs checks that everything the documentation names exists: files, links,
// Go symbols, commands and their flags, tests, make targets, and words of the
// protocols.
func TestDocs(t *testing.T) {
	d := newDocs(t)
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, "README.md", "CONTRIBUTING.md", "SECURITY.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range d.page(page, string(text)) {
			t.Error(problem)
		}
	}
	for _, kind := range []string{"link", "path", "symbol", "command", "flag", "test", "target", "method", "word"} {
		if d.checked[kind] == 0 {
			t.Errorf("the documentation names no %s: the test does not find them", kind)
		}
	}
}

// TestDocsFindsMistakes checks that the test of the documentation finds names
// that do not exist, and accepts those that do.
func TestDocsFindsMistakes(t *testing.T) {
	d := newDocs(t)
	for text, want := range map[string]string{
		"a [page](docs/nowhere.md)":                            "no file docs/nowhere.md",
		"a [page](docs/glossary.md#run)":                       "",
		"in `nowhere/` of `internal/`":                         "no file nowhere/",
		"in `internal/nowhere/`":                               "no file internal/nowhere/",
		"in `nowhere_linux.go`":                                "no file nowhere_linux.go",
		"in `docs_test.go` and `docs/*.md`":                    "",
		"call `spool.Nothing`":                                 "no symbol spool.Nothing",
		"call `spool.Run.Nothing`":                             "no symbol spool.Run.Nothing",
		"call `Run.Nothing`":                                   "no symbol Run.Nothing",
		"call `spool.Run.Wait` or `Run.Wait()`":                "",
		"call `os.Nothing`":                                    "no symbol os.Nothing",
		"```go\nx := spool.Nothing{}\n```":                     "no symbol spool.Nothing",
		"type `spool rnu`":                                     "no command spool rnu",
		"type `spool run --nothing`":                           "spool run has no flag --nothing",
		"with `--nothing`":                                     "no command has the flag --nothing",
		"type `spool run --name NAME -- make --nothing`":       "",
		"```\n$ bin/spool logs --nothing x    # text\n```":     "spool logs has no flag --nothing",
		"```\nspool agent nobody --json \"a --b\"   text\n```": "",
		"see `TestNothing`":                                    "no test TestNothing",
		"see `TestDocsFinds…` and `TestDocsFindsMistakes`":     "",
		"see `a_test_that_nobody_wrote`":                       "no name a_test_that_nobody_wrote",
		"run `make nothing`":                                   "no target nothing in the Makefile",
		"send `run/nothing`":                                   "no method run/nothing",
		"send `process/start|nothing`":                         "no method process/nothing",
		"the variable `nothingOfThisName`":                     "no name nothingOfThisName",
	} {
		problems := strings.Join(d.page("README.md", text), "\n")
		switch {
		case want == "" && problems != "":
			t.Errorf("%s: found %s", text, problems)
		case want != "" && !strings.Contains(problems, want):
			t.Errorf("%s: found %q, want %q", text, problems, want)
		case want != "" && !strings.HasPrefix(problems, "README.md:"):
			t.Errorf("%s: %q does not name its line", text, problems)
		}
	}
}

// docs checks pages of the documentation.
type docs struct {
	files   map[string]bool            // paths of files and directories
	symbols map[string]map[string]bool // by package name: Name, Type.Member
	members map[string]bool            // Name, Type.Member and Member of any package
	tests   map[string]string          // the directory of a test
	words   map[string]bool            // strings of the code, and identifiers in them
	inDir   map[string]map[string]bool // strings of the tests of a directory
	targets map[string]bool            // of the Makefile
	root    *cobra.Command
	checked map[string]int // by kind
}

// foreign words are not ours: modules of Python and terms of Linux.
var foreignTerms = map[string]bool{
	"asyncio": true, "inspect": true, "os": true, "socket": true, "subprocess": true, "sys": true, "urllib": true,
	"no_new_privs": true, "top": true,
}

// newDocs returns what the tree holds. The tests share one.
func newDocs(t *testing.T) *docs {
	t.Helper()
	d, err := readDocs()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

var readDocs = sync.OnceValues(func() (*docs, error) {
	d := &docs{
		files: map[string]bool{}, symbols: map[string]map[string]bool{}, members: map[string]bool{}, tests: map[string]string{},
		words: map[string]bool{}, inDir: map[string]map[string]bool{}, targets: map[string]bool{}, root: cli.Tree(), checked: map[string]int{},
	}
	if err := filepath.WalkDir(".", d.visit); err != nil {
		return nil, err
	}
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		return nil, err
	}
	for _, m := range regexp.MustCompile(`(?m)^([\w-]+):`).FindAllSubmatch(makefile, -1) {
		d.targets[string(m[1])] = true
	}
	return d, nil
})

// visit records one file of the tree.
func (d *docs) visit(name string, entry fs.DirEntry, err error) error {
	if err != nil {
		return err
	}
	name = filepath.ToSlash(name)
	if entry.IsDir() && (name == ".git" || name == ".cache" || name == "bin" || name == "bench/results") {
		return fs.SkipDir
	}
	d.files[name] = true
	switch path.Ext(name) {
	case ".go":
		return d.parse(name)
	case ".py", ".js", ".mjs":
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		d.addWords(string(text))
	}
	return nil
}

// parse records the declarations and strings of a Go file.
func (d *docs) parse(name string) error {
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	pkg, dir, isTest := file.Name.Name, path.Dir(name), strings.HasSuffix(name, "_test.go")
	if d.symbols[pkg] == nil && !isTest {
		d.symbols[pkg] = map[string]bool{}
	}
	declare := func(parts ...string) {
		if isTest {
			return
		}
		d.symbols[pkg][strings.Join(parts, ".")] = true
		d.members[strings.Join(parts, ".")] = true
		d.members[parts[len(parts)-1]] = true
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			switch {
			case n.Recv != nil:
				declare(receiverName(n.Recv.List[0].Type), n.Name.Name)
			case isTest && testNameRE.MatchString(n.Name.Name):
				d.tests[n.Name.Name] = dir
			default:
				declare(n.Name.Name)
			}
		case *ast.TypeSpec:
			declare(n.Name.Name)
			for _, m := range memberNames(n.Type) {
				declare(n.Name.Name, m)
			}
		case *ast.ValueSpec:
			for _, id := range n.Names {
				declare(id.Name)
			}
		case *ast.BasicLit:
			if n.Kind == token.STRING && name != "docs_test.go" {
				d.literal(n.Value, dir)
			}
		}
		return true
	})
	return nil
}

// receiverName returns the name of a method's type.
func receiverName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiverName(e.X)
	case *ast.IndexExpr:
		return receiverName(e.X)
	case *ast.IndexListExpr:
		return receiverName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// memberNames returns the names of the fields of a struct or the methods of an
// interface.
func memberNames(e ast.Expr) []string {
	var list *ast.FieldList
	switch e := e.(type) {
	case *ast.StructType:
		list = e.Fields
	case *ast.InterfaceType:
		list = e.Methods
	default:
		return nil
	}
	var names []string
	for _, f := range list.List {
		for _, id := range f.Names {
			names = append(names, id.Name)
		}
	}
	return names
}

// literal records a string of the code. A subtest's name has underscores for
// spaces.
func (d *docs) literal(quoted, dir string) {
	s, err := strconv.Unquote(quoted)
	if err != nil {
		return
	}
	if name, _, _ := strings.Cut(reflect.StructTag(s).Get("json"), ","); name != "" {
		d.words[name] = true
	}
	s = strings.TrimSpace(s)
	d.words[s] = true
	d.words[strings.ReplaceAll(s, " ", "_")] = true
	if d.inDir[dir] == nil {
		d.inDir[dir] = map[string]bool{}
	}
	d.inDir[dir][strings.ReplaceAll(s, " ", "_")] = true
	d.addWords(s)
}

var wordRE = regexp.MustCompile(`[A-Za-z_][\w]*(?:[./][A-Za-z_]\w*)*`)

func (d *docs) addWords(text string) {
	for _, w := range wordRE.FindAllString(text, -1) {
		d.words[w] = true
	}
	for _, w := range regexp.MustCompile(`\w+`).FindAllString(text, -1) {
		d.words[w] = true
	}
}

var (
	linkRE     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	codeRE     = regexp.MustCompile("`([^`]+)`")
	goSymbolRE = regexp.MustCompile(`\b([a-z]\w*)\.([A-Z]\w*)`)

	testNameRE = regexp.MustCompile(`^(Test|Fuzz|Benchmark)[A-Z]\w*$`)
	testRE     = regexp.MustCompile(`^(?:Test|Fuzz|Benchmark)[A-Z]\w*(…?)((?:/[^/ ]+)*)$`)
	pathRE     = regexp.MustCompile(`^[\w.*-]+(/[\w.*-]+)*/?$`)
	fileNameRE = regexp.MustCompile(`\.(go|md|py|js|mjs|ts|txtar|yml)$`)
	methodRE   = regexp.MustCompile(`^([a-zA-Z]+/)([a-zA-Z0-9]+(?:\|[a-zA-Z0-9]+)*)(/[a-zA-Z]+)?$`)
	dottedRE   = regexp.MustCompile(`^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$`)
	nameRE     = regexp.MustCompile(`^(?:[a-z][a-z0-9]*(?:_[a-z0-9]+)+|[a-z]+[A-Z]\w*|[A-Z][a-z]\w*)$`)
	flagRE     = regexp.MustCompile(`--[a-z][a-z0-9-]*`)
	promptRE   = regexp.MustCompile(`(?:^|[ ;&|(])(?:bin/)?spool( .*)`)
	quotesRE   = regexp.MustCompile(`'[^']*'|"[^"]*"`)
)

// page returns the problems of a page, each with its file and line.
func (d *docs) page(file, text string) []string {
	var problems []string
	fence, fenced := "", false
	for i, line := range strings.Split(text, "\n") {
		report := func(format string, args ...any) {
			problems = append(problems, fmt.Sprintf("%s:%d: %s", file, i+1, fmt.Sprintf(format, args...)))
		}
		if info, ok := strings.CutPrefix(strings.TrimSpace(line), "```"); ok {
			fence, fenced = info, !fenced
			continue
		}
		switch {
		case fenced && fence == "go":
			for _, m := range goSymbolRE.FindAllStringSubmatch(line, -1) {
				if symbols := d.symbols[m[1]]; symbols != nil && m[1] != "main" {
					d.check(symbols[m[2]], "symbol", report, "no symbol %s", m[0])
				}
			}
		case fenced && fence == "":
			d.commands(line, report)
		case !fenced:
			for _, m := range linkRE.FindAllStringSubmatch(line, -1) {
				d.link(file, m[1], report)
			}
			for _, m := range codeRE.FindAllStringSubmatch(line, -1) {
				d.span(file, m[1], report)
			}
		}
	}
	return problems
}

type docReporter func(format string, args ...any)

// check counts a mention and reports one that is wrong.
func (d *docs) check(ok bool, kind string, report docReporter, format string, args ...any) {
	d.checked[kind]++
	if !ok {
		report(format, args...)
	}
}

// link checks the target of a link.
func (d *docs) link(file, target string, report docReporter) {
	if strings.Contains(target, "://") {
		return
	}
	target, _, _ = strings.Cut(target, "#")
	if target = path.Join(path.Dir(file), target); target != "." {
		d.check(d.files[target], "link", report, "no file %s", target)
	}
}

// span checks a span of code.
func (d *docs) span(file, s string, report docReporter) {
	s = strings.TrimSuffix(strings.TrimSpace(s), "()")
	switch {
	case testRE.MatchString(s):
		d.test(s, report)
	case strings.HasPrefix(s, "spool ") || strings.HasPrefix(s, "bin/spool "):
		d.commands(s, report)
	case strings.HasPrefix(s, "make "):
		for _, target := range strings.Fields(s)[1:] {
			d.check(d.targets[target], "target", report, "no target %s in the Makefile", target)
		}
	case strings.HasPrefix(s, "--"):
		for _, f := range flagRE.FindAllString(s, -1) {
			d.check(anyHasFlag(d.root, f), "flag", report, "no command has the flag %s", f)
		}
	case pathRE.MatchString(s) && d.isPath(s):
		d.check(d.exists(file, s), "path", report, "no file %s", s)
	case methodRE.MatchString(s):
		m := methodRE.FindStringSubmatch(s)
		for _, verb := range strings.Split(m[2], "|") {
			d.check(d.words[m[1]+verb+m[3]], "method", report, "no method %s", m[1]+verb+m[3])
		}
	case dottedRE.MatchString(s):
		d.symbol(s, report)
	case nameRE.MatchString(s):
		d.check(d.words[s] || d.members[s] || foreignTerms[s], "word", report, "no name %s", s)
	}
}

// isPath reports whether a span is meant as a path of the tree.
func (d *docs) isPath(s string) bool {
	first, _, slash := strings.Cut(s, "/")
	return fileNameRE.MatchString(s) || strings.HasSuffix(s, "/") || slash && d.files[first]
}

// exists reports whether a path, or the end of a path, is in the tree.
func (d *docs) exists(file, pattern string) bool {
	pattern, isDir := strings.CutSuffix(pattern, "/")
	for name := range d.files {
		for _, prefix := range []string{"", path.Dir(file) + "/"} {
			if ok, _ := path.Match(prefix+pattern, name); ok {
				return true
			}
		}
		// The end of a path has as many elements as the pattern.
		elements := strings.Split(name, "/")
		if n := len(elements) - strings.Count(pattern, "/") - 1; n > 0 && (isDir || strings.Contains(pattern, "/") || fileNameRE.MatchString(pattern)) {
			if ok, _ := path.Match(pattern, strings.Join(elements[n:], "/")); ok {
				return true
			}
		}
	}
	return false
}

// symbol checks pkg.Name, pkg.Type.Member, Type.Member and dotted words of a
// protocol.
func (d *docs) symbol(s string, report docReporter) {
	first, rest, _ := strings.Cut(s, ".")
	symbols, ok := d.symbols[first]
	switch {
	case ok && symbols[rest]:
		d.check(true, "symbol", report, "")
	case d.words[s] || foreignTerms[first] && strings.ToLower(rest) == rest:
		d.check(true, "word", report, "")
	default:
		d.check(d.members[s], "symbol", report, "no symbol %s", s)
	}
}

// test checks a test and the beginnings of its subtests: TestX, TestX…,
// TestX/name, TestX/*/04…08.
func (d *docs) test(s string, report docReporter) {
	s, subtests, _ := strings.Cut(s, "/")
	found := d.tests[s]
	if prefix, ok := strings.CutSuffix(s, "…"); ok {
		for test, dir := range d.tests {
			if strings.HasPrefix(test, prefix) {
				found = dir
			}
		}
	}
	d.check(found != "", "test", report, "no test %s", s)
	if found == "" || subtests == "" {
		return
	}
	for _, element := range strings.Split(subtests, "/") {
		for _, prefix := range strings.Split(element, "…") {
			ok := prefix == "*"
			for literal := range d.inDir[found] {
				ok = ok || strings.HasPrefix(literal, prefix)
			}
			d.check(ok, "test", report, "no subtest %s of %s", prefix, s)
		}
	}
}

// commands checks the verbs and flags of the spool commands in a line.
func (d *docs) commands(line string, report docReporter) {
	line = quotesRE.ReplaceAllString(line, "QUOTED")
	for _, part := range regexp.MustCompile(`  |, |[|;&#]`).Split(line, -1) {
		if m := promptRE.FindStringSubmatch(part); m != nil {
			d.command(strings.Fields(m[1]), report)
		}
	}
}

// command checks one command line, without the name of the program.
func (d *docs) command(args []string, report docReporter) {
	cmd := d.root
	positional := false
	for i := 0; i < len(args); i++ {
		arg := args[i]
		switch {
		case arg == "--" || strings.HasSuffix(arg, ".py"):
			return // what follows is for another program
		case strings.HasPrefix(arg, "-") && len(arg) > 1:
			arg, _, hasValue := strings.Cut(arg, "=")
			takesValue, ok := lookupFlag(cmd, arg)
			d.check(ok, "flag", report, "%s has no flag %s", cmd.CommandPath(), arg)
			if takesValue && !hasValue {
				i++
			}
		case !positional && subcommandOf(cmd, arg) != nil:
			cmd = subcommandOf(cmd, arg)
			d.check(true, "command", report, "")
		default:
			positional = true
			if cmd == d.root {
				d.check(false, "command", report, "no command spool %s", arg)
				return
			}
		}
	}
}

func subcommandOf(cmd *cobra.Command, name string) *cobra.Command {
	for _, c := range cmd.Commands() {
		if c.Name() == name || c.HasAlias(name) {
			return c
		}
	}
	return nil
}

// lookupFlag finds a flag of a command and reports whether it takes a value.
func lookupFlag(cmd *cobra.Command, arg string) (takesValue, ok bool) {
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	flags := cmd.Flags()
	flags.AddFlagSet(cmd.InheritedFlags())
	f := flags.Lookup(strings.TrimLeft(arg, "-"))
	if !strings.HasPrefix(arg, "--") {
		f = flags.ShorthandLookup(arg[1:2])
	}
	return f != nil && f.NoOptDefVal == "", f != nil
}

// anyHasFlag reports whether a command or one of its subcommands has a flag.
func anyHasFlag(cmd *cobra.Command, arg string) bool {
	if _, ok := lookupFlag(cmd, arg); ok {
		return true
	}
	for _, c := range cmd.Commands() {
		if anyHasFlag(c, arg) {
			return true
		}
	}
	return false
}
