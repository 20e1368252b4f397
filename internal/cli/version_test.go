package cli

import "testing"

// TestPseudoCommit checks what a version of "go install" says of its commit.
func TestPseudoCommit(t *testing.T) {
	for version, want := range map[string][2]string{
		"v0.0.0-20261116005315-e8ad25839a1f":       {"e8ad25839a1f", "2026-11-16T00:53:15Z"},
		"v1.2.4-0.20261116005315-e8ad25839a1f":     {"e8ad25839a1f", "2026-11-16T00:53:15Z"},
		"v0.0.0-20261116005315-e8ad25839a1f+dirty": {"e8ad25839a1f", "2026-11-16T00:53:15Z"},
		"v1.2.3":                             {},
		"devel":                              {},
		"v1.2.3-rc1-with-abcdefabcdef":       {},
		"v0.0.0-20269999005315-e8ad25839a1f": {},
	} {
		if commit, date := pseudoCommit(version); commit != want[0] || date != want[1] {
			t.Errorf("%s: commit %q of %q, want %q", version, commit, date, want)
		}
	}
}
