package execserver

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/spool-run/spool/internal/wire/execserver/fileuri"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// sandbox is the sandbox object of a request: what the request may access.
type sandbox struct {
	files    *filePermissions // nil if the file system is not restricted
	network  bool             // network access is restricted
	landlock bool             // useLegacyLandlock

	place   sandboxPlace
	context *sandboxPlace // policyContext, which replaces the place for permissions
	home    string        // userHomeDir, or ""
}

// sandboxPlace is what permissions are relative to. All are file: URIs.
type sandboxPlace struct {
	cwd   *string // nil if there is none
	roots []string
}

// filePermissions are restricted file system permissions.
type filePermissions struct {
	entries []permission
}

// permission is one entry of restricted file system permissions.
type permission struct {
	path    string // a file: URI, or ""
	pattern string // a glob pattern, or ""
	special string // root, minimal, project_roots, tmpdir, slash_tmp, unknown, or ""
	subpath string // of project_roots
	access  accessMode
}

// accessMode is what an entry allows. Of two entries for the same path the
// larger one counts.
type accessMode int

const (
	accessRead accessMode = iota
	accessWrite
	accessDeny
)

// parseSandbox reads a sandbox object. It returns nil if there is none. Its
// errors have the wording that codex clients know.
func parseSandbox(raw json.RawMessage) (*sandbox, error) {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return nil, nil
	}
	var list []json.RawMessage
	if raw[0] == '[' && json.Unmarshal(raw, &list) == nil {
		return nil, rpc.Errorf(rpc.CodeInvalidParams, "invalid length %d, expected struct WireFileSystemSandboxContext with 10 elements", len(list))
	}
	object, err := newObject(raw, "struct WireFileSystemSandboxContext", false)
	if err != nil {
		return nil, err
	}
	s := new(sandbox)
	permissions, err := object.need("permissions")
	if err != nil {
		return nil, err
	}
	if err := s.parsePermissions(permissions); err != nil {
		return nil, err
	}
	if s.place, err = object.place(); err != nil {
		return nil, err
	}
	if raw := object.member("policyContext"); !isNull(raw) {
		context, err := newObject(raw, "struct WireFileSystemPolicyContext", false)
		if err != nil {
			return nil, err
		}
		place, err := context.place()
		if err != nil {
			return nil, err
		}
		s.context = &place
	}
	home, err := object.uri("userHomeDir")
	if err != nil {
		return nil, err
	}
	if home != nil {
		s.home = *home
	}
	// Codex uses TMPDIR of the server instead.
	if raw := object.member("temporaryDirectories"); !isNull(raw) {
		if _, err := object.uris(raw); err != nil {
			return nil, err
		}
	}
	if err := object.checkWindows(); err != nil {
		return nil, err
	}
	if raw, ok := object.members["useLegacyLandlock"]; ok {
		if err := object.decode(raw, &s.landlock, "a boolean"); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// place reads the members cwd and workspaceRoots.
func (o *object) place() (p sandboxPlace, err error) {
	if p.cwd, err = o.uri("cwd"); err != nil {
		return p, err
	}
	if raw, ok := o.members["workspaceRoots"]; ok {
		p.roots, err = o.uris(raw)
	}
	return p, err
}

// checkWindows checks the members for Windows, which have no effect here.
func (o *object) checkWindows() error {
	raw, err := o.need("windowsSandboxLevel")
	if err != nil {
		return err
	}
	level, err := o.text(raw, "string or map")
	if err != nil {
		return err
	}
	switch level {
	case "disabled", "restricted-token", "elevated", "mxc":
	default:
		return unknownVariant(level, "one of `disabled`, `restricted-token`, `elevated`, `mxc`")
	}
	raw, ok := o.members["windowsSandboxProxySettingsMode"]
	if !ok {
		return nil
	}
	mode, err := o.text(raw, "string or map")
	if err == nil && mode != "reconcile" && mode != "preserve" {
		err = unknownVariant(mode, "`reconcile` or `preserve`")
	}
	return err
}

func (s *sandbox) parsePermissions(raw json.RawMessage) error {
	object, kind, err := newTagged(raw, "type", "internally tagged enum ExecPermissionProfile", false)
	if err != nil {
		return err
	}
	switch kind {
	case "disabled":
		return nil
	case "external":
	case "managed":
		files, err := object.need("file_system")
		if err != nil {
			return err
		}
		if s.files, err = parseFilePermissions(files); err != nil {
			return err
		}
	default:
		return unknownVariant(kind, "one of `managed`, `disabled`, `external`")
	}
	if raw, err = object.need("network"); err != nil {
		return err
	}
	network, err := object.text(raw, "string or map")
	if err != nil {
		return err
	}
	switch network {
	case "enabled":
	case "restricted":
		s.network = true
	default:
		return unknownVariant(network, "`restricted` or `enabled`")
	}
	return nil
}

func parseFilePermissions(raw json.RawMessage) (*filePermissions, error) {
	object, kind, err := newTagged(raw, "type", "internally tagged enum ExecManagedFileSystemPermissions", true)
	if err != nil {
		return nil, err
	}
	switch kind {
	case "unrestricted":
		return nil, nil
	case "restricted":
	default:
		return nil, unknownVariant(kind, "`restricted` or `unrestricted`")
	}
	if raw, err = object.need("entries"); err != nil {
		return nil, err
	}
	var entries []json.RawMessage
	if err := object.decode(raw, &entries, "a sequence"); err != nil {
		return nil, err
	}
	p := new(filePermissions)
	for _, raw := range entries {
		entry, err := parseEntry(raw)
		if err != nil {
			return nil, err
		}
		p.entries = append(p.entries, entry)
	}
	// The depth limits how far codex searches for paths that a pattern matches.
	// Patterns are matched without a search here, so that it has no effect.
	if raw := object.member("glob_scan_max_depth"); !isNull(raw) {
		var depth int
		if err := object.decode(raw, &depth, "a nonzero usize"); err != nil {
			return nil, err
		}
		if depth <= 0 {
			return nil, rpc.Errorf(rpc.CodeInvalidParams, "invalid value: integer `%d`, expected a nonzero usize", depth)
		}
	}
	return p, nil
}

func parseEntry(raw json.RawMessage) (permission, error) {
	var p permission
	entry, err := newObject(raw, "struct ExecFileSystemSandboxEntry", true)
	if err != nil {
		return p, err
	}
	if raw, err = entry.need("path"); err != nil {
		return p, err
	}
	if err := p.parsePath(raw); err != nil {
		return p, err
	}
	if raw, err = entry.need("access"); err != nil {
		return p, err
	}
	mode, err := entry.text(raw, "string or map")
	if err != nil {
		return p, err
	}
	switch mode {
	case "read":
		p.access = accessRead
	case "write":
		p.access = accessWrite
	case "deny", "none":
		p.access = accessDeny
	default:
		return p, unknownVariant(mode, "one of `read`, `write`, `deny`, `none`")
	}
	if raw := entry.member("missing_path_behavior"); !isNull(raw) {
		// On Linux codex protects such a path even if it is missing.
		behavior, err := entry.text(raw, "string or map")
		if err != nil {
			return p, err
		}
		if behavior != "skip" {
			return p, unknownVariant(behavior, "`skip`")
		}
	}
	return p, nil
}

func (p *permission) parsePath(raw json.RawMessage) error {
	object, kind, err := newTagged(raw, "type", "internally tagged enum ExecFileSystemPath", true)
	if err != nil {
		return err
	}
	switch kind {
	case "path":
		if raw, err = object.need("path"); err != nil {
			return err
		}
		if p.path, err = object.text(raw, "a string"); err == nil {
			err = checkURI(p.path)
		}
	case "glob_pattern":
		if raw, err = object.need("pattern"); err != nil {
			return err
		}
		p.pattern, err = object.text(raw, "a string")
	case "special":
		if raw, err = object.need("value"); err != nil {
			return err
		}
		err = p.parseSpecial(raw)
	default:
		err = unknownVariant(kind, "one of `path`, `glob_pattern`, `special`")
	}
	return err
}

func (p *permission) parseSpecial(raw json.RawMessage) error {
	value, kind, err := newTagged(raw, "kind", "internally tagged enum FileSystemSpecialPath", true)
	if err != nil {
		return err
	}
	p.special = kind
	switch kind {
	case "root", "minimal", "tmpdir", "slash_tmp":
		return nil
	case "current_working_directory":
		p.special = "project_roots"
	case "project_roots":
	case "unknown":
		if raw, err = value.need("path"); err != nil {
			return err
		}
		if _, err := value.text(raw, "a string"); err != nil {
			return err
		}
	default:
		return unknownVariant(kind, "one of `root`, `minimal`, `current_working_directory`, `project_roots`, `tmpdir`, `slash_tmp`, `unknown`")
	}
	if raw := value.member("subpath"); !isNull(raw) {
		p.subpath, err = value.text(raw, "a string")
	}
	return err
}

// object is a JSON object.
type object struct {
	members map[string]json.RawMessage
	// second is whether codex reads the members in a second pass, after it knows
	// the kind of an outer object. Then its errors have other words for numbers.
	second bool
}

func newObject(raw json.RawMessage, expected string, second bool) (*object, error) {
	o := &object{second: second}
	if json.Unmarshal(raw, &o.members) != nil || o.members == nil {
		return nil, o.unexpected(raw, expected)
	}
	return o, nil
}

// newTagged returns an object and its kind, which the member tag names.
func newTagged(raw json.RawMessage, tag, expected string, second bool) (*object, string, error) {
	o := &object{second: true}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil || list == nil {
		var err error
		if o, err = newObject(raw, expected, true); err != nil {
			return nil, "", err
		}
	}
	value, err := o.need(tag)
	if err != nil {
		return nil, "", err
	}
	kind, err := (&object{second: second}).text(value, "variant identifier")
	return o, kind, err
}

// member returns a member, or nil.
func (o *object) member(name string) json.RawMessage { return o.members[name] }

func (o *object) need(name string) (json.RawMessage, error) {
	raw, ok := o.members[name]
	if !ok {
		return nil, rpc.Errorf(rpc.CodeInvalidParams, "missing field `%s`", name)
	}
	return raw, nil
}

// decode reads a value that is not null.
func (o *object) decode(raw json.RawMessage, v any, expected string) error {
	if isNull(raw) || json.Unmarshal(raw, v) != nil {
		return o.unexpected(raw, expected)
	}
	return nil
}

func (o *object) text(raw json.RawMessage, expected string) (s string, err error) {
	err = o.decode(raw, &s, expected)
	return s, err
}

// uri returns a member that is a file: URI, or nil if it is absent or null.
func (o *object) uri(name string) (*string, error) {
	raw := o.member(name)
	if isNull(raw) {
		return nil, nil
	}
	s, err := o.text(raw, "a string")
	if err == nil {
		err = checkURI(s)
	}
	return &s, err
}

// uris reads a list of file: URIs.
func (o *object) uris(raw json.RawMessage) ([]string, error) {
	var list []json.RawMessage
	if err := o.decode(raw, &list, "a sequence"); err != nil {
		return nil, err
	}
	var all []string
	for _, raw := range list {
		s, err := o.text(raw, "a string")
		if err == nil {
			err = checkURI(s)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// unexpected is the error for a value of a wrong type.
func (o *object) unexpected(raw json.RawMessage, expected string) error {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 {
		raw = json.RawMessage("null")
	}
	if c := raw[0]; o.second && (c == '-' || c >= '0' && c <= '9') {
		kind := "integer"
		if bytes.ContainsAny(raw, ".eE") {
			kind = "floating point"
		}
		return rpc.Errorf(rpc.CodeInvalidParams, "invalid type: %s `%s`, expected %s", kind, raw, expected)
	}
	return wrongType(raw, expected)
}

// checkURI checks the syntax of a URI. Whether it names a path of this machine
// is checked where it is used.
func checkURI(s string) error {
	_, err := fileuri.Parse(s)
	var syntax *fileuri.SyntaxError
	if errors.As(err, &syntax) {
		return rpc.Errorf(rpc.CodeInvalidParams, "%s", syntax)
	}
	return nil
}

// unknownVariant is the error for a value that is not one of the expected.
func unknownVariant(got, expected string) error {
	return rpc.Errorf(rpc.CodeInvalidParams, "unknown variant `%s`, expected %s", got, expected)
}
