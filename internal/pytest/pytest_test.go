package pytest

import (
	"os/exec"
	"strings"
	"testing"
)

// TestPackagesArePinned checks that the environment has the pinned version of
// every package.
func TestPackagesArePinned(t *testing.T) {
	out, err := exec.Command(Python(t), "-m", "pip", "freeze", "--all").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	have := "\n" + strings.ToLower(string(out))
	for _, p := range Packages {
		if !strings.Contains(have, "\n"+p+"\n") {
			t.Errorf("%s is missing in:\n%s", p, out)
		}
	}
}
