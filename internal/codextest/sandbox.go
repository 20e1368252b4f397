package codextest

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool/internal/modeltest"
)

// SandboxReadOnly checks that with --sandbox read-only commands read files but
// write none, and that patches are refused.
func SandboxReadOnly(t testing.TB, serverURL string) { readOnly(t, serverURL, "read-only") }

// SandboxDefault checks that codex, without an option, is in a sandbox that
// allows no writes.
func SandboxDefault(t testing.TB, serverURL string) { readOnly(t, serverURL, DefaultSandbox) }

func readOnly(t testing.TB, serverURL, sandbox string) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "in.txt"), "input\n")
	_, outs := beginWith(t, Config{Server: serverURL, Dir: dir, Sandbox: sandbox},
		Run(Command{Cmd: "cat in.txt; echo no >out.txt; echo no >>in.txt", YieldMillis: untilExit}),
		Patch("*** Begin Patch\n*** Add File: patched.txt\n+no\n*** End Patch\n"),
		modeltest.Say("done"),
	).end(t)
	if len(outs) != 2 {
		t.Fatalf("the model saw %d outputs, want 2: %+v", len(outs), outs)
	}
	if o := outs[0]; !strings.Contains(o.Text, "input\n") {
		t.Errorf("a read: got %q", o.Raw)
	}
	wantDenied(t, outs[0], 2)
	if o := outs[1]; strings.Contains(o.Raw, "Success") {
		t.Errorf("a patch: got %q", o.Raw)
	}
	wantNoFile(t, filepath.Join(dir, "out.txt"))
	wantNoFile(t, filepath.Join(dir, "patched.txt"))
	wantFile(t, filepath.Join(dir, "in.txt"), "input\n")
}

// noTemp excludes temporary directories, in which tests have their files, from
// what --sandbox workspace-write lets commands write to.
var noTemp = []string{"-c", "sandbox_workspace_write.exclude_slash_tmp=true", "-c", "sandbox_workspace_write.exclude_tmpdir_env_var=true"}

// SandboxWorkspaceWrite checks that with --sandbox workspace-write commands and
// patches write to the workspace, but neither outside nor to .git, and that no
// command reaches the network.
func SandboxWorkspaceWrite(t testing.TB, serverURL string) {
	dir, outside := t.TempDir(), t.TempDir()
	writeFile(t, filepath.Join(outside, "o.txt"), "outside\n")
	writeFile(t, filepath.Join(dir, "update.txt"), "one\n")
	port, connected := listen(t)
	_, outs := beginWith(t, Config{Server: serverURL, Dir: dir, Sandbox: "workspace-write", Args: noTemp},
		Run(Command{Cmd: "cat " + outside + "/o.txt >copy.txt && echo copied", YieldMillis: untilExit}),
		Patch("*** Begin Patch\n*** Add File: new/patched.txt\n+yes\n*** Update File: update.txt\n@@\n-one\n+two\n*** End Patch\n"),
		Run(Command{Cmd: "cd " + outside + "; echo no >>o.txt; echo no >new.txt; echo no >" + dir + "/.git/config", YieldMillis: untilExit}),
		Run(Command{Cmd: connect(port), YieldMillis: untilExit}),
		modeltest.Say("done"),
	).end(t)
	if len(outs) != 4 {
		t.Fatalf("the model saw %d outputs, want 4: %+v", len(outs), outs)
	}
	if o := outs[0]; o.ExitCode != 0 || !strings.HasSuffix(o.Text, "copied\n") { // startup files may complain before
		t.Errorf("a write to the workspace: got %q", o.Raw)
	}
	if o := outs[1]; !strings.Contains(o.Raw, "Success") {
		t.Errorf("a patch: got %q", o.Raw)
	}
	wantDenied(t, outs[2], 3)
	if o := outs[3]; o.ExitCode == 0 {
		t.Errorf("a connection: got %q", o.Raw)
	}
	if connected() {
		t.Error("a command reached the network")
	}
	wantFile(t, filepath.Join(dir, "copy.txt"), "outside\n")
	wantFile(t, filepath.Join(dir, "new/patched.txt"), "yes\n")
	wantFile(t, filepath.Join(dir, "update.txt"), "two\n")
	wantFile(t, filepath.Join(outside, "o.txt"), "outside\n")
	wantNoFile(t, filepath.Join(outside, "new.txt"))
	wantNoFile(t, filepath.Join(dir, ".git/config"))
}

// SandboxWithNetwork checks that commands in a workspace may reach the network if
// the configuration allows it, and still write nowhere else.
func SandboxWithNetwork(t testing.TB, serverURL string) {
	dir, outside := t.TempDir(), t.TempDir()
	port, _ := listen(t)
	_, outs := beginWith(t, Config{Server: serverURL, Dir: dir, Sandbox: "workspace-write",
		Args: append([]string{"-c", "sandbox_workspace_write.network_access=true"}, noTemp...)},
		Run(Command{Cmd: connect(port) + "; echo no >" + outside + "/new.txt", YieldMillis: untilExit}),
		modeltest.Say("done"),
	).end(t)
	if len(outs) != 1 {
		t.Fatalf("the model saw %d outputs, want 1: %+v", len(outs), outs)
	}
	if o := outs[0]; !strings.Contains(o.Text, "connected\n") {
		t.Errorf("a connection: got %q", o.Raw)
	}
	wantDenied(t, outs[0], 1)
	wantNoFile(t, filepath.Join(outside, "new.txt"))
}

// listen accepts connections until the test ends. The function reports whether
// there was one.
func listen(t testing.TB) (port string, connected func() bool) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done, count := make(chan struct{}), make(chan struct{}, 100)
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
			count <- struct{}{}
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	_, port, err = net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port, func() bool {
		l.Close()
		<-done // nothing is accepted any more
		return len(count) > 0
	}
}

// connect is a command that connects to a port.
func connect(port string) string {
	return fmt.Sprintf("bash -c 'echo >/dev/tcp/127.0.0.1/%s && echo connected'", port)
}

// wantDenied checks that a number of writes of a command failed because of the
// sandbox, the last one among them.
func wantDenied(t testing.TB, o Output, writes int) {
	t.Helper()
	if n := strings.Count(o.Text, "Read-only file system"); !o.Exited || o.ExitCode == 0 || n != writes {
		t.Errorf("%d writes that are not allowed: got %q", writes, o.Raw)
	}
}
