package codextest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spool-run/spool/internal/tether"
)

// DefaultSandbox stands for the sandbox that codex chooses itself.
const DefaultSandbox = "default"

// Config configures [Exec].
type Config struct {
	Binary string // path of codex, see [Binary]
	Model  string // base URL of the model, see [modeltest.Model.URL]
	Server string // URL of the exec-server
	Token  string // bearer token of the server, if it needs one
	// Variable names the server in the environment, where there is no room for
	// a token, instead of in the configuration.
	Variable bool
	Env      []string // more variables, "name=value"
	Dir      string   // working directory, also on the server
	Prompt   string   // has a default
	// Sandbox is the value of --sandbox; empty is danger-full-access, and
	// [DefaultSandbox] leaves the option out.
	Sandbox string
	Args    []string
}

// Result is the result of a run of codex.
type Result struct {
	Events   []Event
	ExitCode int // -1 after a signal
	Stderr   string
}

// Event is a line of `codex exec --json`.
type Event struct {
	Type     string     `json:"type"`
	ThreadID string     `json:"thread_id"`
	Message  string     `json:"message"` // of an error
	Item     *EventItem `json:"item"`

	Raw json.RawMessage `json:"-"`
}

// EventItem is the subject of an item event: a command_execution, a
// file_change, an agent_message, an error.
type EventItem struct {
	ID      string `json:"id"`
	Type    string `json:"type"`
	Status  string `json:"status"`
	Text    string `json:"text"`
	Message string `json:"message"`

	Command  string `json:"command"`
	Output   string `json:"aggregated_output"`
	ExitCode *int   `json:"exit_code"`

	Changes []FileChange `json:"changes"`
}

// FileChange is one file of a file_change.
type FileChange struct {
	Path string `json:"path"`
	Kind string `json:"kind"` // add, update, delete
}

// Completed returns the completed items of a type, in order.
func (r *Result) Completed(itemType string) []*EventItem {
	var items []*EventItem
	for _, e := range r.Events {
		if e.Type == "item.completed" && e.Item != nil && e.Item.Type == itemType {
			items = append(items, e.Item)
		}
	}
	return items
}

// Exec runs one `codex exec` to its end, in its own home directory and with the
// server as its only environment. A failed turn is a result, not an error. When
// ctx ends, Exec kills codex and its local children.
func Exec(ctx context.Context, cfg Config) (*Result, error) {
	home, err := os.MkdirTemp("", "codex-home-")
	if err != nil {
		return nil, fmt.Errorf("run codex: %w", err)
	}
	defer os.RemoveAll(home)
	if err := writeHome(home, cfg); err != nil {
		return nil, fmt.Errorf("run codex: %w", err)
	}

	args := []string{"exec", "--json", "--strict-config", "--skip-git-repo-check", "--color=never", "--cd=" + cfg.Dir}
	if cfg.Sandbox != DefaultSandbox {
		args = append(args, "--sandbox="+cmp.Or(cfg.Sandbox, "danger-full-access"))
	}
	args = append(args, cfg.Args...)
	args = append(args, "-") // read the prompt from stdin
	cmd := exec.CommandContext(ctx, cfg.Binary, args...)
	cmd.Dir = home
	cmd.Env = []string{
		"CODEX_HOME=" + home,
		"HOME=" + home,
		"LANG=C.UTF-8",
		"PATH=" + os.Getenv("PATH"),
		"TERM=dumb",
	}
	if cfg.Variable {
		cmd.Env = append(cmd.Env, "CODEX_EXEC_SERVER_URL="+cfg.Server)
	}
	cmd.Env = append(cmd.Env, cfg.Env...)
	prompt := cfg.Prompt
	if prompt == "" {
		prompt = "Please do the task."
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdin = strings.NewReader(prompt)
	cmd.Stdout = &stdout
	cmd.Stderr = &stderr
	ownGroup(cmd)

	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("run codex: %w", err)
	}
	err = cmd.Wait()
	killGroup(cmd) // kill leftover processes
	if ctx.Err() != nil {
		return nil, fmt.Errorf("run codex: %w\nstdout:\n%s\nstderr:\n%s", ctx.Err(), &stdout, &stderr)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return nil, fmt.Errorf("run codex: %w", err)
	}
	events, err := parseEvents(stdout.Bytes())
	if err != nil {
		return nil, fmt.Errorf("run codex: %w", err)
	}
	return &Result{
		Events:   events,
		ExitCode: cmd.ProcessState.ExitCode(),
		Stderr:   stderr.String(),
	}, nil
}

// WriteConfig writes the configuration of a codex that uses a scripted model.
// The name of the model is one that codex knows, because codex offers
// apply_patch as a tool only to known models. Features that need the internet
// are off. Retries is the number of retries of a request and of a stream.
func WriteConfig(home, modelURL string, retries int) error {
	config := fmt.Sprintf(`model = "gpt-5.5"
model_provider = "scripted"
check_for_update_on_startup = false
web_search = "disabled"

[analytics]
enabled = false

[features]
unified_exec = true
unified_exec_tty = true
apps = false
plugins = false

[model_providers.scripted]
name = "scripted"
base_url = %q
wire_api = "responses"
supports_websockets = false
request_max_retries = %[2]d
stream_max_retries = %[2]d
`, modelURL, retries)
	return os.WriteFile(filepath.Join(home, "config.toml"), []byte(config), 0o600)
}

// writeHome writes the configuration of one run, without retries: a violation
// of the script should fail at once.
func writeHome(home string, cfg Config) error {
	if err := WriteConfig(home, cfg.Model, 0); err != nil {
		return err
	}
	if cfg.Variable {
		return nil
	}
	environments := fmt.Sprintf(`default = "remote"
include_local = false

[[environments]]
id = "remote"
url = %q
`, cfg.Server)
	if cfg.Token != "" {
		environments += fmt.Sprintf("auth_bearer_token = %q\n", cfg.Token)
	}
	return os.WriteFile(filepath.Join(home, "environments.toml"), []byte(environments), 0o600)
}

func parseEvents(stdout []byte) ([]Event, error) {
	var events []Event
	for line := range bytes.Lines(stdout) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		e := Event{Raw: bytes.Clone(line)}
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("decode event %q: %w", line, err)
		}
		events = append(events, e)
	}
	return events, nil
}

// waitDelay is how long other processes may hold the output of an ended process
// open.
const waitDelay = 10 * time.Second

// ownGroup makes cmd the leader of a process group that is killed as a whole
// when its context ends.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = tether.Attr(syscall.SIGKILL)
	cmd.Cancel = func() error { return killGroup(cmd) }
	cmd.WaitDelay = waitDelay
}

func killGroup(cmd *exec.Cmd) error {
	return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
}
