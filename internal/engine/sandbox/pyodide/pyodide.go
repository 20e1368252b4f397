package pyodide

import "github.com/spool-run/spool/internal/engine/sandbox/guest"

// Role is the first argument of a hidden process of our own binary that the
// back end starts. Its main must pass the arguments behind it to [RunRole].
const Role = "pyodide-role"

// Name is what a configuration asks for this back end by.
const Name = "pyodide"

// Walls that not every machine has.
const (
	// WallNamespaces is there unless the kernel keeps them from us.
	WallNamespaces = "own namespaces for users, mounts, processes, network, IPC and host name"
	// WallStrictFilter is the one that only forked interpreters have.
	WallStrictFilter = "seccomp: nothing but computing, memory, time and one connection"
)

// unavailable says that this machine lacks something.
func unavailable(hint string, err error) error {
	return &guest.UnavailableError{Backend: Name, Hint: hint, Err: err}
}
