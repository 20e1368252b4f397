package cli

import (
	"bytes"
	"testing"
)

// TestScreenFilter checks what a run can do to a terminal, in one write and byte
// by byte.
func TestScreenFilter(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"text", "plain äöü 日本 🎉\r\n\ttab\b\a", "plain äöü 日本 🎉\r\n\ttab\b\a"},
		{"colours", "\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m"},
		{"cursor", "\x1b[2J\x1b[10;20H\x1b[3A\x1b[K\x1b7\x1b8\x1bM\x1b(B\x1b[2 q\x1b[!p", "\x1b[2J\x1b[10;20H\x1b[3A\x1b[K\x1b7\x1b8\x1bM\x1b(B\x1b[2 q\x1b[!p"},
		{"alternate screen", "\x1b[?1049h\x1b[?25l\x1b[?2004h\x1b[1;5r\x1b[?1049l", "\x1b[?1049h\x1b[?25l\x1b[?2004h\x1b[1;5r\x1b[?1049l"},
		{"keyboard modes", "\x1b[>4;2m\x1b[>1u\x1b[<u\x1b=\x1b>", "\x1b[>4;2m\x1b[>1u\x1b[<u\x1b=\x1b>"},
		{"clipboard", "a\x1b]52;c;cm0gLXJm\ab\x1b]52;c;cm0gLXJm\x1b\\c", "abc"},
		{"title", "a\x1b]0;title\ab\x1b]2;title\x1b\\c\x1bktitle\x1b\\d", "abcd"},
		{"unfinished title", "a\x1b]0;title\nb", "a\nb"},
		{"queries", "a\x1b[6n\x1b[c\x1b[>c\x1b[21t\x1b[?1$p\x1b[>q\x1b[?u\x1bZ\x05b", "ab"},
		{"strings", "a\x1bP$qm\x1b\\b\x1b_x\x1b\\c\x1b^x\x1b\\d", "abcd"},
		{"printing", "a\x1b[5ib", "ab"},
		{"cancelled", "a\x1b[6\x18b\x1b]0;x\x1ac", "abc"},
		{"nested", "a\x1b\x1b]0;x\ab\x1b[\x1b[6nc", "abc"},
		{"8-bit controls", "a\u009d0;x\u009c\u009b6nb", "a0;x6nb"},
		{"bidirectional", "a\u202eb\u2066c\u2069", "abc"},
		{"zero width", "a\u200bb\ufeffc\u00ad\U000e0041", "abc"},
		{"not UTF-8", "a\xff\xc3b\xe2\x80c", "a\xff\xc3b\xe2\x80c"},
	} {
		var whole, single bytes.Buffer
		if _, err := (&screenFilter{w: &whole}).Write([]byte(c.in)); err != nil {
			t.Fatal(err)
		}
		f := &screenFilter{w: &single}
		for i := range len(c.in) {
			if n, err := f.Write([]byte{c.in[i]}); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
		if whole.String() != c.want || single.String() != c.want {
			t.Errorf("%s: %q\nat once       %q\nbyte by byte  %q\nwant          %q", c.name, c.in, whole.String(), single.String(), c.want)
		}
	}
}

// TestPlainShowsHiddenCharacters checks how lists and questions show characters
// that are not seen or act on a terminal.
func TestPlainShowsHiddenCharacters(t *testing.T) {
	for in, want := range map[string]string{
		"make test":        "make test",
		"a\nb\tc":          "a b c",
		"\x1b]0;x\a":       `\x1b]0;x\x07`,
		"rm \u202etxt.exe": `rm \u202etxt.exe`,
		"a\u200bb\u009bc":  `a\u200bb\x9bc`,
		"tag\U000e0041":    `tag\U000e0041`,
		"日本 ä 🎉":           "日本 ä 🎉",
	} {
		if got := plain(in); got != want {
			t.Errorf("%q is shown as %q, want %q", in, got, want)
		}
	}
}
