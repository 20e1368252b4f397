package index

import (
	"path"
	"strings"
)

// cutName returns the part of a name that an index keeps.
func cutName(name string) string { return name[:min(len(name), maxName)] }

// glob is a pattern of [path.Match] for names.
type glob struct {
	pattern string
	prefix  string // with which every name begins that matches
}

func newGlob(pattern string) *glob {
	prefix := pattern
	if i := strings.IndexAny(pattern, `*?[\`); i >= 0 {
		prefix = pattern[:i]
	}
	return &glob{pattern, cutName(prefix)}
}

// match reports whether the pattern may match a name of an index. One that was cut
// may match any.
func (g *glob) match(name string) bool {
	if len(name) == maxName {
		return strings.HasPrefix(name, g.prefix)
	}
	ok, _ := path.Match(g.pattern, name)
	return ok
}
