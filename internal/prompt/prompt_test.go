package prompt

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func newTestEditor(history *History) (*Editor, *bytes.Buffer) {
	var screen bytes.Buffer
	return New(Config{
		Screen: &screen, Size: func() (int, int) { return 20, 6 }, Width: func(rune) int { return 1 }, Colour: true, History: history,
		Whole:  func(text string) bool { return !strings.HasSuffix(text, ":") },
		Indent: func(string) string { return "    " },
		Complete: func(text string, cursor int) (int, []string, string) {
			return 0, []string{text[:1] + "alpha", text[:1] + "alpine"}, ""
		},
	}), &screen
}

func TestDecode(t *testing.T) {
	for in, want := range map[string]string{
		"a": "a", "é": "é", "\r": "enter", "\t": "tab", "\x7f": "backspace", "\x03": "ctrl+c", "\x1f": "ctrl+_",
		"\x1b[A": "up", "\x1bOA": "up", "\x1b[1;5D": "ctrl+left", "\x1b[1;3C": "alt+right", "\x1b[3~": "delete", "\x1b[Z": "shift+tab",
		"\x1bf": "alt+f", "\x1b\r": "alt+enter", "\x1b\x7f": "alt+backspace", "\x1b[13;2u": "alt+enter", "\x1b[99;5u": "ctrl+c",
		"\x1b[?62;4c": attributes, "\x1b_Gi=31;OK\x1b\\": graphics, "\x1b]0;title\x07": "", "\x1b[999~": "",
	} {
		k, n := decode([]byte(in), false)
		if k.name != want || n != len(in) {
			t.Errorf("%q is %q, %d bytes, want %q, %d bytes", in, k.name, n, want, len(in))
		}
	}
	for in, want := range map[string]string{"\x1b": "esc", "\x1b[": "alt+[", "\x1b[1;": "", "\xc3": "", "\x1bO": "alt+O", "\x1b_": "alt+_"} {
		if _, n := decode([]byte(in), false); n != 0 {
			t.Errorf("%q is complete", in)
		}
		if k, n := decode([]byte(in), true); k.name != want || n != len(in) {
			t.Errorf("%q is at last %q, %d bytes, want %q", in, k.name, n, want)
		}
	}
}

// A key that comes in pieces is one key, and Escape alone is one after a while.
func TestKeysInPieces(t *testing.T) {
	e, _ := newTestEditor(OpenHistory(""))
	e.Start(Mode{First: "> "})
	for _, piece := range []string{"ab", "\x1b", "[", "D", "\x1b[20", "0~x\ry\x1b[2", "01~"} {
		e.Feed([]byte(piece))
		e.Next()
	}
	if got := string(e.text); got != "ax\nyb" {
		t.Errorf("the text is %q", got)
	}
	e.Feed([]byte("\x1b"))
	if e.Next(); !e.Partial() {
		t.Error("Escape does not wait for more")
	}
	if e.Flush(); e.Partial() {
		t.Error("Escape waits forever")
	}
}

// The replies of a terminal are no keys, and keys that come before them stay.
func TestReplies(t *testing.T) {
	e, _ := newTestEditor(OpenHistory(""))
	var got []string
	e.c.Reply = func(kind, text string) { got = append(got, kind+" "+text) }
	e.Feed([]byte("a\x1b_Gi=31;OK\x1b\\b\x1b[?62;4c\x1b["))
	e.Replies()
	if diff := cmp.Diff([]string{"graphics i=31;OK", "attributes 62;4"}, got); diff != "" {
		t.Error(diff)
	}
	if string(e.in) != "ab\x1b[" {
		t.Errorf("left: %q", e.in)
	}
}

func TestHistoryFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dir", "history")
	one, two := OpenHistory(path), OpenHistory(path)
	one.Add("def f():\n\treturn 1\n\n")
	two.Add("x")
	one.Add("x = 'a\\nb'")
	one.Add("  ")
	if diff := cmp.Diff([]string{"def f():\n\treturn 1", "x", "x = 'a\\nb'"}, OpenHistory(path).cells); diff != "" {
		t.Error(diff)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	for range maxHistory + 5 {
		two.Add("a")
		two.Add("b")
	}
	if n := len(OpenHistory(path).cells); n != maxHistory {
		t.Errorf("%d cells, want %d", n, maxHistory)
	}
	b, err := os.ReadFile(path)
	if n := bytes.Count(b, []byte("\n")); err != nil || n != maxHistory {
		t.Errorf("the file has %d lines, %v", n, err)
	}
}

func TestHighlight(t *testing.T) {
	got := Highlight("@d\nasync def f(x): return rb'it\\'s' + f\"\"\"a\nb\"\"\" if x.print else 0x1F # c")
	want := "\x1b[33m@d\x1b[0m\n\x1b[1;34masync\x1b[0m \x1b[1;34mdef\x1b[0m \x1b[1;36mf\x1b[0m(x): \x1b[1;34mreturn\x1b[0m " +
		"\x1b[32mrb'it\\'s'\x1b[0m + \x1b[32mf\"\"\"a\x1b[0m\n\x1b[32mb\"\"\"\x1b[0m \x1b[1;34mif\x1b[0m x.print \x1b[1;34melse\x1b[0m \x1b[35m0x1F\x1b[0m \x1b[2;37m# c\x1b[0m"
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// FuzzEditor checks that no input of a terminal breaks the editor.
func FuzzEditor(f *testing.F) {
	f.Add([]byte("if x:\ry\x1b[A\x1b[D\x7f\t\x12a\x07\x1f\x19\x14\x1b[200~p\rq\x1b[201~\x1b\r"), 3)
	f.Add([]byte("\x1b_G\x1b\\\x1b[?1c\x1b[Z\x17\x15\x0b\x10\x0e\x0c\x1bb\x1bf\x1bd"), 1)
	f.Fuzz(func(t *testing.T, keys []byte, step int) {
		h := OpenHistory("")
		h.Add("earlier\ncell")
		e, _ := newTestEditor(h)
		e.c.Reply = func(string, string) {}
		e.Start(Mode{First: "> ", More: ". "})
		step = max(1, min(step, 64))
		for len(keys) > 0 {
			n := min(step, len(keys))
			e.Feed(keys[:n])
			keys = keys[n:]
			for state := Accepted; state != Editing; {
				if _, state = e.Next(); state == Suspended {
					e.Resume()
				} else if state != Editing {
					e.Start(Mode{First: "\x1b[1m? ", Line: n%2 == 0, Secret: n%3 == 0})
				}
			}
			e.Above([]byte("output"))
			e.Resize()
			if e.at < 0 || e.at > len(e.text) {
				t.Fatalf("the cursor is at %d of %d", e.at, len(e.text))
			}
		}
		e.Flush()
		e.Stop()
	})
}
