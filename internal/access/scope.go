package access

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spool-run/spool"
)

// Scope names something that a subject may do.
type Scope string

// The scopes. [StartOf] and [FilesOf] make those with a parameter.
const (
	Read    Scope = "runs:read"    // list runs, read their events, blobs and changes
	Input   Scope = "runs:input"   // standard input, cells, prompts
	Start   Scope = "runs:start"   // start runs of every engine
	Control Scope = "runs:control" // interrupt, signal, resize, stop, kill, restart, apply changes
	Delete  Scope = "runs:delete"  // delete finished runs and changes, rename runs
	Answer  Scope = "asks:answer"  // answer asks
	Admin   Scope = "admin"        // everything, and the runs of all subjects

	startPrefix = "runs:start:"
	filesPrefix = "files:"
)

// StartOf is the scope to start runs of one engine.
func StartOf(engine string) Scope { return Scope(startPrefix + engine) }

// FilesOf is the scope to use the files below a directory.
func FilesOf(root string) Scope { return Scope(filesPrefix + root) }

// ParseScope checks the spelling of a scope.
func ParseScope(text string) (Scope, error) {
	switch s := Scope(text); s {
	case Read, Input, Start, Control, Delete, Answer, Admin:
		return s, nil
	}
	if engine, ok := strings.CutPrefix(text, startPrefix); ok && engine != "" {
		return Scope(text), nil
	}
	if root, ok := strings.CutPrefix(text, filesPrefix); ok && filepath.IsAbs(root) {
		return FilesOf(filepath.Clean(root)), nil
	}
	if strings.HasPrefix(text, filesPrefix) {
		return "", fmt.Errorf("%w: scope %q: files: takes an absolute directory", spool.ErrInvalid, text)
	}
	return "", fmt.Errorf("%w: unknown scope %q: use %s, %s, %sENGINE, %s, %s, %s, %s, %sDIRECTORY or %s",
		spool.ErrInvalid, text, Read, Input, startPrefix, Start, Control, Delete, Answer, filesPrefix, Admin)
}

// Scopes are what a subject may do.
type Scopes []Scope

// DefaultScopes are those of a token that is created without any: all that
// concerns the subject's own runs.
func DefaultScopes() Scopes { return Scopes{Read, Input, Start, Control, Answer} }

// UnmarshalJSON refuses unknown scopes.
func (s *Scopes) UnmarshalJSON(b []byte) error {
	var texts []string
	if err := json.Unmarshal(b, &texts); err != nil {
		return err
	}
	*s = nil
	for _, text := range texts {
		scope, err := ParseScope(text)
		if err != nil {
			return err
		}
		*s = append(*s, scope)
	}
	return nil
}

// Has reports whether the scopes include a scope. Admin includes every scope,
// and [Start] that of every engine.
func (s Scopes) Has(want Scope) bool {
	return slices.Contains(s, want) || slices.Contains(s, Admin) ||
		strings.HasPrefix(string(want), startPrefix) && slices.Contains(s, Start)
}

// Require returns [spool.ErrDenied] if the scopes do not include a scope.
func (s Scopes) Require(want Scope) error {
	if s.Has(want) {
		return nil
	}
	return fmt.Errorf("%w: the token lacks the scope %s", spool.ErrDenied, want)
}

// Roots returns the directories whose files may be used.
func (s Scopes) Roots() []string {
	if s.Has(Admin) {
		return []string{"/"}
	}
	var roots []string
	for _, scope := range s {
		if root, ok := strings.CutPrefix(string(scope), filesPrefix); ok {
			roots = append(roots, root)
		}
	}
	return roots
}
