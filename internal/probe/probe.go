// Package probe finds out what the kernel really offers: control groups,
// namespaces, Landlock, system call filters, descriptors of processes, the reaper
// of orphans, file locks.
//
// A probe does not look for a file or a version. It uses the mechanism in a child
// process, has the child do what the mechanism must prevent, and checks that it
// failed. The child is this program again: main must call [Work] if the first
// argument is [Role].
package probe

import (
	"errors"
	"fmt"
)

// Role is the first argument of this program when it is the child of a probe.
const Role = "probe-role"

// Error reports a mechanism that does not work, with the step that failed.
type Error struct {
	Call string // such as "clone(CLONE_NEWUSER)"
	Err  error  // often a syscall.Errno
}

func (e *Error) Error() string { return e.Call + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// errNoEffect is the cause of a mechanism that can be used and protects nothing.
var errNoEffect = errors.New("it has no effect")

// failed returns the error of a step, nil if it had none.
func failed(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return &Error{fmt.Sprintf(format, args...), err}
}

// A Namespace is a kind of namespaces.
type Namespace string

// The kinds of namespaces.
const (
	User  Namespace = "user"
	Mount Namespace = "mount"
	PID   Namespace = "pid"
	Net   Namespace = "net"
)

// Landlocked is what Landlock can restrict here. Each field was proven by an
// attempt that failed.
type Landlocked struct {
	ABI     int  `json:"abi"`
	Reads   bool `json:"reads"`   // of files outside of some directories
	Writes  bool `json:"writes"`  // below them
	TCP     bool `json:"tcp"`     // connections, from ABI 4 on
	Signals bool `json:"signals"` // to processes outside, from ABI 6 on
}

// Trees is how the processes of a run can be killed and limited.
type Trees struct {
	Kill string `json:"kill"` // the mechanism, such as launch.KillCgroup
	// NoProcessLimit and NoMemoryLimit say why there is no such limit. They are
	// empty if the limit held.
	NoProcessLimit string `json:"no_process_limit"`
	NoMemoryLimit  string `json:"no_memory_limit"`
}
