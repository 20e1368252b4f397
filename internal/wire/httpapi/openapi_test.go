package httpapi

import (
	"bytes"
	"context"
	"flag"
	"os"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the files of testdata and openapi.json anew")

// TestDocument compares the OpenAPI document with the file in the repository, so
// that a change to the API is seen in review, and has another program check it.
func TestDocument(t *testing.T) {
	got, err := document("0")
	if err != nil {
		t.Fatal(err)
	}
	const golden = "openapi.json"
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the document differs from %s; go test ./internal/wire/httpapi -run TestDocument -update accepts it:\n%s", golden, cmp.Diff(string(want), string(got)))
	}
	doc, err := openapi3.NewLoader().LoadFromData(got)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(context.Background(), openapi3.EnableExamplesValidation()); err != nil {
		t.Error(err)
	}
	for i := range operations() {
		op := &operations()[i]
		for _, code := range op.problems {
			if problemOf(code).code != code {
				t.Errorf("%s %s has the problem %s, which there is not", op.method, op.pattern, code)
			}
		}
	}
}
