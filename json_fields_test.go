package spool_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write testdata/json_fields.golden anew")

// foreignJSON are the directories and files whose JSON has a spelling of its
// own.
var foreignJSON = []string{
	"internal/wire/execserver",        // the codex dialect; run/* is in runproto
	"internal/wire/rpc",               // JSON-RPC
	"internal/wire/acpapi",            // the Agent Client Protocol
	"internal/torture/codex.go",       // a codex client
	"internal/torture/inbox.go",       // a codex client
	"internal/engine/agents/acp",      // the Agent Client Protocol
	"internal/engine/agents/claude",   // the agents' own protocols
	"internal/engine/agents/codex",    //
	"internal/engine/agents/opencode", //
	"internal/engine/agents/pi",       //
	"internal/engine/agents/talk",     // what several of them share
	"internal/engine/agents/takopi",   // the format of takopi
	"internal/engine/agents/sessions", // the files of the agents
	"internal/engine/sandbox/pyodide", // between the sandbox and its workers, of one build
	"internal/engine/sandbox/wasipy",  //
	"internal/codextest",              // imitations of other programs
	"internal/modeltest",              //
	"internal/agenttest",              //
	"internal/npmtest",                //
	"internal/testcache",              //
	"internal/sdk",                    // JSON Schema
	"bench",                           // results of measurements
	"tools", "examples", "scripts", "web", "sdk",
}

// privateJSON are the directories whose JSON is only said between processes of
// one build. It follows the rules, but is not listed.
var privateJSON = []string{"internal/engine/sandbox/guest", "internal/isolate", "internal/keeper", "internal/probe", "internal/record", "internal/torture"}

// otherUnits are numbers whose name sounds like a size in bytes, and durations
// that are not in milliseconds.
var otherUnits = map[string]string{
	"agent.Usage.context_size":   "tokens",
	"spool.ProcessUse.user_us":   "microseconds: the sum over many short runs would be nothing",
	"spool.ProcessUse.system_us": "microseconds",
}

// jsonField is one field with a name in JSON.
type jsonField struct {
	owner, name, goType string
	optional, private   bool
}

func (f jsonField) path() string { return f.owner + "." + f.name }

// TestJSONFields lists every JSON field of our own in a golden file, so that a
// change to one is seen in review: fields are only ever added. With -update it
// writes the file.
func TestJSONFields(t *testing.T) {
	var got bytes.Buffer
	for _, f := range jsonFields(t) {
		if f.private {
			continue
		}
		mark := ""
		if f.optional {
			mark = " optional"
		}
		fmt.Fprintf(&got, "%s %s%s\n", f.path(), f.goType, mark)
	}
	const golden = "testdata/json_fields.golden"
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")); diff != "" {
		t.Errorf("JSON fields differ from %s; go test -run TestJSONFields -update . accepts them:\n%s", golden, diff)
	}
}

// TestJSONNames checks the spelling of every JSON field of our own.
func TestJSONNames(t *testing.T) {
	for _, f := range jsonFields(t) {
		if complaint := complaintAbout(f); complaint != "" {
			t.Errorf("%s %s: %s", f.path(), f.goType, complaint)
		}
	}
	for path := range otherUnits {
		if !slices.ContainsFunc(jsonFields(t), func(f jsonField) bool { return f.path() == path }) {
			t.Errorf("there is no field %s any more", path)
		}
	}
}

// TestJSONNamesAreChecked checks the check.
func TestJSONNamesAreChecked(t *testing.T) {
	for _, f := range []jsonField{
		{name: "maxBytes", goType: "int"}, {name: "Max", goType: "int"}, {name: "a-b", goType: "int"}, {name: "a__b", goType: "int"}, {name: "a_", goType: "int"},
		{name: "wall", goType: "time.Duration"}, {name: "timeout", goType: "int64"}, {name: "cell_timeout", goType: "int"}, {name: "timeout_seconds", goType: "int"},
		{name: "cpu_seconds", goType: "float64"}, {name: "delay_ns", goType: "int64"}, {name: "size", goType: "int64"}, {name: "memory", goType: "uint64"},
		{name: "heap_mb", goType: "int"}, {name: "bytes_max", goType: "int"}, {name: "rss", goType: "int64"}, {name: "grace_ms", goType: "string"}, {name: "grace_ms", goType: "float64"},
	} {
		if complaintAbout(f) == "" {
			t.Errorf("%s %s passes", f.name, f.goType)
		}
	}
	for _, f := range []jsonField{
		{name: "wall_ms", goType: "time.Duration"}, {name: "output_bytes", goType: "int64"}, {name: "bytes", goType: "int64"}, {name: "timeout_ms", goType: "int64"},
		{name: "size", goType: "Size"}, {name: "wait", goType: "bool"}, {name: "base64", goType: "[]byte"}, {name: "deadline", goType: "time.Time"},
	} {
		if complaint := complaintAbout(f); complaint != "" {
			t.Errorf("%s %s: %s", f.name, f.goType, complaint)
		}
	}
}

var snakeCase = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)

// complaintAbout says what is wrong with the name of a field.
func complaintAbout(f jsonField) string {
	if !snakeCase.MatchString(f.name) {
		return "not snake_case"
	}
	words := strings.Split(f.name, "_")
	last := words[len(words)-1]
	isNumber := regexp.MustCompile(`^\*?(u?int(8|16|32|64)?|float(32|64)|time\.Duration|milliseconds)$`).MatchString(f.goType)
	has := func(names ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return slices.Contains(names, w) })
	}
	switch {
	case f.goType == "time.Duration" && last != "ms",
		isNumber && has("timeout", "duration", "delay", "grace", "wall", "idle", "ttl", "wait", "interval", "deadline", "elapsed", "took") && last != "ms":
		return "a duration must end in _ms"
	case last == "ms" && (!isNumber || strings.Contains(f.goType, "float")) && f.goType != "Latency":
		return "a duration must be an integer"
	case isNumber && otherUnits[f.path()] == "" && slices.Contains([]string{"ns", "us", "s", "sec", "secs", "second", "seconds", "minutes", "hours"}, last):
		return "a duration must be in milliseconds"
	case isNumber && otherUnits[f.path()] == "" && has("size", "memory", "length", "len", "window", "rss", "bytes") && last != "bytes",
		isNumber && slices.Contains([]string{"kb", "mb", "gb", "kib", "mib", "gib"}, last):
		return "a size must end in _bytes"
	}
	return ""
}

// jsonFields returns the fields of all structs of our own that have names in
// JSON, in the order of their packages and types.
func jsonFields(t *testing.T) []jsonField {
	t.Helper()
	var all []jsonField
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		path = filepath.ToSlash(path)
		if d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || slices.Contains(foreignJSON, path)) {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || slices.Contains(foreignJSON, path) {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		private := slices.ContainsFunc(privateJSON, func(dir string) bool { return strings.HasPrefix(path, dir+"/") })
		for _, f := range fieldsOf(file) {
			f.private = private
			all = append(all, f)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatal("no fields were found")
	}
	slices.SortStableFunc(all, func(a, b jsonField) int { return strings.Compare(a.owner, b.owner) })
	return all
}

// fieldsOf returns the fields in one file. The owner of a field is the type,
// or the function, whose struct it is in.
func fieldsOf(file *ast.File) []jsonField {
	var all []jsonField
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			owner := d.Name.Name
			if d.Recv != nil {
				recv := strings.TrimPrefix(types.ExprString(d.Recv.List[0].Type), "*")
				if owner = recv + "." + owner; d.Name.Name == "UnmarshalJSON" || d.Name.Name == "MarshalJSON" {
					owner = recv // the form of the type itself
				}
			}
			all = append(all, fieldsIn(d, file.Name.Name+"."+owner)...)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				// A type such as limitsJSON is the form of another type,
				// whose own names are listed.
				if s, ok := spec.(*ast.TypeSpec); ok && (s.Name.IsExported() || !strings.HasSuffix(s.Name.Name, "JSON")) {
					all = append(all, fieldsIn(s, file.Name.Name+"."+s.Name.Name)...)
				}
			}
		}
	}
	return all
}

func fieldsIn(n ast.Node, owner string) []jsonField {
	var all []jsonField
	ast.Inspect(n, func(n ast.Node) bool {
		field, ok := n.(*ast.Field)
		if !ok || field.Tag == nil {
			return true
		}
		tag, err := strconv.Unquote(field.Tag.Value)
		if err != nil {
			return true
		}
		name, options, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
		if name == "" || name == "-" {
			return true
		}
		goType := "struct"
		if _, anonymous := field.Type.(*ast.StructType); !anonymous {
			goType = types.ExprString(field.Type)
		}
		all = append(all, jsonField{owner: owner, name: name, goType: goType, optional: strings.Contains(options, "omit")})
		return true
	})
	return all
}
