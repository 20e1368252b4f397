package sdk

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the types and tools of the SDKs anew")

// TestTypes compares the types in the SDKs with the OpenAPI document, and the tools with
// those of the Model Context Protocol.
func TestTypes(t *testing.T) {
	const document, tools = "../wire/httpapi/openapi.json", "../wire/mcpapi/tools.json"
	for _, made := range []struct {
		path, from string
		write      func([]byte) ([]byte, error)
	}{
		{"../../sdk/python/src/spool/_types.py", document, Python},
		{"../../sdk/typescript/src/types.ts", document, TypeScript},
		{"../../sdk/python/src/spool/_tool_list.py", tools, PythonTools},
		{"../../sdk/typescript/src/tool_list.ts", tools, TypeScriptTools},
	} {
		source, err := os.ReadFile(made.from)
		if err != nil {
			t.Fatal(err)
		}
		got, err := made.write(source)
		if err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.WriteFile(made.path, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(made.path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			name := filepath.Base(made.path)
			t.Errorf("%s differs from %s; go test ./internal/sdk -update accepts it:\n%s", name, filepath.Base(made.from), cmp.Diff(string(want), string(got)))
		}
	}
}
