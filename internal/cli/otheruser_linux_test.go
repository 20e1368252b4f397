package cli_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/spool-run/spool/internal/servertest"
	"github.com/spool-run/spool/internal/skiptest"
)

// spoolAs runs the real spool as a user of this machine and returns what it
// printed.
func spoolAs(t *testing.T, uid uint32, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	// The directory of the program is private: the other user gets the file.
	program, err := os.Open(servertest.Binary(t))
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	cmd := exec.Command("/proc/self/fd/3", args...)
	cmd.ExtraFiles = []*os.File{program}
	cmd.Dir, cmd.Env = "/", []string{"PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}, Pdeathsig: syscall.SIGKILL}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), err
}

const nobody = 65534

// TestServerServesNoOtherUser checks that a server on loopback, which needs no
// token, runs nothing for another user of the machine, and that it does so for
// its own user.
func TestServerServesNoOtherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		skiptest.Missing(t, "only root can start processes of another user")
	}
	for _, listen := range []string{"ws://127.0.0.1:0", "ws://[::1]:0"} {
		s := servertest.Start(t, t.TempDir(), "--listen", listen)
		out, errs, err := spoolAs(t, nobody, "--server", s.URL, "run", "--", "id", "-u")
		if err == nil || out != "" || !strings.Contains(errs, "403 Forbidden") || !strings.Contains(errs, "user 65534") {
			t.Errorf("%s: another user got %q, %q, %v", listen, out, errs, err)
		}
		if out, errs, err := spoolAs(t, 0, "--server", s.URL, "run", "--", "id", "-u"); err != nil || out != "0\n" {
			t.Errorf("%s: its own user got %q, %q, %v", listen, out, errs, err)
		}
	}
}

// TestInsecureNoAuth checks that the flag admits other users, and says so.
func TestInsecureNoAuth(t *testing.T) {
	if os.Geteuid() != 0 {
		skiptest.Missing(t, "only root can start processes of another user")
	}
	warning := captureStderr(t)
	s := servertest.Start(t, t.TempDir(), "--insecure-no-auth")
	if text := warning(); !strings.Contains(text, "warning: --insecure-no-auth: every user of this machine can run commands as you") {
		t.Errorf("the server printed %q", text)
	}
	if out, errs, err := spoolAs(t, nobody, "--server", s.URL, "run", "--", "id", "-u"); err != nil || out != "0\n" {
		t.Errorf("another user got %q, %q, %v", out, errs, err)
	}
}
