package codextest

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool/internal/fifotest"
	"github.com/spool-run/spool/internal/modeltest"
	"github.com/spool-run/spool/internal/netcut"
)

// untilExit is the longest time that codex lets the model wait for a command.
const untilExit = 30_000

// Scenario is an end-to-end check of an exec-server with the real codex.
type Scenario struct {
	Name string
	Run  func(t testing.TB, serverURL string)
}

// Scenarios lists every scenario, for subtests.
var Scenarios = []Scenario{
	{"ProjectInstructions", ProjectInstructions},
	{"ShellCommand", ShellCommand},
	{"ApplyPatch", ApplyPatch},
	{"InteractivePTY", InteractivePTY},
	{"SurvivesCutConnection", SurvivesCutConnection},
	{"SandboxReadOnly", SandboxReadOnly},
	{"SandboxDefault", SandboxDefault},
	{"SandboxWorkspaceWrite", SandboxWorkspaceWrite},
	{"SandboxWithNetwork", SandboxWithNetwork},
}

// ProjectInstructions checks that codex finds AGENTS.md in its working
// directory and sends it to the model.
func ProjectInstructions(t testing.TB, serverURL string) {
	dir := t.TempDir()
	const text = "Sail close to the wind."
	writeFile(t, filepath.Join(dir, "AGENTS.md"), text+"\n")

	u := begin(t, serverURL, dir, modeltest.Say("done"))
	u.end(t)
	for _, item := range u.model.Requests()[0].Input {
		if strings.Contains(item.Content.String(), text) {
			return
		}
	}
	t.Error("the model was not given AGENTS.md")
}

// ShellCommand checks that commands run in the working directory, that the
// model gets their complete output and exit status, and that it gets the error
// of a failed start.
func ShellCommand(t testing.TB, serverURL string) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "in.txt"), "input\n")
	var long strings.Builder
	for i := range 3000 {
		fmt.Fprintln(&long, i+1)
	}

	result, outs := begin(t, serverURL, dir,
		Run(Command{Cmd: `pwd; echo "oh no" >&2; tr a-z A-Z <in.txt >out.txt; exit 3`, YieldMillis: untilExit}),
		Run(Command{Cmd: "seq 1 3000", YieldMillis: untilExit}),
		Run(Command{Cmd: "pwd", Workdir: filepath.Join(dir, "missing"), YieldMillis: untilExit}),
		modeltest.Say("done"),
	).end(t)

	if len(outs) != 3 {
		t.Fatalf("the model saw %d outputs, want 3: %+v", len(outs), outs)
	}
	if o := outs[0]; !o.Exited || o.ExitCode != 3 {
		t.Errorf("first command: want exit code 3, got %q", o.Raw)
	}
	// The order between two pipes is not defined.
	got := slices.Sorted(strings.Lines(outs[0].Text))
	want := slices.Sorted(slices.Values([]string{dir + "\n", "oh no\n"}))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("first command (-want +got):\n%s", diff)
	}
	if o := outs[1]; !o.Exited || o.ExitCode != 0 {
		t.Errorf("second command: want exit code 0, got %q", o.Raw)
	}
	wantLines(t, outs[1].Text, long.String())
	if o := outs[2]; o.Exited || !strings.Contains(o.Raw, "No such file or directory") {
		t.Errorf("command in a missing directory: got %q", o.Raw)
	}
	wantFile(t, filepath.Join(dir, "out.txt"), "INPUT\n")
	if n := len(result.Completed("command_execution")); n < 2 {
		t.Errorf("codex reported %d commands, want at least 2", n)
	}
}

// ApplyPatch checks that apply_patch, called as a tool and as a shell command,
// adds, updates, moves and deletes files. Codex performs both itself with file
// operations of the server.
func ApplyPatch(t testing.TB, serverURL string) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "update.txt"), "one\ntwo\nthree\n")
	writeFile(t, filepath.Join(dir, "delete.txt"), "gone\n")
	writeFile(t, filepath.Join(dir, "from.txt"), "stays\nold\n")

	result, outs := begin(t, serverURL, dir,
		Patch(`*** Begin Patch
*** Add File: new/deep/add.txt
+added
+by a tool
*** Update File: update.txt
@@
 one
-two
+2
 three
*** End Patch
`),
		Run(Command{Cmd: `apply_patch <<'EOF'
*** Begin Patch
*** Delete File: delete.txt
*** Update File: from.txt
*** Move to: new/to.txt
@@
 stays
-old
+new
*** End Patch
EOF
`}),
		Patch(`*** Begin Patch
*** Update File: update.txt
@@
-no such line
+x
*** End Patch
`),
		modeltest.Say("done"),
	).end(t)

	if len(outs) != 3 {
		t.Fatalf("the model saw %d outputs, want 3: %+v", len(outs), outs)
	}
	for i, want := range [][]string{
		{"Success", "A new/deep/add.txt", "M update.txt"},
		{"Success", "D delete.txt"},
		{"Failed to find expected lines"},
	} {
		for _, s := range want {
			if !strings.Contains(outs[i].Raw, s) {
				t.Errorf("patch %d: %q is not in the output %q", i+1, s, outs[i].Raw)
			}
		}
	}
	wantFile(t, filepath.Join(dir, "new/deep/add.txt"), "added\nby a tool\n")
	wantFile(t, filepath.Join(dir, "update.txt"), "one\n2\nthree\n")
	wantFile(t, filepath.Join(dir, "new/to.txt"), "stays\nnew\n")
	wantNoFile(t, filepath.Join(dir, "delete.txt"))
	wantNoFile(t, filepath.Join(dir, "from.txt"))
	for _, item := range result.Completed("command_execution") {
		t.Errorf("a patch ran as a command: %s", item.Command)
	}
}

// InteractivePTY checks a command on a terminal: it has a terminal, reads what
// the model types, and is interrupted by ^C. It ends only after the model has had
// the time to see all of its output: codex's own server may lose what a terminal
// prints just before the end.
func InteractivePTY(t testing.TB, serverURL string) {
	dir := t.TempDir()
	ready := fifotest.New(t, dir, "ready")

	_, outs := begin(t, serverURL, dir,
		Run(Command{
			Cmd: `trap 'echo interrupted; echo >ready; read -r last; exit 7' INT
test -t 0 && test -t 1 && test -t 2 && echo "on a terminal"
printf 'name? '
echo >ready
read -r name
echo "hello, $name"
echo >ready
read -r never
echo "not interrupted"`,
			TTY:         true,
			YieldMillis: 250,
		}),
		WriteStdin("ada\n", 0).When(ready.Wait),
		WriteStdin("\x03", 0).When(ready.Wait),
		WriteStdin("bye\n", untilExit).When(ready.Wait),
		modeltest.Say("done"),
	).end(t)

	if len(outs) != 4 {
		t.Fatalf("the model saw %d outputs, want 4: %+v", len(outs), outs)
	}
	// The split of the text between the outputs depends on timing.
	var screen strings.Builder
	for _, o := range outs {
		screen.WriteString(o.Text)
	}
	rest := screen.String()
	for _, want := range []string{"on a terminal\r\n", "name? ", "ada\r\n", "hello, ada\r\n", "interrupted\r\n"} {
		_, after, ok := strings.Cut(rest, want)
		if !ok {
			t.Fatalf("%q is missing, or too early, in %q", want, screen.String())
		}
		rest = after
	}
	if outs[0].Session == 0 || outs[1].Session != outs[0].Session {
		t.Errorf("sessions are %d and %d, want one", outs[0].Session, outs[1].Session)
	}
	if o := outs[3]; !o.Exited || o.ExitCode != 7 {
		t.Errorf("after ^C: want exit code 7, got %q", o.Raw)
	}
}

// SurvivesCutConnection checks that a command continues while the connection to
// codex breaks in the middle of its output, and that the model then gets every
// line once and in order: lines sent before the cut, lines in the broken
// message, lines printed without a connection, and lines sent after.
func SurvivesCutConnection(t testing.TB, serverURL string) {
	dir := t.TempDir()
	proxy, proxyURL := newProxy(t, serverURL)
	there, proceed := fifotest.New(t, dir, "there"), fifotest.New(t, dir, "proceed")

	const lines = 800 // in four parts
	u := begin(t, proxyURL, dir,
		Run(Command{
			Cmd: `part() { seq -f 'line %04g of a long output' $1 $2; }
meet() { echo >there; read -r _ <proceed; }
part 1 200; meet
part 201 400; meet
part 401 600; meet
part 601 800`,
			YieldMillis: untilExit,
		}),
		modeltest.Say("done"),
	)
	step := func(what string, err error) {
		t.Helper()
		if err != nil {
			u.explain(t)
			t.Fatalf("%s: %v", what, err)
		}
	}

	step("wait for the first part", there.Wait(u.ctx))
	before := proxy.Count()
	proxy.Refuse()
	// The cut is within the second part, which is longer.
	cut := proxy.CutAfter(netcut.ToClient, 2000)
	step("go on to the second part", proceed.Release())
	select {
	case <-cut:
	case <-u.ctx.Done():
		step("wait for the cut", u.ctx.Err())
	}
	step("wait for the second part", there.Wait(u.ctx))
	step("go on to the third part", proceed.Release())
	step("wait for the third part", there.Wait(u.ctx))
	proxy.Admit()
	step("wait for codex to reconnect", proxy.WaitCount(u.ctx, before+1))
	step("go on to the last part", proceed.Release())
	_, outs := u.end(t)

	if len(outs) != 1 {
		t.Fatalf("the model saw %d outputs, want 1: %+v", len(outs), outs)
	}
	if o := outs[0]; !o.Exited || o.ExitCode != 0 {
		t.Errorf("want exit code 0, got %q", o.Raw)
	}
	var want strings.Builder
	for i := range lines {
		fmt.Fprintf(&want, "line %04d of a long output\n", i+1)
	}
	wantLines(t, outs[0].Text, want.String())
}

// newProxy starts a proxy for the server and returns its URL.
func newProxy(t testing.TB, serverURL string) (*netcut.Proxy, string) {
	t.Helper()
	u, err := url.Parse(serverURL)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := net.SplitHostPort(u.Host); err != nil {
		t.Fatalf("server URL %s: %v", serverURL, err)
	}
	proxy, err := netcut.NewProxy(u.Host)
	if err != nil {
		t.Fatalf("start proxy: %v", err)
	}
	t.Cleanup(func() { proxy.Close() })
	u.Host = proxy.Addr()
	return proxy, u.String()
}

// wantLines compares long texts and reports the first line that differs.
func wantLines(t testing.TB, got, want string) {
	t.Helper()
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			t.Errorf("output differs from line %d of %d: got %q, want %q", i+1, len(w), g[i], w[i])
			return
		}
	}
	if len(g) != len(w) {
		t.Errorf("output has %d lines, want %d", len(g), len(w))
	}
}

func writeFile(t testing.TB, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func wantFile(t testing.TB, path, content string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
		return
	}
	if diff := cmp.Diff(content, string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

func wantNoFile(t testing.TB, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("%s is still there (%v)", path, err)
	}
}
