// Package lazyregexp compiles regular expressions when they are first used. Those of all
// packages together take a tenth of the time in which a command begins, and a command
// uses few of them.
package lazyregexp

import (
	"regexp"
	"sync"
)

// New returns a function that returns a regular expression, and panics if it has a mistake.
func New(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
