//go:build amd64 || arm64

package cli_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/doctor"
	"github.com/spool-run/spool/internal/seccomp"
	"github.com/spool-run/spool/internal/seccomp/seccomptest"
	"github.com/spool-run/spool/internal/servertest"
	"github.com/spool-run/spool/internal/skiptest"
)

// examine runs spool doctor, started by a function that may restrict it, and
// returns its findings by check and its exit code.
func examine(t *testing.T, program string, start func(*exec.Cmd) error, checks ...string) (map[string]doctor.Finding, int) {
	t.Helper()
	home := filepath.Join(t.TempDir(), "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, append([]string{"doctor", "--json"}, checks...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "SPOOL_STATE=" + filepath.Join(home, "state")}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := start(cmd); err != nil {
		t.Fatal(err)
	}
	found := make(map[string]doctor.Finding)
	for dec := json.NewDecoder(out); ; {
		var f doctor.Finding
		if err := dec.Decode(&f); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		found[f.Check] = f
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return found, cmd.ProcessState.ExitCode()
}

// filtered starts a command under a filter of system calls.
func filtered(rules func(*seccomp.Filter)) func(*exec.Cmd) error {
	return func(cmd *exec.Cmd) error {
		f := seccomp.New()
		rules(f)
		return seccomptest.Start(f.Program(seccomp.Allow), cmd)
	}
}

// TestDoctorWithoutProtections takes the protections of the kernel away, and
// checks that the verdicts change: doctor must have tried them.
func TestDoctorWithoutProtections(t *testing.T) {
	seccomptest.Need(t)
	spool := servertest.Binary(t)
	before, code := examine(t, spool, (*exec.Cmd).Start, "processes", "isolation")
	if code != 0 {
		t.Errorf("exit code %d before: %+v", code, before)
	}
	noGroups := func(f *seccomp.Filter) { f.On(seccomp.Errno(unix.ENOSYS), unix.SYS_CLONE3) }
	noOrphans := func(f *seccomp.Filter) {
		f.OnArg(unix.SYS_PRCTL, 0, seccomp.Allow, seccomp.Equal(unix.PR_SET_CHILD_SUBREAPER, seccomp.Errno(unix.EINVAL)))
	}
	found, code := examine(t, spool, filtered(func(f *seccomp.Filter) {
		noGroups(f)
		const namespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET
		f.OnArg(unix.SYS_CLONE, 0, seccomp.Allow, seccomp.AnyBit(namespaces, seccomp.Errno(unix.EPERM)))
		f.On(seccomp.Errno(unix.ENOSYS), unix.SYS_LANDLOCK_CREATE_RULESET)
		f.On(seccomp.Errno(0), unix.SYS_SECCOMP) // succeeds, and does nothing
	}), "processes", "isolation")
	if code != 0 {
		t.Errorf("exit code %d with warnings: %+v", code, found)
	}
	for check, text := range map[string]string{
		"kill": "a search of /proc kills", "process-limit": "cannot be limited", "memory-limit": "cannot be limited",
		"user-namespace": "CLONE_NEWUSER", "mount-namespace": "CLONE_NEWNS", "pid-namespace": "CLONE_NEWPID", "net-namespace": "CLONE_NEWNET",
		"landlock": "function not implemented", "seccomp": "no effect",
	} {
		if f := found[check]; f.Verdict != doctor.Warning || !strings.Contains(f.Text, text) || f.Next == "" {
			t.Errorf("%s without it: %+v", check, f)
		}
	}
	found, code = examine(t, spool, filtered(func(f *seccomp.Filter) { noGroups(f); noOrphans(f) }), "kill")
	if f := found["kill"]; code != 1 || f.Verdict != doctor.Problem || f.Next == "" {
		t.Errorf("no way to kill: exit code %d, %+v", code, f)
	}
	found, code = examine(t, spool, filtered(func(f *seccomp.Filter) { f.On(seccomp.Errno(0), unix.SYS_FLOCK) }), "file-locks")
	if f := found["file-locks"]; code != 1 || f.Verdict != doctor.Problem || !strings.Contains(f.Text, "two processes") {
		t.Errorf("locks without effect: exit code %d, %+v", code, f)
	}
}

// TestDoctorOnATerminal checks that a terminal shows what is being checked, and
// lines that fit.
func TestDoctorOnATerminal(t *testing.T) {
	c := typeIn(t, filepath.Join(t.TempDir(), "state"), "doctor", "kill", "pidfd", "disk")
	c.see("checking ")
	c.see("kill …")
	c.see("\r\x1b[K")
	c.see("processes\r\n")
	c.see("pidfd             a process was killed and waited for by its descriptor, so that no other\r\n")
	c.see("                           process with its number can be hit\r\n")
	c.see("0 problems")
	c.exits(0)
}

// TestDoctorOfAnotherUser runs doctor as a user without control groups, and on a
// state directory of root.
func TestDoctorOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		skiptest.Missing(t, "only root can become another user")
	}
	const nobody = 65534
	dir := t.TempDir()
	for d := dir; len(d) > len(os.TempDir()); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(dir, "spool")
	b, err := os.ReadFile(servertest.Binary(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, b, 0o755); err != nil {
		t.Fatal(err)
	}
	found, code := examine(t, program, func(cmd *exec.Cmd) error {
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		return cmd.Start()
	}, "kill", "user-namespace", "directory", "servers")
	if f := found["kill"]; f.Verdict != doctor.Warning || !strings.Contains(f.Text, "permission denied") {
		t.Errorf("%+v", f)
	}
	if f := found["directory"]; code != 1 || f.Verdict != doctor.Problem {
		t.Errorf("exit code %d, %+v", code, f)
	}
}
