package talk

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestLineDiff(t *testing.T) {
	tests := []struct{ before, after, want string }{
		{"", "", ""},
		{"a\n", "a\n", ""},
		{"", "a\nb\n", "@@ -0,0 +1,2 @@\n+a\n+b\n"},
		{"a\nb\nc\n", "a\nx\nc\n", "@@ -1,3 +1,3 @@\n a\n-b\n+x\n c\n"},
		{"a\nb\n", "", "@@ -1,2 +0,0 @@\n-a\n-b\n"},
		{"a\nc\n", "a\nb\nc\n", "@@ -1,2 +1,3 @@\n a\n+b\n c\n"},
		{"a\na\n", "a\n", "@@ -1,2 +1,1 @@\n a\n-a\n"},
		{"1\n2\n3\n4\n5\n6\n7\n8\n9\n", "1\n2\n3\n4\nx\n6\n7\n8\n9\n", "@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+x\n 6\n 7\n 8\n"},
	}
	for _, tt := range tests {
		if got := LineDiff(tt.before, tt.after); got != tt.want {
			t.Errorf("LineDiff(%q, %q) = %q, want %q", tt.before, tt.after, got, tt.want)
		}
	}
}

func TestPatchHunks(t *testing.T) {
	tests := []struct{ patch, want string }{
		{"", ""},
		{"not a diff", ""},
		{"@@ -1 +1 @@\n-a\n+b\n", "@@ -1 +1 @@\n-a\n+b\n"},
		{"Index: f\n===\n--- f\n+++ f\n@@ -1 +1 @@\n-a\n+b\n@@ -9 +9 @@\n-c\n", "@@ -1 +1 @@\n-a\n+b\n@@ -9 +9 @@\n-c\n"},
	}
	for _, tt := range tests {
		if got := PatchHunks(tt.patch); got != tt.want {
			t.Errorf("PatchHunks(%q) = %q, want %q", tt.patch, got, tt.want)
		}
	}
}

// TestDescribeDiff checks that an action shows what its tool would change, for
// the arguments of each agent.
func TestDescribeDiff(t *testing.T) {
	tests := []struct{ tool, input, want string }{
		{"Write", `{"file_path":"/w/a","content":"x\ny"}`, "@@ -0,0 +1,2 @@\n+x\n+y\n"},
		{"Edit", `{"file_path":"/w/a","old_string":"x","new_string":"y"}`, "@@ @@\n-x\n+y\n"},
		{"MultiEdit", `{"file_path":"/w/a","edits":[{"old_string":"x","new_string":"y"},{"old_string":"p","new_string":"q"}]}`, "@@ @@\n-x\n+y\n@@ @@\n-p\n+q\n"},
		{"edit", `{"filePath":"/w/a","oldString":"x","newString":""}`, "@@ @@\n-x\n"},
		{"edit", `{"path":"/w/a","edits":[{"oldText":"x","newText":"y"}]}`, "@@ @@\n-x\n+y\n"},
		{"edit", `{"path":"/w/a","edits":"nonsense"}`, ""},
	}
	for _, tt := range tests {
		a := Describe(tt.tool, json.RawMessage(tt.input), "/w")
		if len(a.Changes) != 1 || a.Changes[0].Path != "a" || a.Changes[0].Diff != tt.want {
			t.Errorf("Describe(%s, %s) changes %+v, want %q", tt.tool, tt.input, a.Changes, tt.want)
		}
	}
}

func TestLongDiffIsCut(t *testing.T) {
	for _, content := range []string{strings.Repeat("a line\n", MaxText/4), strings.Repeat("x", 2*MaxText)} {
		got := LineDiff("", content)
		if len(got) > MaxText+100 || !strings.HasSuffix(got, " more bytes\n") {
			t.Errorf("%d bytes of diff, which ends with %q", len(got), got[len(got)-40:])
		}
	}
}
