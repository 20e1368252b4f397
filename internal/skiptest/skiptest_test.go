package skiptest_test

import (
	"testing"

	"github.com/spool-run/spool/internal/skiptest"
)

// verdict records how a test ends.
type verdict struct {
	testing.TB
	text string
}

func (v *verdict) Helper()                      {}
func (v *verdict) Skip(...any)                  { v.text = "skipped" }
func (v *verdict) Fatalf(_ string, args ...any) { v.text = "failed: " + args[0].(string) }

func TestMissing(t *testing.T) {
	for ci, want := range map[string]string{"": "skipped", "1": "failed: no 7"} {
		t.Setenv("CI", ci)
		var v verdict
		if skiptest.Missing(&v, "no %d", 7); v.text != want {
			t.Errorf("with CI=%q it %s, want %s", ci, v.text, want)
		}
	}
}
