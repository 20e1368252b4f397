package mcpapi

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write tools.json anew")

// TestToolList compares the tools that every client has with the file in the
// repository, from which the SDKs have them.
func TestToolList(t *testing.T) {
	type listed struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	}
	var list []listed
	for _, tool := range tools {
		if !tool.answers {
			list = append(list, listed{tool.name, tool.description, tool.input})
		}
	}
	var got bytes.Buffer
	e := json.NewEncoder(&got)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(list); err != nil {
		t.Fatal(err)
	}
	const golden = "tools.json"
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("the tools differ from %s; go test ./internal/wire/mcpapi -run TestToolList -update accepts them:\n%s", golden, cmp.Diff(string(want), got.String()))
	}
}
