package execserver

import (
	"encoding/json"

	"github.com/spool-run/spool/internal/wire/execserver/fileuri"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// sandboxHint tells the user what to do about a refused sandbox.
const sandboxHint = "isolation of processes is not enforced by this server yet, so the request is refused instead of being run without it; " +
	"run codex with `--sandbox danger-full-access`, or isolate the server itself"

// checkProcess refuses a sandbox that restricts a process. A client does not
// check whether isolation was applied, so ignoring the request would run code
// unconfined.
func checkProcess(raw json.RawMessage, cwd string) error {
	s, err := parseSandbox(raw)
	if err != nil || s == nil {
		return err
	}
	if s.place.cwd != nil {
		if _, err := fileuri.Parse(*s.place.cwd); err != nil {
			return rpc.Errorf(rpc.CodeInvalidParams, "sandbox cwd URI `%s` is not valid on this exec-server host: %s", *s.place.cwd, err)
		}
	}
	if s.files != nil {
		r, err := s.resolveRules(cwd, rpc.CodeInvalidParams)
		if err != nil {
			return err
		}
		if !r.writesAll {
			return rpc.Errorf(rpc.CodeInvalidParams, "sandbox restricts the file system: %s", sandboxHint)
		}
	}
	if s.network {
		return rpc.Errorf(rpc.CodeInvalidParams, "sandbox restricts the network: %s", sandboxHint)
	}
	return nil
}
