// Package forkexec starts programs, as [syscall.ForkExec] does, with less work for each.
//
// The standard library learns of a failed exec through a pipe, resets every signal handler
// with a call of its own, and gives the child a copy of all descriptors, which the exec
// closes again. A process that has hundreds of them open and starts a thousand programs a
// second notices. Here the child writes its error into the memory that it shares with its
// parent until the exec, the kernel resets the handlers, and the child gets only those
// descriptors that the program needs.
package forkexec

import "errors"

// ErrUnsupported is the error of a start that the kernel, or this package, cannot do. The
// caller starts the program in another way.
var ErrUnsupported = errors.New("the program cannot be started in this way")

// Program is what to start: the leader of a new session and process group.
type Program struct {
	Path  string
	Argv  []string
	Env   []string
	Dir   string    // empty means that of this process
	Files []uintptr // become the descriptors 0, 1, 2 …; others are closed
	TTY   bool      // Files[0] becomes the controlling terminal
	Group int       // the descriptor of the control group (v2) to begin in; zero means that of this process
	// Enter are descriptors of files to which the child writes "0", to enter control groups
	// (v1) that it cannot begin in.
	Enter []int
}
