package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/client"
)

// Exit codes that are not the exit code of a run.
const (
	exitFailure       = 1
	exitUsage         = 2
	exitSpool         = 125 // spool failed, in verbs that exit with the code of a run
	exitNotExecutable = 126
	exitNotFound      = 127
	exitSignal        = 128 // plus the number of the signal
)

// exitError ends the command with a code. Without a cause it prints nothing.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// exit returns the error that ends the command with a code, nil for zero.
func exit(code int) error {
	if code == 0 {
		return nil
	}
	return &exitError{code: code}
}

// usageError is a mistake in how the command was called.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usageErrorf(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// usageArgs makes the errors of an argument check usage errors.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		if err == nil {
			return nil
		}
		if strings.Contains(err.Error(), "arg(s)") || strings.HasPrefix(err.Error(), "unknown command") {
			err = wrongCount(cmd, check, args) // in our words instead of cobra's
		}
		return &usageError{err}
	}
}

// wrongCount says which arguments are missing or too many.
func wrongCount(cmd *cobra.Command, check cobra.PositionalArgs, args []string) error {
	use := strings.Replace(cmd.UseLine(), " [flags]", "", 1)
	for n := range args {
		if check(cmd, args[:n]) == nil {
			return fmt.Errorf("unexpected argument %q: use %q", args[n], use)
		}
	}
	return fmt.Errorf("an argument is missing: use %q", use)
}

// hintedError is an error with a hint: the next step.
type hintedError struct {
	err  error
	hint string
}

func (e *hintedError) Error() string { return e.err.Error() }
func (e *hintedError) Unwrap() error { return e.err }

// report prints an error and its hint, and returns the exit code.
func (a *app) report(cmd *cobra.Command, err error) int {
	if err == nil {
		return 0
	}
	code := exitCode(cmd, err)
	var coded *exitError
	if errors.As(err, &coded) && coded.err == nil && coded == err {
		return code
	}
	prefix := "spool: "
	if cmd.HasParent() {
		prefix += strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ") + ": "
	}
	text, hint := explain(cmd, err)
	fmt.Fprintln(a.stderr, prefix+text)
	if hint != "" {
		fmt.Fprintln(a.stderr, "hint: "+hint)
	}
	return code
}

func exitCode(cmd *cobra.Command, err error) int {
	var coded *exitError
	var start *spool.StartError
	var usage *usageError
	switch {
	case errors.As(err, &coded):
		return coded.code
	case errors.As(err, &start) && start.Reason == "not_found":
		return exitNotFound
	case errors.As(err, &start) && (start.Reason == "not_executable" || start.Reason == "bad_format"):
		return exitNotExecutable
	}
	switch cmd.Name() {
	case "run", "py", "box", "attach", "wait", "exec":
		return exitSpool
	case "agent", "acp":
		if !errors.As(err, &usage) {
			return exitSpool
		}
	}
	if errors.As(err, &usage) || !cmd.HasParent() {
		return exitUsage
	}
	return exitFailure
}

// explain returns the cause of an error and the next step, if there is one.
func explain(cmd *cobra.Command, err error) (text, hint string) {
	var hinted *hintedError
	var start *spool.StartError
	var usage *usageError
	var lost *client.DisconnectedError
	switch {
	case errors.As(err, &start):
		return start.Err.Error(), start.Hint
	case errors.As(err, &hinted):
		return err.Error(), hinted.hint
	case errors.As(err, &usage):
		return err.Error(), fmt.Sprintf("see %q", cmd.CommandPath()+" --help")
	case errors.As(err, &lost):
		return lostText(lost.Error()), ""
	case errors.Is(err, spool.ErrNotFound):
		hint = `"spool ps --all" lists the runs`
	case errors.Is(err, spool.ErrAmbiguous):
		hint = `give more of the id; "spool ps --all" lists the runs`
	case errors.Is(err, spool.ErrExists):
		hint = "choose another --id, or leave it out"
	case errors.Is(err, spool.ErrEnded):
		hint = `"spool logs" shows what it wrote`
	case isOutput(err):
		hint = "the output of this command goes there: write it elsewhere, or make room"
	case errors.Is(err, os.ErrPermission):
		hint = "check who owns the state directory, or choose another with --state"
	case errors.Is(err, syscall.ENOSPC):
		hint = "make room, or choose another state directory with --state"
	}
	return strings.TrimSpace(err.Error()), hint
}

// isOutput reports whether what failed is to write the output of this command.
func isOutput(err error) bool {
	var path *os.PathError
	return errors.As(err, &path) && (path.Path == os.Stdout.Name() || path.Path == os.Stderr.Name())
}
