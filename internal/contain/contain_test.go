package contain_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/spool-run/spool/internal/contain"
)

func burst() { panic("burst") }

// TestDo checks what is said of a panic, and that nothing is said without one.
func TestDo(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	if !contain.Do(log, "a stream", func() {}) || out.Len() > 0 {
		t.Errorf("a function that returned: %q", out.String())
	}
	if contain.Do(log, "a stream", burst) {
		t.Error("a function that panicked is said to have returned")
	}
	for _, want := range []string{"a stream panicked", "panic=burst", "contain_test.burst"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log lacks %q: %s", want, out.String())
		}
	}
}
