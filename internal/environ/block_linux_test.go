package environ

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	if os.Getenv("HIDE_TEST") != "" {
		err := HideBlock()
		shown, readErr := os.ReadFile("/proc/self/environ")
		fmt.Printf("%v %v %q %s\n", err, readErr, strings.Trim(string(shown), "\x00"), os.Getenv("HIDE_TEST"))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestHideBlock checks that the kernel shows no variable of a process any more,
// other than the mark of its run, and that the process still has them.
func TestHideBlock(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		env  []string
		want string
	}{
		{[]string{"HIDE_TEST=secret"}, `<nil> <nil> "" secret`},
		{[]string{"A=1", "SPOOL_TREE=r1", "HIDE_TEST=secret", "B="}, `<nil> <nil> "SPOOL_TREE=r1" secret`},
	} {
		cmd := exec.Command(exe)
		cmd.Env = c.env
		out, err := cmd.CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != c.want {
			t.Errorf("%q: %s, %v", c.env, out, err)
		}
	}
}
