package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// self is this program, also after its file was replaced by a newer one.
const self = "/proc/self/exe"

// tasks are what children do, by the first argument after the role. A task
// returns a value for the probe, or the step that failed.
var tasks = map[string]func(args []string) (any, error){
	"namespace": namespaceTask,
	"landlock":  landlockTask,
	"seccomp":   seccompTask,
	"trees":     treesTask,
	"lock":      lockTask,
	"leader":    leaderTask,
	"orphan":    orphanTask,
	"wait":      waitTask,
	"nothing":   func([]string) (any, error) { return nil, nil },
	"eat":       eatTask,
}

// answer is what a child writes to its standard output.
type answer struct {
	Call  string          `json:"call,omitempty"` // the step that failed; empty for success
	Errno int             `json:"errno,omitempty"`
	Text  string          `json:"text,omitempty"` // of an error that is not an errno
	Value json.RawMessage `json:"value,omitempty"`
}

// Work is the main function of a child, with the arguments after [Role]. It
// returns the exit code.
func Work(args []string) int {
	if len(args) == 0 || tasks[args[0]] == nil {
		fmt.Fprintf(os.Stderr, "spool: no probe %q\n", args)
		return 2
	}
	value, err := tasks[args[0]](args[1:])
	var a answer
	if err != nil {
		var step *Error
		if !errors.As(err, &step) {
			step = &Error{args[0], err}
		}
		var errno syscall.Errno
		a.Call, a.Text = step.Call, step.Err.Error()
		if errors.As(step.Err, &errno) && errno.Error() == a.Text {
			a.Errno = int(errno)
		}
	} else if a.Value, err = json.Marshal(value); err != nil {
		a.Call, a.Text = args[0], err.Error()
	}
	if err := json.NewEncoder(os.Stdout).Encode(a); err != nil {
		return 1
	}
	return 0
}

// command returns the command of a child that does a task.
func command(ctx context.Context, task string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, self, append([]string{Role, task}, args...)...)
	cmd.Args[0] = "spool" // the name that ps shows
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// ask runs a child and returns its answer: the value in *value, if that is not
// nil, or the error. An error that the child could not report, because it did
// not start, is returned as it is.
func ask(cmd *exec.Cmd, value any) error {
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		if text := strings.TrimSpace(stderr.String()); text != "" {
			line, _, _ := strings.Cut(text, "\n")
			return fmt.Errorf("%w: %s", err, line)
		}
		return err
	}
	return decode(&out, value)
}

// decode reads an answer.
func decode(r io.Reader, value any) error {
	var a answer
	if err := json.NewDecoder(r).Decode(&a); err != nil {
		return fmt.Errorf("read the answer of a child: %w", err)
	}
	switch {
	case a.Errno != 0:
		return &Error{a.Call, syscall.Errno(a.Errno)}
	case a.Call != "":
		return &Error{a.Call, errors.New(a.Text)}
	case value == nil:
		return nil
	}
	return json.Unmarshal(a.Value, value)
}

// waitTask waits to be killed. It ends if the probe was killed first: then its
// standard output, a pipe, has no reader.
func waitTask([]string) (any, error) {
	for {
		if _, err := unix.Poll([]unix.PollFd{{Fd: 1}}, -1); !errors.Is(err, unix.EINTR) {
			return nil, err
		}
	}
}
