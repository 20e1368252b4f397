//go:build unix && !linux

package execserver

import "github.com/spool-run/spool/internal/wire/rpc"

// newView refuses to restrict the file system.
func newView(*rules) (tree, error) {
	return nil, rpc.Errorf(rpc.CodeInvalidParams, "sandbox restricts the file system, which this server cannot enforce on this platform: "+
		"run codex with `--sandbox danger-full-access`, or isolate the server itself")
}
