package execserver_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/skiptest"
	"github.com/spool-run/spool/internal/wire/execserver"
	"github.com/spool-run/spool/internal/wire/execserver/fileuri"
)

// profile is a startup file that counts how often it runs, exports variables and
// defines functions, options and an alias.
const profile = `printf x >>"$HOME/captures"
echo noise
export PATH="$HOME/bin:/usr/bin:/bin"
export PROFILE_ALLOWED='a
b' PROFILE_SECRET=secret PROFILE_DENIED=denied CODEX_TOOL_CALL_ID=old
NOT_EXPORTED=1
shopt -s nullglob expand_aliases
alias hello='echo aliased'
helper() { echo "helper $1"; }
with-dash() { echo dash; }
builtin() { :; }; unset() { return 1; }
set -u -o pipefail
`

// hostileProfile is a startup file that also redefines what a snapshot is taken
// and restored with, and prints at the end.
const hostileProfile = profile + `
declare() { exit 41; }; command() { exit 41; }; printf() { exit 41; }; eval() { exit 41; }; set -e
trap 'echo LAST=1' EXIT
alias if='exit 42' set='exit 42' builtin='exit 42' unset='exit 42' test='exit 42' printf='exit 42'
`

// snapshotHome is a home directory with startup files.
func snapshotHome(t *testing.T, files map[string]string) string {
	t.Helper()
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	writeTree(t, home, files)
	return home
}

// snapshotParams are the params of a process/start with a snapshot.
func snapshotParams(home, id, shell, script string, change map[string]any) string {
	params := map[string]any{
		"processId": id, "argv": []string{"/bin/" + shell, "-lc", script}, "cwd": fileuri.Format(home), "env": map[string]string{}, "tty": false,
		"envPolicy": map[string]any{
			"inherit": "all", "ignoreDefaultExcludes": false, "exclude": []string{"PROFILE_DENIED"},
			"set": map[string]string{"HOME": home, "ENV": filepath.Join(home, "env.sh")}, "includeOnly": []string{"HOME", "ENV", "PATH", "PROFILE_*"},
		},
		"shellSnapshot": map[string]any{"scopeId": "scope", "shell": map[string]string{"name": shell, "path": "/bin/" + shell}},
	}
	for name, value := range change {
		params[name] = value
	}
	b, err := json.Marshal(params)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// runSnapshot starts a process and returns its output, or the error of the start.
func runSnapshot(t *testing.T, p *peer, home, id, shell, script string, change map[string]any) string {
	t.Helper()
	answer := p.ask(t, "process/start", snapshotParams(home, id, shell, script, change))
	if m, _ := answer.(map[string]any); m["processId"] == nil {
		return fmt.Sprint(answer)
	}
	return string(outputOf(t, p.closed(t, id)))
}

// TestShellSnapshot compares commands that start from a snapshot with those of
// the real codex exec-server.
func TestShellSnapshot(t *testing.T) {
	if testing.Short() {
		t.Skip("needs codex")
	}
	m := newMachine(t)
	ours, codex := m.connect(t)
	files := map[string]string{".bashrc": profile, "env.sh": "printf x >>\"$HOME/captures\"\nexport PROFILE_ALLOWED=sh\nset -u\n"}
	homes := map[*peer]string{ours: snapshotHome(t, files), codex: snapshotHome(t, files)}
	const show = `printf '%s|' "$PROFILE_ALLOWED" "${PROFILE_SECRET-no}" "${PROFILE_DENIED-no}" "${NOT_EXPORTED-no}" "${__CODEX_SHELL_SNAPSHOT_STATE_0-no}" "${CODEX_TOOL_CALL_ID-no}" "$0" "$*"; `
	bash := map[string]any{"scopeId": "scope", "shell": map[string]string{"name": "bash", "path": "/bin/bash"}}
	for i, tt := range []struct {
		name, shell, script string
		change              map[string]any
	}{
		{"environment", "bash", "set +u; " + show + "echo $PATH", nil},
		{"functions", "bash", "helper 1; with-dash; type -t unset", nil},
		{"options and aliases", "bash", "\\set +o | grep -E 'nounset|pipefail|errexit|braceexpand'; shopt nullglob expand_aliases extglob\nhello", nil},
		{"terminal", "bash", "helper 2; test -t 1 && echo terminal", map[string]any{"tty": true}},
		{"arguments", "bash", "", map[string]any{"argv": []string{"/bin/bash", "-lc", `echo "$0|$1"; helper 3; exit 5`, "zero", "one"}}},
		{"the request's variables take precedence", "bash", "echo $PROFILE_ALLOWED $PROFILE_NEW", map[string]any{"env": map[string]string{"PROFILE_ALLOWED": "request", "PROFILE_NEW": "new"}}},
		{"metadata", "bash", "echo $CODEX_THREAD_ID $CODEX_TOOL_CALL_ID", map[string]any{"metadata": map[string]string{"threadId": "01a1dc83-0000-7000-8000-000000000000", "toolCallId": "call"}}},
		{"the startup files ran once", "bash", "cat $HOME/captures", nil},
		{"another scope", "bash", "cat $HOME/captures", map[string]any{"shellSnapshot": map[string]any{"scopeId": "other", "shell": map[string]string{"name": "bash", "path": "/bin/bash"}}}},
		{"another policy", "bash", "cat $HOME/captures; " + show, map[string]any{"envPolicy": map[string]any{
			"inherit": "none", "ignoreDefaultExcludes": true, "exclude": []string{}, "set": map[string]string{"HOME": homes[ours], "PATH": "/usr/bin:/bin"}, "includeOnly": []string{},
		}}},
		{"sh", "sh", show + "set +o | grep nounset; cat $HOME/captures", nil},
		{"line numbers", "bash", "true\nno-such-command", nil},
		{"line numbers of sh", "sh", "true\nno-such-command", nil},
		{"sh again", "sh", "cat $HOME/captures", nil},
		{"no login shell", "bash", "", map[string]any{"argv": []string{"/bin/bash", "-c", "type helper 2>/dev/null || echo none"}}},
		{"another shell", "sh", "echo plain", map[string]any{"shellSnapshot": bash}},
		{"no scope", "bash", "true", map[string]any{"shellSnapshot": map[string]any{"scopeId": "", "shell": map[string]string{"name": "bash", "path": "/bin/bash"}}}},
		{"long scope", "bash", "true", map[string]any{"shellSnapshot": map[string]any{"scopeId": strings.Repeat("x", 257), "shell": map[string]string{"name": "bash", "path": "/bin/bash"}}}},
		{"unknown shell", "bash", "true", map[string]any{"shellSnapshot": map[string]any{"scopeId": "x", "shell": map[string]string{"name": "fish", "path": "/bin/bash"}}}},
		{"missing members", "bash", "true", map[string]any{"shellSnapshot": map[string]any{"scopeId": "x", "shell": map[string]string{"name": "bash"}}}},
		{"null", "bash", "type helper 2>/dev/null || echo none", map[string]any{"shellSnapshot": nil}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got [2]string
			for j, p := range []*peer{codex, ours} {
				home := homes[p]
				change := map[string]any{}
				for name, value := range tt.change {
					change[name] = value
				}
				if policy, ok := change["envPolicy"].(map[string]any); ok {
					policy["set"].(map[string]string)["HOME"] = home
				}
				text := runSnapshot(t, p, home, fmt.Sprint("p", i), tt.shell, tt.script, change)
				got[j] = strings.ReplaceAll(text, home, "$HOME")
			}
			if diff := cmp.Diff(got[0], got[1]); diff != "" {
				t.Errorf("-codex +spool:\n%s", diff)
			}
			t.Log(got[1])
		})
	}
}

// zshProfile is profile for zsh.
const zshProfile = `printf x >>"$HOME/captures"
echo noise
export PATH="$HOME/bin:/usr/bin:/bin"
export PROFILE_ALLOWED='a
b' PROFILE_SECRET=secret PROFILE_DENIED=denied CODEX_TOOL_CALL_ID=old
NOT_EXPORTED=1
setopt null_glob extended_glob no_nomatch
unsetopt bg_nice
alias hello='echo aliased' -- -='echo minus'
alias -g EVERYWHERE='global alias'
alias -s none='echo suffix'
helper() { echo "helper $1"; }
with-dash() { echo "dash é"; }
autoload -Uz add-zsh-hook
set -u -o pipefail
`

// TestZshSnapshot compares commands of zsh that start from a snapshot with those of
// the real codex exec-server.
func TestZshSnapshot(t *testing.T) {
	if testing.Short() {
		t.Skip("needs codex")
	}
	if _, err := os.Stat("/bin/zsh"); err != nil {
		skiptest.Missing(t, "zsh is missing: make deps installs it")
	}
	m := newMachine(t)
	ours, codex := m.connect(t)
	files := map[string]string{".zshrc": zshProfile, ".zprofile": "export PROFILE_LOGIN=yes\n", "dots/.zshrc": "helper() { echo other; }\n"}
	homes := map[*peer]string{ours: snapshotHome(t, files), codex: snapshotHome(t, files)}
	for i, tt := range []struct {
		name, script string
		change       map[string]any
	}{
		{"environment", `set +u; printf '%s|' "$PROFILE_ALLOWED" "${PROFILE_LOGIN-no}" "${PROFILE_SECRET-no}" "${PROFILE_DENIED-no}" "${NOT_EXPORTED-no}" "${__CODEX_SHELL_SNAPSHOT_STATE_0-no}" "${CODEX_TOOL_CALL_ID-no}" "$0" "$*"; echo $PATH`, nil},
		{"functions", "helper 1; with-dash; add-zsh-hook precmd helper && echo ${precmd_functions}", nil},
		{"options and aliases", "setopt | grep -E 'null|glob|match|nice|unset|pipefail|rcs|login'; for f in /no/such/*; do echo $f; done\nhello\neval 'hello; - EVERYWHERE; x.none'", nil},
		{"line numbers", "true\nno-such-command", nil},
		{"terminal", "helper 2; test -t 1 && echo terminal", map[string]any{"tty": true}},
		{"arguments", "", map[string]any{"argv": []string{"/bin/zsh", "-lc", `echo "$0|$1"; helper 3; exit 5`, "zero", "one"}}},
		{"the request's variables take precedence", "echo $PROFILE_ALLOWED $PROFILE_NEW", map[string]any{"env": map[string]string{"PROFILE_ALLOWED": "request", "PROFILE_NEW": "new"}}},
		{"the startup files ran once", "cat $HOME/captures", nil},
		{"another directory of startup files", "helper 1", map[string]any{"envPolicy": map[string]any{
			"inherit": "none", "ignoreDefaultExcludes": true, "exclude": []string{}, "set": map[string]string{"HOME": "", "ZDOTDIR": "dots", "PATH": "/usr/bin:/bin"}, "includeOnly": []string{},
		}}},
		{"no login shell", "", map[string]any{"argv": []string{"/bin/zsh", "-c", "type helper >/dev/null || echo none"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got [2]string
			for j, p := range []*peer{codex, ours} {
				home := homes[p]
				if policy, ok := tt.change["envPolicy"].(map[string]any); ok {
					policy["set"].(map[string]string)["HOME"] = home
					policy["set"].(map[string]string)["ZDOTDIR"] = filepath.Join(home, "dots")
				}
				text := runSnapshot(t, p, home, fmt.Sprint("p", i), "zsh", tt.script, tt.change)
				got[j] = strings.ReplaceAll(text, home, "$HOME")
			}
			if diff := cmp.Diff(got[0], got[1]); diff != "" {
				t.Errorf("-codex +spool:\n%s", diff)
			}
			t.Log(got[1])
		})
	}
}

func snapshotPeer(t *testing.T) *peer {
	t.Helper()
	url, _ := newServer(t, execserver.Options{})
	p := dialPeer(t, url)
	p.initialize(t, nil)
	return p
}

// TestShellSnapshotOfHostileProfile checks that a snapshot does not depend on
// commands that the startup files redefine. Codex takes none in this case.
func TestShellSnapshotOfHostileProfile(t *testing.T) {
	p := snapshotPeer(t)
	home := snapshotHome(t, map[string]string{".bashrc": hostileProfile})
	for i, want := range []string{`{"exit":0,"stdout":"helper 1\nx"}`, `{"exit":0,"stdout":"helper 1\nx"}`} {
		if got := runSnapshot(t, p, home, fmt.Sprint(i), "bash", `helper 1; cat "$HOME/captures"`, nil); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestLargeShellSnapshot checks a state that does not fit into one variable, and
// one that is too large, with which the shell starts as usual.
func TestLargeShellSnapshot(t *testing.T) {
	p := snapshotPeer(t)
	for i, tt := range []struct {
		size int
		want string
	}{{400 << 10, `{"exit":0,"stdout":"409600"}`}, {600 << 10, `{"exit":0,"stdout":"none"}`}} {
		home := snapshotHome(t, map[string]string{".bashrc": "helper() { local s='é" + strings.Repeat("x", tt.size-1) + "'; printf ${#s}; }\n"})
		got := runSnapshot(t, p, home, fmt.Sprint(i), "bash", "if [ \"$(type -t helper)\" ]; then helper; else printf none; fi",
			map[string]any{"env": map[string]string{"LC_ALL": "C.UTF-8"}})
		if got != tt.want {
			t.Errorf("%d bytes: got %s, want %s", tt.size, got, tt.want)
		}
	}
}

// TestShellSnapshotLeavesNothingRunning checks that a process that a startup file
// leaves in the background ends, and does not delay the command.
func TestShellSnapshotLeavesNothingRunning(t *testing.T) {
	p := snapshotPeer(t)
	home := snapshotHome(t, map[string]string{".bashrc": "sleep 1000 >/dev/null 2>&1 & echo $! >\"$HOME/pid\"\nhelper() { printf ok; }\n"})
	// A killed process takes a moment to end.
	got := runSnapshot(t, p, home, "1", "bash", `helper; pid=$(cat "$HOME/pid")
while read -r state 2>/dev/null </proc/$pid/stat; do case $state in *") Z "*) break ;; esac; sleep 0.01; done; printf " ended"`, nil)
	if want := `{"exit":0,"stdout":"ok ended"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestShellSnapshotFailure checks that a shell whose startup files fail starts as
// usual.
func TestShellSnapshotFailure(t *testing.T) {
	p := snapshotPeer(t)
	home := snapshotHome(t, map[string]string{".bashrc": "printf x >>\"$HOME/captures\"\nexit 7\n"})
	const want = `{"exit":0,"stdout":"none x"}`
	if got := runSnapshot(t, p, home, "1", "bash", `type -t helper || printf "none $(cat $HOME/captures)"`, nil); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestShellSnapshotIsNotOnDisk checks that the state of a shell is neither in the
// log of a run nor in a file.
func TestShellSnapshotIsNotOnDisk(t *testing.T) {
	url, h := newServer(t, execserver.Options{})
	p := dialPeer(t, url)
	p.initialize(t, nil)
	const secret = "the-secret-of-a-startup-file"
	home := snapshotHome(t, map[string]string{".bashrc": "export PROFILE_X=" + secret + "\nhelper() { : " + secret + "; printf ok; }\n"})
	t.Setenv("TMPDIR", filepath.Join(home, "tmp"))
	if err := os.MkdirAll(filepath.Join(home, "tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	if got, want := runSnapshot(t, p, home, "1", "bash", "helper", nil), `{"exit":0,"stdout":"ok"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for info, err := range h.List(t.Context(), spool.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if b, _ := json.Marshal(info); strings.Contains(string(b), secret) {
			t.Errorf("the secret is in %s", b)
		}
	}
	// The host's directory is beside the home directory.
	files := 0
	err := filepath.Walk(filepath.Dir(home), func(path string, info os.FileInfo, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // the host replaces and removes files
			return nil
		}
		if err != nil || !info.Mode().IsRegular() || path == filepath.Join(home, ".bashrc") {
			return err
		}
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		files++
		if strings.Contains(string(b), secret) {
			t.Errorf("the secret is in %s", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if files == 0 {
		t.Error("no file was searched")
	}
}
