package visible

import (
	"testing"
	"unicode/utf8"
)

// FuzzAppendUnstyled compares it with Unstyled.
func FuzzAppendUnstyled(f *testing.F) {
	for _, s := range []string{
		"", "plain", "\x1b[31mred\x1b[0m", "a\x1b", "a\x1b[", "a\x1b[31", "\x1b]0;title\x07x", "\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\",
		"\x1b]0;cut", "\x1b]0;cut\x1b[31m", "\x1bPdata\x1b\\x", "\x1bPdata", "\x1b(Bx", "\x1b #x", "\x1b\x1b[1mx", "\x1b[1;2 qx", "\x1b[\x7fx", "\x1b7x\x1b8",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !utf8.ValidString(s) {
			return // the regular expression sees other characters
		}
		if got, want := string(AppendUnstyled(nil, []byte(s))), Unstyled(s); got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	})
}
