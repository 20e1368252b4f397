package local

import (
	"os"
	"os/exec"
	"sync/atomic"

	"github.com/spool-run/spool/internal/engine/sandbox/pyodide"
	"github.com/spool-run/spool/internal/engine/sandbox/wasipy"
	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/internal/probe"
)

// The first arguments of this program when it is started as a child.
const (
	keeperRole  = "keeper-role"  // the process that keeps runs
	sandboxRole = "sandbox-role" // one in which sandboxed code of the embedded back end executes
	pyodideRole = pyodide.Role   // one that prepares a process for Pyodide
	probeRole   = probe.Role     // one that tries a protection of this machine
	isolateRole = isolate.Role   // the first process of a sandbox, and one that tries to leave it
)

// self is this program, also after its file was replaced by a newer one.
const self = "/proc/self/exe"

// childMainCalled is set once this process is known not to be a child.
var childMainCalled atomic.Bool

// ChildMain must be the first statement of main: Spool executes the program
// it is part of again, for the process that keeps runs and for processes that
// confine sandboxed code. In such a process ChildMain does that work and exits.
// In any other it returns at once.
//
// It also marks the descriptors that this process inherited, but for the
// standard ones, as close-on-exec, so that no run holds a pipe of the program
// that started this one.
func ChildMain() {
	closeOnExec()
	if len(os.Args) > 1 {
		switch args := os.Args[2:]; os.Args[1] {
		case keeperRole:
			os.Exit(keep(args, os.Stdout, os.Stderr))
		case sandboxRole:
			os.Exit(wasipy.Work(args))
		case pyodideRole:
			os.Exit(pyodide.RunRole(args))
		case probeRole:
			os.Exit(probe.Work(args))
		case isolateRole:
			os.Exit(isolate.Work(args))
		}
	}
	childMainCalled.Store(true)
}

// child is a command that executes this program in a role.
func child(role string, args ...string) *exec.Cmd {
	cmd := exec.Command(self, append([]string{role}, args...)...)
	cmd.Args[0] = "spool" // the name that ps shows
	return cmd
}
