package index

import (
	"bytes"
	"path"
	"strings"
)

// cutName returns the part of a name that an index keeps.
func cutName(name string) string { return name[:min(len(name), maxName)] }

// glob is a pattern of [path.Match] for names.
type glob struct {
	pattern string
	prefix  string // with which every name begins that matches
	within  []byte // which every name has that matches
}

func newGlob(pattern string) *glob {
	prefix := pattern
	if i := strings.IndexAny(pattern, `*?[\`); i >= 0 {
		prefix = pattern[:i]
	}
	g := &glob{pattern: pattern, prefix: cutName(prefix)}
	if !strings.ContainsAny(pattern, `[\`) {
		for _, part := range strings.FieldsFunc(pattern, func(r rune) bool { return r == '*' || r == '?' }) {
			if len(part) > len(g.within) {
				g.within = []byte(part)
			}
		}
	}
	return g
}

// match reports whether the pattern may match a name of an index. One that was cut
// may match any.
func (g *glob) match(name []byte) bool {
	if len(name) == maxName {
		return strings.HasPrefix(string(name), g.prefix)
	}
	if !bytes.Contains(name, g.within) { // which is said sooner
		return false
	}
	ok, _ := path.Match(g.pattern, string(name))
	return ok
}
