package codex

import "testing"

// TestFindExecOnlyFlag has the table of the test find_exec_only_flag of takopi.
func TestFindExecOnlyFlag(t *testing.T) {
	for _, tt := range []struct {
		extra []string
		want  string
	}{
		{nil, ""},
		{[]string{"-c", "notify=[]"}, ""},
		{[]string{"--skip-git-repo-check"}, "--skip-git-repo-check"},
		{[]string{"--json"}, "--json"},
		{[]string{"--output-schema", "f"}, "--output-schema"},
		{[]string{"--output-schema=f"}, "--output-schema=f"},
		{[]string{"--output-last-message"}, "--output-last-message"},
		{[]string{"--output-last-message=f"}, "--output-last-message=f"},
		{[]string{"--color"}, "--color"},
		{[]string{"--color=always"}, "--color=always"},
		{[]string{"-o", "f"}, "-o"},
		{[]string{"-ofile"}, ""},
		{[]string{"--json=1"}, ""},
		{[]string{"--model", "m", "--color=never", "--json"}, "--color=never"},
	} {
		if got := findExecOnlyFlag(tt.extra); got != tt.want {
			t.Errorf("findExecOnlyFlag(%q) = %q, want %q", tt.extra, got, tt.want)
		}
	}
}
