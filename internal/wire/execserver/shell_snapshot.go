package execserver

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/environ"
	"github.com/spool-run/spool/internal/lazyregexp"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// Limits of shell snapshots.
const (
	maxSnapshotScope    = 256              // bytes of a scope
	maxSnapshots        = 16               // per session; the one unused for longest is dropped
	maxSnapshot         = 512 << 10        // bytes of state and environment
	maxSnapshotOutput   = 8 * maxSnapshot  // bytes that the startup files may print
	maxSnapshotVariable = 60 << 10         // bytes; Linux limits a variable to 128 KiB
	maxSnapshotAttempts = 3                // until a capture counts as failed for good
	snapshotTimeout     = 10 * time.Second // of one capture
	snapshotBackoff     = time.Second      // between two attempts
	snapshotDrain       = 2 * time.Second  // for output after the shell has ended
)

// snapshotVariable is the name, without its number, of the variables that carry
// the state into a shell. Clients know the name.
const snapshotVariable = "__CODEX_SHELL_SNAPSHOT_STATE_"

// snapshotRequest is the shellSnapshot of process/start: commands of one scope
// start from the state that the startup files of the shell leave, which are run
// once and not for every command.
type snapshotRequest struct {
	Scope string        `json:"scopeId"`
	Shell snapshotShell `json:"shell"`
}

type snapshotShell shell

// UnmarshalJSON refuses a request without scope or shell.
func (r *snapshotRequest) UnmarshalJSON(b []byte) error {
	type plain snapshotRequest
	return decode(b, (*plain)(r), "scopeId", "shell")
}

// UnmarshalJSON refuses a shell without name or path.
func (s *snapshotShell) UnmarshalJSON(b []byte) error {
	type plain snapshotShell
	return decode(b, (*plain)(s), "name", "path")
}

// check refuses an invalid request and reports whether the command is one that a
// snapshot is for: a login shell with a script.
func (r *snapshotRequest) check(argv []string) (bool, error) {
	if r.Scope == "" || len(r.Scope) > maxSnapshotScope {
		return false, rpc.Errorf(rpc.CodeInvalidParams, "shell snapshot scope must be non-empty and at most %d bytes", maxSnapshotScope)
	}
	if len(argv) < 3 || argv[0] != r.Shell.Path || argv[1] != "-lc" {
		return false, nil
	}
	switch r.Shell.Name {
	case "bash", "sh", "zsh":
		return true, nil
	}
	return false, rpc.Errorf(rpc.CodeInvalidParams, "shell snapshots are unsupported for shell `%s`", r.Shell.Name)
}

// shellSnapshots are the snapshots of a session. They are only in memory.
type shellSnapshots struct {
	mu    sync.Mutex
	known []*shellSnapshot // the one used last is last
}

// shellSnapshot is the state of a shell after its startup files.
type shellSnapshot struct {
	key string

	mu          sync.Mutex // held during a capture; others wait for it
	attempts    int
	retry       time.Time // when a failed capture may be repeated
	taken       bool
	state       string            // commands that restore functions, options and aliases
	environment map[string]string // exported by the startup files
}

// apply changes a spec so that its shell starts from a snapshot. It takes the
// snapshot if there is none. If that fails the spec stays as it is, and the shell
// runs its startup files.
func (s *shellSnapshots) apply(ctx context.Context, r *snapshotRequest, spec *spool.Spec) error {
	key, err := snapshotKey(r, spec)
	if err != nil {
		return err
	}
	snapshot := s.lookup(key)
	snapshot.mu.Lock()
	defer snapshot.mu.Unlock()
	if !snapshot.taken {
		if snapshot.attempts == maxSnapshotAttempts || time.Now().Before(snapshot.retry) {
			return nil
		}
		snapshot.attempts++
		if err := snapshot.capture(ctx, r.Shell.Name, spec); err != nil {
			snapshot.retry = time.Now().Add(snapshotBackoff)
			return fmt.Errorf("take a snapshot of %s: %w", r.Shell.Path, err)
		}
		snapshot.taken = true
	}
	snapshot.restore(r.Shell.Name, spec)
	return nil
}

// snapshotKey identifies a snapshot in its session: a startup file may depend on
// the directory and on the environment.
func snapshotKey(r *snapshotRequest, spec *spool.Spec) (string, error) {
	b, err := json.Marshal([]any{r.Scope, r.Shell.Name, r.Shell.Path, spec.Cwd, spec.EnvPolicy})
	return string(b), err
}

// lookup returns the snapshot of a key, which may have to be taken.
func (s *shellSnapshots) lookup(key string) *shellSnapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.known, func(snapshot *shellSnapshot) bool { return snapshot.key == key })
	snapshot := &shellSnapshot{key: key}
	switch {
	case i >= 0:
		snapshot = s.known[i]
		s.known = slices.Delete(s.known, i, i+1)
	case len(s.known) == maxSnapshots:
		s.known = slices.Delete(s.known, 0, 1)
	}
	s.known = append(s.known, snapshot)
	return snapshot
}

// invocationNames are variables of one invocation, which a snapshot leaves out.
var invocationNames = []string{"CODEX_THREAD_ID", "CODEX_TOOL_CALL_ID", "PWD", "OLDPWD", "SHLVL", "_", "POSIXLY_CORRECT"}

var variableName = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*$`)

// capture runs the shell with its startup files and reads the state that they
// leave. What they leave running is killed: it would belong to no run.
func (s *shellSnapshot) capture(ctx context.Context, name string, spec *spool.Spec) error {
	env, err := environ.Make(spec.EnvPolicy, os.Environ(), spec.Env)
	if err != nil {
		return err
	}
	env = environ.Filter(env, func(name string) bool { return name != "CODEX_TOOL_CALL_ID" })
	random := make([]byte, 16)
	_, _ = rand.Read(random) // it never fails
	mark := hex.EncodeToString(random)
	output, err := runCapture(ctx, spec, env, captureScript(name, mark), snapshotTimeout)
	if err != nil {
		return err
	}
	return s.parse(output, mark, spec.EnvPolicy)
}

// parse reads the state between the marks in the output of a capture.
func (s *shellSnapshot) parse(output []byte, mark string, policy *spool.EnvPolicy) (err error) {
	parts := bytes.Split(output, []byte(mark))
	if len(parts) != 3 {
		return errors.New("the shell did not print its state")
	}
	if len(parts[1]) > maxSnapshot {
		return fmt.Errorf("the state has more than %d bytes", maxSnapshot)
	}
	parts = bytes.SplitN(parts[1], []byte{0}, 5) // one is empty: a NUL follows the mark
	if len(parts) != 5 || !utf8.Valid(bytes.Join(parts[:4], nil)) {
		return errors.New("the state is incomplete or not UTF-8")
	}
	if s.environment, err = exportedVariables(parts[4], policy); err != nil {
		return err
	}
	s.state = restoreCommands(string(parts[1]), string(parts[2]), string(parts[3]))
	return nil
}

// fixedOptions are options that a shell cannot change, or that are about its
// start and not its state.
var fixedOptions = []string{
	"history", "histexpand", "interactive", "login_shell", "monitor", "noexec", "onecmd", "posix", "privileged",
	"restricted_shell", "stdin",
	// The options of zsh.
	"exec", "globalrcs", "rcs", "restricted", "shinstdin", "singlecommand", "zle",
}

// restoreCommands returns the commands that restore the options, and what else
// the shell printed. The options are first, while no function or alias can have
// replaced the commands, except those that would print the rest. If enabled names
// options, it decides which are on, because the printed options are those in POSIX
// mode. Bash before 4.1 does not know the names of the options of shopt.
func restoreCommands(enabled, options, state string) string {
	var first, last strings.Builder
	on := strings.Split(enabled, ":")
	for line := range strings.Lines(options) {
		words := strings.Fields(line) // shopt -s NAME, or set -o NAME, which zsh writes as set +o noNAME, too
		if len(words) != 3 || slices.Contains(fixedOptions, words[2]) || slices.Contains(fixedOptions, strings.TrimPrefix(words[2], "no")) {
			continue
		}
		if enabled != "" && (words[0] == "set" || !slices.Contains(on, "unknown")) {
			is := slices.Contains(on, words[2])
			words[1] = map[string]map[bool]string{"shopt": {true: "-s", false: "-u"}, "set": {true: "-o", false: "+o"}}[words[0]][is]
		}
		command := strings.Join(words, " ")
		if words[2] != "xtrace" && words[2] != "verbose" {
			fmt.Fprintln(&first, command)
		} else if words[1] == "-o" {
			fmt.Fprintln(&last, `\`+command)
		}
	}
	return first.String() + state + last.String()
}

// exportedVariables returns the variables of a capture that the policy lets
// through, whatever it inherits from the server.
func exportedVariables(vars []byte, policy *spool.EnvPolicy) (map[string]string, error) {
	var list []string
	for v := range strings.SplitSeq(string(vars), "\x00") {
		if name, _, ok := strings.Cut(v, "="); ok && variableName().MatchString(name) && !strings.HasPrefix(name, "__codex_snapshot_") {
			list = append(list, v)
		}
	}
	filter := spool.EnvPolicy{Inherit: "all", IgnoreDefaultExcludes: true}
	if policy != nil {
		filter = *policy
		filter.Inherit = "all"
	}
	list, err := environ.Make(&filter, list, nil)
	if err != nil {
		return nil, err
	}
	environment := make(map[string]string, len(list))
	for _, v := range list {
		if name, value, _ := strings.Cut(v, "="); !slices.Contains(invocationNames, name) {
			environment[name] = value
		}
	}
	return environment, nil
}

// runCapture runs the shell of a spec with another script, in the same directory,
// and returns what it prints. A shell that takes longer than timeout is killed.
func runCapture(ctx context.Context, spec *spool.Spec, env []string, script string, timeout time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("the startup files take longer than %s", timeout))
	defer cancel()
	cmd := exec.CommandContext(ctx, spec.Argv[0], "-lc", script)
	cmd.Dir, cmd.Env = spec.Cwd, env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = snapshotDrain
	kill := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel = kill
	output := &boundedBuffer{limit: maxSnapshotOutput, full: cancel}
	cmd.Stdout = output
	if err := cmd.Start(); err != nil {
		return nil, cmp.Or(context.Cause(ctx), err)
	}
	err := cmd.Wait()
	_ = kill() // there is usually nothing left
	switch {
	case output.over:
		return nil, fmt.Errorf("the startup files print more than %d bytes", maxSnapshotOutput)
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return nil, err
	}
	return output.data, nil
}

// boundedBuffer keeps what is written to it, up to a limit.
type boundedBuffer struct {
	data  []byte
	limit int
	full  func() // called when the limit is passed
	over  bool
}

func (b *boundedBuffer) Write(p []byte) (int, error) {
	if len(b.data)+len(p) > b.limit {
		b.over = true
		b.full()
		return 0, io.ErrShortBuffer
	}
	b.data = append(b.data, p...)
	return len(p), nil
}

// captureScript returns the script that prints, between two marks, the state of
// the shell after its startup files: the options that are on, commands that set
// options, commands that define functions and aliases, and the environment, each
// after a NUL. The startup files may have redefined every command, so the script
// for bash uses no keyword and no command that they can replace: after
// POSIXLY_CORRECT special builtins take precedence over functions, and unset, one
// of them, removes a function named builtin.
func captureScript(shell, mark string) string {
	switch shell {
	case "zsh":
		return `if [[ -r ${ZDOTDIR:-$HOME}/.zshrc ]]; then . "${ZDOTDIR:-$HOME}/.zshrc"; fi
(
__codex_snapshot_options=$(\builtin set +o)
\builtin unsetopt errexit nounset xtrace verbose 2>/dev/null
\builtin printf '%s\0\0' ` + mark + `
\builtin printf %s "$__codex_snapshot_options"
\builtin printf '\0'
\builtin functions
\builtin alias -L
\builtin printf '\0'
if \builtin test -x /usr/bin/env; then /usr/bin/env -0; else /bin/env -0; fi
\builtin printf %s ` + mark + `
)
`
	case "sh":
		return `case "${ENV-}" in
/*) if [ -r "$ENV" ]; then . "$ENV"; fi ;;
'~/'*) if [ -r "$HOME/${ENV#??}" ]; then . "$HOME/${ENV#??}"; fi ;;
esac
printf '%s\0\0' ` + mark + `
set +o
printf '\0\0'
if [ -x /usr/bin/env ]; then /usr/bin/env -0; else /bin/env -0; fi
printf %s ` + mark + `
`
	}
	return `if [ -z "${BASH_ENV-}" ] && [ -n "${HOME-}" ] && [ -r "$HOME/.bashrc" ]; then . "$HOME/.bashrc"; fi
(
__codex_snapshot_on=$SHELLOPTS:${BASHOPTS-unknown}
POSIXLY_CORRECT=1
\unset -f builtin
\builtin set +eux
\builtin printf '%s\0%s\0' ` + mark + ` "$__codex_snapshot_on"
\builtin shopt -p
\builtin set +o
\builtin printf '\0'
\builtin declare -f
\builtin alias -p
\builtin printf '\0'
\builtin test -x /usr/bin/env && /usr/bin/env -0 || /bin/env -0
\builtin printf %s ` + mark + `
)
`
}

// restore changes the spec of a shell: no startup files, the variables that they
// export, and the commands that restore the state before the script.
func (s *shellSnapshot) restore(name string, spec *spool.Spec) {
	env := maps.Clone(s.environment)
	maps.Copy(env, spec.Env)
	var names []string
	for state := s.state; state != ""; {
		end := min(len(state), maxSnapshotVariable)
		for end < len(state) && !utf8.RuneStart(state[end]) {
			end--
		}
		variable := fmt.Sprint(snapshotVariable, len(names))
		env[variable] = state[:end]
		names = append(names, variable)
		state = state[end:]
	}
	flags, begin := []string{"-c"}, ""
	switch name {
	case "bash":
		// Privileged mode reads no startup file and imports no function.
		flags, begin = []string{"--norc", "-pc"}, "set +o privileged; "
	case "zsh":
		// With -f it reads only the startup file of the system.
		flags, begin = []string{"-fc"}, "setopt RCS; "
	}
	if len(names) == 0 {
		names, env[snapshotVariable+"0"] = []string{snapshotVariable + "0"}, ":"
	}
	script := begin + "eval \"unset " + strings.Join(names, " ") + "\n${" + strings.Join(names, "}${") + "}\" >/dev/null || " +
		"printf 'failed to restore shell snapshot\\n' >&2\n" + spec.Argv[2]
	argv := append([]string{spec.Argv[0]}, flags...)
	argv = append(argv, script)
	spec.Argv = append(argv, spec.Argv[3:]...)
	spec.Env = env
}
