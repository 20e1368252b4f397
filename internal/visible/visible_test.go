package visible

import "testing"

func TestText(t *testing.T) {
	tests := []struct{ text, want string }{
		{"a\tb\r\nc\n\n", "a    b\nc"},
		{"\x1b[31mred\x07", `\x1b[31mred\x07`},
		{"a\u202eb\u200bc", `a\u202eb\u200bc`},
		{"überall 宽", "überall 宽"},
		{"", ""},
	}
	for _, tt := range tests {
		if got := Text(tt.text); got != tt.want {
			t.Errorf("Text(%q) = %q, want %q", tt.text, got, tt.want)
		}
	}
}

func TestShort(t *testing.T) {
	tests := []struct {
		text    string
		columns int
		want    string
	}{
		{"  one\n two\tthree ", 80, "one two three"},
		{"one two three", 8, "one two…"},
		{"宽宽宽", 5, "宽宽…"},
	}
	for _, tt := range tests {
		got := Short(tt.text, tt.columns)
		if got != tt.want || Width(got) > tt.columns {
			t.Errorf("Short(%q, %d) = %q of %d columns, want %q", tt.text, tt.columns, got, Width(got), tt.want)
		}
	}
}
