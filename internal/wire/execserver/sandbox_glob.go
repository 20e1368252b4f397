package execserver

import (
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/spool-run/spool/internal/wire/rpc"
)

// glob is a pattern of denied paths, as codex gives it to ripgrep: the base is
// the part without wildcards, and a rest of one element matches at any depth.
type glob struct {
	base string
	rest *regexp.Regexp // matches a path relative to the base
}

func newGlob(pattern string) (glob, error) {
	base, rest, ok := splitGlob(pattern)
	re, err := regexp.Compile(globExpression(rest))
	if !ok || err != nil {
		return glob{}, rpc.Errorf(rpc.CodeInternal, "unreadable glob `%s` cannot be safely expanded; use a pattern with a non-root directory prefix", pattern)
	}
	base, _ = realRulePath(base)
	return glob{base, re}, nil
}

// splitGlob splits an absolute pattern before its first element with a wildcard.
func splitGlob(pattern string) (base, rest string, ok bool) {
	elements := strings.Split(pattern, "/")
	for i, e := range elements {
		if strings.ContainsAny(e, "*?[") {
			return strings.Join(elements[:i], "/"), strings.Join(elements[i:], "/"), i > 1
		}
	}
	return "", "", false
}

// matches reports whether a path, or a directory that it is in, is denied.
func (g glob) matches(path string) bool {
	if path == g.base || !below(g.base, path) {
		return false
	}
	rest := strings.TrimPrefix(strings.TrimPrefix(path, g.base), "/")
	for i, c := range rest {
		if c == '/' && g.rest.MatchString(rest[:i]) {
			return true
		}
	}
	return g.rest.MatchString(rest)
}

// root returns the denied path that a denied path is, or is in.
func (g glob) root(path string) string {
	for parent := filepath.Dir(path); g.matches(parent); parent = filepath.Dir(path) {
		path = parent
	}
	return path
}

// globExpression translates a pattern to a regular expression.
func globExpression(pattern string) string {
	var b strings.Builder
	b.WriteString(`(?s)\A`)
	if !strings.Contains(pattern, "/") {
		b.WriteString(`(?:.*/)?`)
	}
	braces := 0
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; c {
		case '*':
			switch {
			case strings.HasPrefix(pattern[i:], "**/") && (i == 0 || pattern[i-1] == '/'):
				b.WriteString(`(?:.*/)?`)
				i += 2
			case pattern[i:] == "**" && (i == 0 || pattern[i-1] == '/'):
				b.WriteString(`.*`)
				i++
			default:
				b.WriteString(`[^/]*`)
			}
		case '?':
			b.WriteString(`[^/]`)
		case '[':
			class, n := globClass(pattern[i:])
			b.WriteString(class)
			i += n - 1
		case '{':
			braces++
			b.WriteString(`(?:`)
		case '}':
			if braces == 0 {
				b.WriteString(`\}`)
				continue
			}
			braces--
			b.WriteString(`)`)
		case ',':
			if braces > 0 {
				b.WriteString(`|`)
			} else {
				b.WriteString(`,`)
			}
		case '\\':
			if i++; i < len(pattern) {
				_, n := utf8.DecodeRuneInString(pattern[i:])
				b.WriteString(regexp.QuoteMeta(pattern[i : i+n]))
				i += n - 1
			}
		default:
			_, n := utf8.DecodeRuneInString(pattern[i:])
			b.WriteString(regexp.QuoteMeta(pattern[i : i+n]))
			i += n - 1
		}
	}
	b.WriteString(strings.Repeat(`)`, braces))
	b.WriteString(`\z`)
	return b.String()
}

// globClass translates a class at the start of a pattern and returns its length.
// An unclosed bracket stands for itself.
func globClass(pattern string) (string, int) {
	i := 1
	not := i < len(pattern) && (pattern[i] == '!' || pattern[i] == '^')
	if not {
		i++
	}
	start := i
	for i < len(pattern) && (pattern[i] != ']' || i == start) {
		i++
	}
	if i >= len(pattern) || strings.Contains(pattern[start:i], "/") {
		return `\[`, 1
	}
	var b strings.Builder
	b.WriteString(`[`)
	if not {
		b.WriteString(`^/`)
	}
	for _, c := range pattern[start:i] {
		if strings.ContainsRune(`\[]^&~`, c) {
			b.WriteByte('\\')
		}
		b.WriteRune(c)
	}
	b.WriteString(`]`)
	return b.String(), i + 1
}
