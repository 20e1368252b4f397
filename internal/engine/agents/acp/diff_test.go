package acp

import "testing"

func TestLineDiff(t *testing.T) {
	tests := []struct{ before, after, want string }{
		{"", "", ""},
		{"a\n", "a\n", ""},
		{"", "a\nb\n", "@@ -0,0 +1,2 @@\n+a\n+b\n"},
		{"a\nb\nc\n", "a\nx\nc\n", "@@ -2,1 +2,1 @@\n-b\n+x\n"},
		{"a\nb\n", "", "@@ -1,2 +0,0 @@\n-a\n-b\n"},
		{"a\nc\n", "a\nb\nc\n", "@@ -1,0 +2,1 @@\n+b\n"},
		{"a\na\n", "a\n", "@@ -2,1 +1,0 @@\n-a\n"},
	}
	for _, tt := range tests {
		if got := lineDiff(tt.before, tt.after); got != tt.want {
			t.Errorf("lineDiff(%q, %q) = %q, want %q", tt.before, tt.after, got, tt.want)
		}
	}
}
