package pyodide

import "github.com/spool-run/spool/internal/engine/sandbox/guest"

// Role is the first argument of a hidden process of our own binary that the
// back end starts. Its main must pass the arguments behind it to [RunRole].
const Role = "pyodide-role"

// Name is the name of this back end in a configuration.
const Name = "pyodide"

// Protections that not every machine offers.
const (
	// ProtectNamespaces is missing where the kernel refuses user namespaces.
	ProtectNamespaces = "own namespaces for users, mounts, processes, network, IPC and host name"
	// ProtectStrictFilter needs forked interpreters.
	ProtectStrictFilter = "seccomp: nothing but computing, memory, time and one connection"
)

// unavailable says that this machine lacks something.
func unavailable(hint string, err error) error {
	return &guest.UnavailableError{Backend: Name, Hint: hint, Err: err}
}
