package sdk

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the types of the SDKs anew")

// TestTypes compares the types in the SDKs with the OpenAPI document.
func TestTypes(t *testing.T) {
	document, err := os.ReadFile("../wire/httpapi/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	for path, write := range map[string]func([]byte) ([]byte, error){
		"../../sdk/python/src/spool/_types.py": Python,
		"../../sdk/typescript/src/types.ts":    TypeScript,
	} {
		got, err := write(document)
		if err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s differs from the document; go test ./internal/sdk -update accepts it:\n%s", filepath.Base(path), cmp.Diff(string(want), string(got)))
		}
	}
}
