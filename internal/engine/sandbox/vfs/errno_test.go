package vfs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestErrorNumbersAreDocumented compares the table in docs/sandbox.md with the
// numbers that guests get.
func TestErrorNumbersAreDocumented(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "sandbox.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(b)), " ")
	for e, s := range errnos {
		if want := fmt.Sprintf("`%s` %d", s.name, e); !strings.Contains(text, want+",") && !strings.Contains(text, want+".") {
			t.Errorf("docs/sandbox.md does not say %s", want)
		}
	}
}
