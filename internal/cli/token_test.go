package cli

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/spool-run/spool/internal/privatedir"
)

// TestTokenFileOfTheClient checks that a token which other users can read is not
// used.
func TestTokenFileOfTheClient(t *testing.T) {
	name := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(name, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if token, err := readToken(name); err != nil || token != "secret" {
		t.Errorf("token %q, %v", token, err)
	}
	if err := os.Chmod(name, 0o644); err != nil {
		t.Fatal(err)
	}
	if token, err := readToken(name); !errors.Is(err, privatedir.ErrNotPrivate) || token != "" {
		t.Errorf("a readable token: %q, %v", token, err)
	}
}
