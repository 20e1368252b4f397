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

func TestLinesKeepBothEnds(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"", ""}, {"a\r\n\nb", "a\nb"}, {"1\n2\n3\n4\n5", "1\n2\n3\n4\n5"},
		{"1\n2\n3\n4\n5\n6\n7\n", "1\n2\n… 2 lines left out …\n5\n6\n7"},
		{strings.Repeat("x", 100_000) + "\nend\xff", "xxxxxxxx\nend\uFFFD"},
	} {
		l := tail.Lines{First: 2, Last: 3, MaxLine: 8}
		l.Read(strings.NewReader(tt.in))
		if got := l.String(); got != tt.want {
			t.Errorf("of %.40q %q is kept, want %q", tt.in, got, tt.want)
		}
	}
}

func TestPipeKeepsTheEnd(t *testing.T) {
	p, in, err := tail.NewPipe(4)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprint(in, "the last"); err != nil {
		t.Fatal(err)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	p.Wait()
	if got := p.String(); got != "last" {
		t.Errorf("it kept %q", got)
	}
}
