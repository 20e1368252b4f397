package tail_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spool-run/spool/internal/tail"
)

func TestBufferKeepsTheEnd(t *testing.T) {
	b := tail.Buffer{Max: 8}
	for _, tt := range []struct{ write, want string }{
		{" abc", "abc"}, {"def\n", "abcdef"}, {"gh", "bcdef\ngh"}, {strings.Repeat("x", 100) + "12345678", "12345678"}, {"", "12345678"},
	} {
		n, err := fmt.Fprint(&b, tt.write)
		if n != len(tt.write) || err != nil {
			t.Fatalf("wrote %d, %v", n, err)
		}
		if got := b.String(); got != tt.want {
			t.Errorf("after %q: %q, want %q", tt.write, got, tt.want)
		}
	}
}
