package sessions

import (
	"errors"
	"testing"
)

func TestResumeLine(t *testing.T) {
	tests := []struct {
		engine, value, want string
	}{
		{"codex", "0199-ab", "`codex resume 0199-ab`"},
		{"claude", "db7b13cd", "`claude --resume db7b13cd`"},
		{"opencode", "ses_4bX", "`opencode --session ses_4bX`"},
		{"pi", "01a1dc86-46f9", "`pi --session 01a1dc86-46f9`"},
		{"pi", "/home/me/my sessions/a.jsonl", "`pi --session \"/home/me/my sessions/a.jsonl\"`"},
		{"pi", `/tmp/a "b".jsonl`, "`pi --session \"/tmp/a \\\"b\\\".jsonl\"`"},
		{"acp", "5ebed525", "`spool agent acp --resume 5ebed525 -- gemini --acp`"},
	}
	for _, tt := range tests {
		token := Token{tt.engine, tt.value}
		var command []string
		if tt.engine == "acp" {
			command = []string{"gemini", "--acp"}
		}
		got, err := ResumeLine(tt.engine, token, command...)
		if err != nil || got != tt.want {
			t.Errorf("ResumeLine(%v) = %s, %v; want %s", token, got, err, tt.want)
		}
		if back, ok := FindResume(tt.engine, "Done.\n\n"+got+"\n"); !ok || back != token {
			t.Errorf("%s was read back as %v, %v", got, back, ok)
		}
	}
	for _, bad := range []struct {
		engine string
		token  Token
	}{
		{"codex", Token{"claude", "a"}},
		{"codex", Token{"codex", ""}},
		{"codex", Token{"codex", "a b"}},
		{"codex", Token{"codex", "a`b"}},
		{"opencode", Token{"opencode", "abc"}},
		{"pi", Token{"pi", "  "}},
		{"pi", Token{"pi", "a\nb"}},
		{"none", Token{"none", "a"}},
	} {
		if line, err := ResumeLine(bad.engine, bad.token); !errors.Is(err, ErrToken) {
			t.Errorf("ResumeLine(%s, %v) = %s, %v", bad.engine, bad.token, line, err)
		}
	}
}

func TestFindResume(t *testing.T) {
	tests := []struct {
		name, engine, text, want string
	}{
		{"nothing", "codex", "", ""},
		{"plain", "codex", "codex resume abc", "abc"},
		{"blanks and backticks", "codex", "  ` codex  resume\tabc `  ", "abc"},
		{"case", "codex", "CODEX Resume AbC", "AbC"},
		{"carriage return", "codex", "codex resume abc\r\nbye", "abc"},
		{"last wins", "codex", "codex resume a\ntext\n`codex resume b`\n", "b"},
		{"text before", "codex", "run codex resume abc", ""},
		{"text after", "codex", "codex resume abc please", ""},
		{"text after the backtick", "codex", "`codex resume abc` now", ""},
		{"headless form", "codex", "codex exec resume abc -", ""},
		{"other engine", "codex", "claude --resume abc", ""},
		{"a mention does not undo a line", "codex", "codex resume a\nsee codex resume b for more", "a"},
		{"long flag", "claude", "claude --resume abc", "abc"},
		{"short flag", "claude", "`claude -r abc`", "abc"},
		{"headless claude", "claude", "claude -p --resume abc", ""},
		{"opencode", "opencode", "opencode --session ses_1a", "ses_1a"},
		{"opencode run", "opencode", "opencode run -s ses_1a", "ses_1a"},
		{"opencode shape", "opencode", "opencode --session abc", ""},
		{"opencode shape skips", "opencode", "opencode -s ses_1\nopencode -s ses-2", "ses_1"},
		{"pi id", "pi", "pi --session 01a1", "01a1"},
		{"pi rest of line", "pi", "pi --session /a b/c.jsonl", "/a b/c.jsonl"},
		{"pi double quotes", "pi", `pi --session "/a \"b\"/c.jsonl"`, `/a "b"/c.jsonl`},
		{"pi single quotes", "pi", "`pi --session '/a b'`", "/a b"},
		{"pi unmatched quotes", "pi", `pi --session "/a b'`, `"/a b'`},
		{"pi blank", "pi", `pi --session "  "`, ""},
		{"acp", "acp", "spool agent acp --resume x1", "x1"},
		{"acp with a command", "acp", "`spool agent acp --resume x1 -- gemini --acp`", "x1"},
		{"acp with a prompt", "acp", "spool agent acp --resume x1 hello", ""},
		{"unknown engine", "none", "none resume a", ""},
	}
	for _, tt := range tests {
		got, ok := FindResume(tt.engine, tt.text)
		if ok != (tt.want != "") || got.Value != tt.want && ok {
			t.Errorf("%s: FindResume(%s, %q) = %v, %v; want %q", tt.name, tt.engine, tt.text, got, ok, tt.want)
		}
	}
}

func TestRouteResume(t *testing.T) {
	engines := []string{"codex", "claude"}
	tests := []struct {
		texts []string
		want  Token
	}{
		{[]string{"hello", "`claude --resume c1`"}, Token{"claude", "c1"}},
		{[]string{"codex resume x", "`claude --resume c1`"}, Token{"codex", "x"}},
		{[]string{"claude --resume c1\ncodex resume x"}, Token{"codex", "x"}},
		{[]string{"pi --session p"}, Token{}},
		{nil, Token{}},
	}
	for _, tt := range tests {
		if got, ok := RouteResume(engines, tt.texts...); got != tt.want || ok != !tt.want.IsZero() {
			t.Errorf("RouteResume(%q) = %v, %v; want %v", tt.texts, got, ok, tt.want)
		}
	}
}

func TestStripResume(t *testing.T) {
	engines := []string{"codex", "claude"}
	for text, want := range map[string]string{
		"hello\n":                                "hello\n",
		"codex resume a":                         ContinuePrompt,
		"\n`claude -r b`\n  \n":                  ContinuePrompt,
		"fix it\ncodex resume a\nand that\n":     "fix it\nand that",
		"see codex resume a\nclaude --resume b ": "see codex resume a",
	} {
		if got := StripResume(engines, text); got != want {
			t.Errorf("StripResume(%q) = %q, want %q", text, got, want)
		}
	}
}

// FuzzFindResume checks that whatever is found is a token that can be written
// down and found again.
func FuzzFindResume(f *testing.F) {
	for engine := range resumeSyntaxes() {
		f.Add(engine, "codex resume a\nclaude -r b\nopencode -s ses_c\npi --session \"d e\"\nspool agent acp --resume f -- x")
	}
	f.Fuzz(func(t *testing.T, engine, text string) {
		token, ok := FindResume(engine, text)
		if !ok {
			return
		}
		line, err := ResumeLine(engine, token)
		if err != nil {
			t.Fatalf("%v was found and cannot be written: %v", token, err)
		}
		if back, ok := FindResume(engine, line); !ok || back != token {
			t.Fatalf("%v, written as %s, was read as %v", token, line, back)
		}
	})
}
