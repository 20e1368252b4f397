package execserver

import (
	"bytes"
	"encoding/json"

	"github.com/spool-run/spool/internal/wire/rpc"
)

// sandboxHint tells the user what to do about a refused sandbox.
const sandboxHint = "isolation is not enforced by this server yet, so the request is refused instead of being run without it; " +
	"run codex with `--sandbox danger-full-access`, or isolate the server itself"

// restrictions are the restrictions that a sandbox object requests.
type restrictions struct {
	files   bool
	network bool
}

// checkSandbox accepts sandbox objects that request no isolation and refuses
// all others. A client does not check whether isolation was applied, so
// ignoring the request would run code unconfined.
func checkSandbox(raw json.RawMessage) error {
	r, err := parseSandbox(raw)
	switch {
	case err != nil:
		return err
	case r.files:
		return rpc.Errorf(rpc.CodeInvalidParams, "sandbox restricts the file system: %s", sandboxHint)
	case r.network:
		return rpc.Errorf(rpc.CodeInvalidParams, "sandbox restricts the network: %s", sandboxHint)
	}
	return nil
}

// checkFileSandbox is [checkSandbox] for methods that only access files. It
// ignores restrictions of the network.
func checkFileSandbox(raw json.RawMessage) error {
	r, err := parseSandbox(raw)
	if err == nil && r.files {
		return rpc.Errorf(rpc.CodeInvalidParams, "sandbox restricts the file system: %s", sandboxHint)
	}
	return err
}

func parseSandbox(raw json.RawMessage) (restrictions, error) {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return restrictions{}, nil
	}
	var sandbox struct {
		Permissions         json.RawMessage `json:"permissions"`
		WindowsSandboxLevel string          `json:"windowsSandboxLevel"`
	}
	if err := decode(raw, &sandbox, "permissions", "windowsSandboxLevel"); err != nil {
		return restrictions{}, err
	}
	switch sandbox.WindowsSandboxLevel {
	case "disabled", "restricted-token", "elevated", "mxc":
	default:
		return restrictions{}, unknownVariant(sandbox.WindowsSandboxLevel,
			"one of `disabled`, `restricted-token`, `elevated`, `mxc`")
	}
	var permissions struct {
		Type       string          `json:"type"`
		FileSystem json.RawMessage `json:"file_system"`
		Network    string          `json:"network"`
	}
	if err := decode(sandbox.Permissions, &permissions, "type"); err != nil {
		return restrictions{}, err
	}
	switch permissions.Type {
	case "disabled", "external": // no isolation requested
		return restrictions{}, nil
	case "managed":
	default:
		return restrictions{}, unknownVariant(permissions.Type, "one of `managed`, `disabled`, `external`")
	}
	if err := decode(sandbox.Permissions, &permissions, "file_system", "network"); err != nil {
		return restrictions{}, err
	}
	var r restrictions
	switch permissions.Network {
	case "enabled":
	case "restricted":
		r.network = true
	default:
		return restrictions{}, unknownVariant(permissions.Network, "`restricted` or `enabled`")
	}
	var fileSystem struct {
		Type string `json:"type"`
	}
	if err := decode(permissions.FileSystem, &fileSystem, "type"); err != nil {
		return restrictions{}, err
	}
	switch fileSystem.Type {
	case "unrestricted":
	case "restricted":
		r.files = true
	default:
		return restrictions{}, unknownVariant(fileSystem.Type, "`restricted` or `unrestricted`")
	}
	return r, nil
}

// unknownVariant is the error for a value that is not one of the expected.
func unknownVariant(got, expected string) error {
	return rpc.Errorf(rpc.CodeInvalidParams, "unknown variant `%s`, expected %s", got, expected)
}
