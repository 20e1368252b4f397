package process

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/internal/launch"
	"github.com/spool-run/spool/internal/limits"
)

var errNUL = errors.New("nul byte found in provided data")

func invalid(err error) error {
	return &spool.StartError{Reason: engine.StartInvalid, Err: err}
}

// checkSpec rejects what no kernel call should see.
func checkSpec(spec *spool.Spec, env []string) error {
	if len(spec.Argv) == 0 {
		return invalid(errors.New("argv must not be empty"))
	}
	for _, list := range [][]string{spec.Argv, env, {spec.Arg0, spec.Cwd}} {
		for _, s := range list {
			if strings.IndexByte(s, 0) >= 0 {
				return invalid(errNUL)
			}
		}
	}
	if err := limits.Check(&spec.Limits); err != nil {
		return invalid(err)
	}
	return nil
}

// startError explains why a program did not start. The kernel says only that
// something failed, so the working directory is looked at now.
func startError(program string, spec *spool.Spec, err error) error {
	e := &spool.StartError{Reason: engine.StartOther}
	var errno syscall.Errno
	var step *isolate.StepError
	switch {
	case errors.As(err, &step):
		e.Err = fmt.Errorf("enter the sandbox: %w", err)
		if step.Step == "chdir" {
			e.Reason, e.Err = engine.StartBadCwd, &fs.PathError{Op: "chdir", Path: spec.Cwd, Err: step.Err}
			e.Hint = "the working directory must exist in the sandbox, which has a /tmp of its own"
		}
		return e
	case errors.Is(err, launch.ErrNoPidsLimit):
		e.Reason, e.Err = engine.StartUnsupported, err
		e.Hint = "this machine has no control groups for the limit of processes; start without it"
		return e
	case errors.Is(err, launch.ErrNoMemoryLimit), errors.Is(err, launch.ErrNoCPULimit):
		e.Reason, e.Err = engine.StartUnsupported, err
		e.Hint = engine.NoLimitHint
		return e
	case !errors.As(err, &errno):
		e.Err = err
		return e
	}
	if spec.Cwd != "" {
		if cause := checkCwd(spec.Cwd); cause != 0 {
			e.Reason = engine.StartBadCwd
			e.Err = &fs.PathError{Op: "chdir", Path: spec.Cwd, Err: cause}
			e.Hint = "the working directory must exist on the machine that runs the program"
			return e
		}
	}
	e.Err = &fs.PathError{Op: "exec", Path: program, Err: errno}
	switch errno {
	case unix.ENOENT, unix.ENOTDIR:
		e.Reason = engine.StartNotFound
		e.Hint = "no such program in the PATH of its environment"
		if program == "" {
			e.Err = fmt.Errorf("the name of the program is empty: %w", errno)
			e.Hint = "the command begins with an empty argument: is a variable not set?"
			return e
		}
		if strings.Contains(program, "/") {
			e.Hint = "no such program"
			if unix.Access(resolvePath(spec.Cwd, program), unix.F_OK) == nil {
				e.Hint = "the file exists, but the interpreter it names does not"
			}
		}
		if isolate.Isolates(spec.Isolation) && isolate.Below("/tmp", resolvePath(spec.Cwd, program)) {
			e.Hint = "the run has a /tmp of its own: use --writable /tmp, or another directory for the program"
		}
	case unix.EACCES, unix.EPERM:
		e.Reason = engine.StartNotExecutable
		e.Hint = "the file is not executable"
		var st unix.Stat_t
		if unix.Stat(resolvePath(spec.Cwd, program), &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
			e.Hint = "it is a directory"
		}
		if unix.Access(resolvePath(spec.Cwd, program), unix.X_OK) == nil && isolate.Isolates(spec.Isolation) {
			e.Hint = "the run reads only what is listed: add --readable with the directory of the program"
		}
	case unix.ENOEXEC:
		e.Reason = engine.StartBadFormat
		e.Hint = "not a program for this machine; a script needs a #! line"
	case unix.EAGAIN, unix.EMFILE, unix.ENFILE, unix.ENOMEM:
		e.Reason = engine.StartLimit
		e.Hint = limitHint(errno)
	case unix.E2BIG:
		e.Reason = engine.StartInvalid
		e.Hint = "the arguments and the environment are too large"
	case unix.ENAMETOOLONG, unix.ELOOP:
		e.Reason = engine.StartNotFound
	}
	return e
}

func limitHint(errno syscall.Errno) string {
	switch errno {
	case unix.EAGAIN:
		return "too many processes"
	case unix.ENOMEM:
		return "out of memory"
	}
	return "too many open files"
}

func resolvePath(cwd, path string) string {
	if cwd == "" || strings.HasPrefix(path, "/") {
		return path
	}
	return cwd + "/" + path
}

// checkCwd says why nothing can start in a directory, or zero.
func checkCwd(dir string) syscall.Errno {
	var st unix.Stat_t
	err := unix.Stat(dir, &st)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return unix.ENOTDIR
	}
	if err == nil {
		err = unix.Faccessat(unix.AT_FDCWD, dir, unix.X_OK, unix.AT_EACCESS)
	}
	errno, _ := err.(syscall.Errno)
	return errno
}

// pipeError explains why there were no descriptors.
func pipeError(err error) error {
	e := &spool.StartError{Reason: engine.StartOther, Err: err}
	var errno syscall.Errno
	if errors.As(err, &errno) && (errno == unix.EMFILE || errno == unix.ENFILE || errno == unix.ENOMEM) {
		e.Reason, e.Hint = engine.StartLimit, limitHint(errno)
	}
	return e
}

// ptyError explains why there was no terminal.
func ptyError(err error) error {
	if e, ok := pipeError(err).(*spool.StartError); ok && e.Reason == engine.StartLimit {
		return e
	}
	return &spool.StartError{Reason: engine.StartPTY, Hint: "no terminal could be opened; is /dev/ptmx there?", Err: err}
}
